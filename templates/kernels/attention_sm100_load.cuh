/// The loading warp of attention_sm100, and the one that cleans values.
#pragma once

#include "kernels/attention_sm100_tiles.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Boxes for this CTA that complete on a barrier of the pair's first one.
struct PairBoxes {
  __device__ __forceinline__ static void load(uint32_t to, const contract::TensorMap& map, int x, int y, int z, int w,
                                              uint32_t full) {
    ptx::cp_async_bulk_tensor_4d_pair(to, map, x, y, z, w, full);
  }
  __device__ __forceinline__ static void load(uint32_t to, const contract::TensorMap& map, int x, int y, int z, int w,
                                              int v, uint32_t full) {
    ptx::cp_async_bulk_tensor_5d_pair(to, map, x, y, z, w, v, full);
  }
  /// The first CTA expects what both load.
  template <int kPart, class Ring>
  __device__ __forceinline__ static pipeline::TileTarget target(Ring& ring) {
    const pipeline::TileTarget own = ring.template get_tile<kPart>(cluster_rank() == kLeader, kCtas * Ring::tile_bytes);
    return {leaders(own.full), own.smem};
  }
};
/// Half of the keys of a tile of K.
struct HalfOfKeys : PairBoxes {
  static constexpr int kRows = kCtaKeys;
  static constexpr uint32_t kSlabBytes = kRows * kRowBytes;
  __device__ static int first_row() { return static_cast<int>(cluster_rank()) * kRows; }
  __device__ static int row_in_slot() { return 0; }
  __device__ static int first_column() { return 0; }
};
/// Half of the columns that a product with V makes.
struct HalfOfColumns : PairBoxes {
  static constexpr int kRows = spec::kBlockN, kSlabs = kCtaSlabsV;
  static constexpr uint32_t kSlabBytes = kKvSlabBytes;
  __device__ static int first_row() { return 0; }
  __device__ static int row_in_slot() { return 0; }
  __device__ static int first_column() {
    return static_cast<int>(cluster_rank()) * (contract::blackwell_output_columns(kShape) / kCtas);
  }
};
template <bool kOfPair>
struct Loads {
  using Queries = OwnBoxes;
  using Keys = Shares;
  using Values = Shares;
};
template <>
struct Loads<true> {
  using Queries = PairBoxes;
  using Keys = HalfOfKeys;
  using Values = HalfOfColumns;
};

/// Role of one thread: Q0, the first K, Q1 if there is one, and then K and V as the products take them.
__device__ __forceinline__ void load(const BlackwellAttentionParams& params, const Shared& shared) {
  const contract::AttentionParams& attention = params.attention;
  const Work work(attention);
  const policy::TileList& tiles = work.tiles.list;
  Producer rings(shared.kv_barriers(), shared.keys(), shared.values());
  auto keys = rings.k();
  auto values = rings.v();
  KvTile tile(attention, work.item, work.tiles);
  const auto load_query_tile = [&](int i) {
    const uint32_t full = shared.barrier(kBarriers.query_full + i);
    if (cluster_rank() == kLeader) ptx::mbarrier_arrive_expect_tx(full, kCtas * kSlabsQk * kQuerySlabBytes);
    load_queries<kTileRows, Loads<kPair>::Queries>(params.q, shared.queries(i), work.item, i * kTileRows,
                                                   leaders(full));
  };
  load_query_tile(0);
  const auto at = [&](int j) {  // the j-th tile that is walked
    tile.first_key = work.tiles.origin + (tiles.end - 1 - j) * spec::kBlockN;
    return tile;
  };
  pipeline::for_each_load<Tiles::order>(
      tiles.end - tiles.begin,
      [&](int j) {
        load_keys<0, Loads<kPair>::Keys>(params.k, keys, at(j));
        if (kTwoQueryTiles && j == 0) load_query_tile(1);
      },
      [&](int j) { load_values<Loads<kPair>::Values>(params.v, values, at(j)); });
  rings.drain();  // no commit of a product arrives at a CTA that is gone
}

/// Role of one warp: zeros in the first tile of V for keys that are not the sequence's, of which there are some. Their
/// probability is 0, yet 0 times what lies there may be NaN.
__device__ __forceinline__ void clean_values(const Shared& shared, int key_tiles, int last_keys) {
  // Told by who multiplies, and not by the ring itself: that one does not wait for this warp, and might be laps ahead.
  wait_for_both(shared.barrier(kBarriers.values_landed), 0);
  const bool behind_two = Tiles::order == pipeline::KvOrder::kKeysAhead && key_tiles > 1;  // tiles of K
  const int slot = kSharedRing ? (behind_two ? 2 : 1) % spec::kNumKvStages : 0;
  const uint32_t values = shared.values() + static_cast<uint32_t>(slot * kLayout.value_slot);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x % 32); i < (spec::kBlockN - last_keys) * 8; i += 32)
#pragma unroll
    for (int slab = 0; slab < kCtaSlabsV; ++slab)
      ptx::st_shared_v4(values + slab * kKvSlabBytes + last_keys * kRowBytes + i * 16, {});
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive_at(shared.barrier(kBarriers.values_clean), kLeader);
}

/// By all warps of a CTA whose rows see no key.
__device__ __forceinline__ void fill_unseen(const contract::AttentionParams& params, const WorkItem& work) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  fill_unseen_rows(params, work, lane, warp, contract::kBlackwellThreads / 32);
}

}  // namespace
}  // namespace kernelwright
