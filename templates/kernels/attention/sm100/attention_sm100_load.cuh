/// The loading warp of attention_sm100, and the warps that gather keys and values or clean values.
#pragma once

#include "kernels/attention/attention_gather.cuh"
#include "kernels/attention/sm100/attention_sm100_tiles.cuh"
#include "kernels/attention/sm100/attention_sm100_walk.cuh"
#include "policy/padding_rows.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Boxes for this CTA that complete on a barrier of the pair's first CTA.
struct PairBoxes {
  __device__ __forceinline__ static void load(uint32_t to, const contract::TensorMap& map, int x, int y, int z, int w,
                                              uint32_t full) {
    ptx::cp_async_bulk_tensor_4d_pair(to, map, x, y, z, w, full);
  }
  __device__ __forceinline__ static void load(uint32_t to, const contract::TensorMap& map, int x, int y, int z, int w,
                                              int v, uint32_t full) {
    ptx::cp_async_bulk_tensor_5d_pair(to, map, x, y, z, w, v, full);
  }
  /// The first CTA expects the bytes that both load.
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
  enum : uint32_t { row_bytes = kRowBytes };
  __device__ static int first_row() { return static_cast<int>(cluster_rank()) * kRows; }
  __device__ static int row_in_slot() { return 0; }
  __device__ static int first_column() { return 0; }
};
/// Half of the columns that a product with V makes.
struct HalfOfColumns : PairBoxes {
  static constexpr int kRows = kStageKeys, kSlabs = kCtaSlabsV;
  static constexpr uint32_t kSlabBytes = kValueSlabBytes;
  enum : uint32_t { row_bytes = kRowBytes };
  __device__ static int first_row() { return 0; }
  __device__ static int row_in_slot() { return 0; }
  __device__ static int first_column() {
    return static_cast<int>(cluster_rank()) * (contract::blackwell_output_columns(kShape) / kCtas);
  }
};
template <bool kOfPair>
struct Loads {
  using Queries = OwnBoxes;
  using Keys = KeyShares;
  using Values = ValueShares;
};
template <>
struct Loads<true> {
  using Queries = PairBoxes;
  using Keys = HalfOfKeys;
  using Values = HalfOfColumns;
};

constexpr int kRopeSlabColumns = kRowBytes / 2;
using Maps = RopeMaps<kSlabsPlain, kRopeSlabColumns>;  // of q and of k

/// Loads query tile `tile` of the CTA's item number `lap`, counting only items that see keys. Waits first until the
/// output of the item before has left through the tile's slot.
__device__ __forceinline__ void load_query_tile(const BlackwellAttentionParams& params, const Shared& shared,
                                                const WorkItem& work, int tile, int lap) {
  if constexpr (kQueued) shared.query_empty(tile).wait_before(lap);
  const auto full = shared.query_full(tile);
  if (cluster_rank() == kLeader) full.expect_bytes(kCtas * kSlabsQk * kQuerySlabBytes);
  load_queries<kTileRows, kSlabsQk, Loads<kPair>::Queries>(Maps{params.q, params.q_rope, 1}, shared.queries(tile), work,
                                                           tile * kTileRows, leaders(full.address));
}

// Whether a thread of its own loads queries. The thread that loads keys runs ahead into items whose slot of queries is
// not yet free.
constexpr bool kQueriesApart = kQueued;

/// Role of one thread: loads Q0, the first K, Q1 if there is one, and then K and V in the order of the products. It
/// also asks for further items.
__device__ __forceinline__ void load(const BlackwellAttentionParams& params, const Shared& shared) {
  const contract::AttentionParams& attention = params.attention;
  Producer rings(shared.kv_barriers(), shared.keys(), shared.values());
  auto keys = rings.k();
  auto values = rings.v();
  for_each_item<true>(shared, [&](const auto& items) {
    const Work work(attention, items.block());
    const policy::TileList& tiles = work.tiles.list;
    if constexpr (kQueued)
      if (work.tiles.empty()) return items.ask();
    KvTile tile(attention, work.item, work.tiles);
    if constexpr (!kQueriesApart) load_query_tile(params, shared, work.item, 0, 0);
    const auto at = [&](int j) {  // the j-th tile of the walk
      tile.first_key = work.tiles.origin + (tiles.end - 1 - j) * spec::kBlockN;
      return tile;
    };
    pipeline::for_each_load<Tiles::order>(
        tiles.end - tiles.begin,
        [&](int j) {
          if (kQueued && j == tiles.end - tiles.begin - 1) items.ask();
          load_keys<kSlabsQk, Loads<kPair>::Keys>(Maps{params.k, params.k_rope, params.rope_head_step}, keys, at(j));
          if (!kQueriesApart && kTwoQueryTiles && j == 0) load_query_tile(params, shared, work.item, 1, 0);
        },
        [&](int j) { load_values<Loads<kPair>::Values>(params.v, values, at(j)); });
  });
  rings.drain();  // so no commit of a product arrives at a CTA that has exited
}

/// Role of one thread: loads queries alone. kAsks: it also asks for further items.
template <bool kAsks>
__device__ __forceinline__ void load_only_queries(const BlackwellAttentionParams& params, const Shared& shared) {
  int lap = 0;
  for_each_item<true>(shared, [&](const auto& items) {
    const Work work(params.attention, items.block());
    if constexpr (kAsks) items.ask();
    if (kQueued && work.tiles.empty()) return;
#pragma unroll
    for (int tile = 0; tile < spec::kNumQ; ++tile) load_query_tile(params, shared, work.item, tile, lap);
    ++lap;
  });
}

/// Role of a lane of a gathering warp, number `warp` of them (attention_gather.cuh): copies K and V in the order of the
/// products.
__device__ __forceinline__ void gather(const contract::AttentionParams& params, const Shared& shared, uint32_t warp) {
  const RowGather rows(params, shared.gather_rows(), warp);
  Producer rings(shared.kv_barriers(), shared.keys(), shared.values());
  auto keys = rings.k();
  auto values = rings.v();
  for_each_item<false>(shared, [&](const auto& items) {
    const Work work(params, items.block());
    const policy::TileList& tiles = work.tiles.list;
    KvTile tile(params, work.item, work.tiles);
    tile.first_key = work.tiles.origin + tiles.end * spec::kBlockN;
    pipeline::for_each_load<Tiles::order>(
        tiles.end - tiles.begin,
        [&](int j) {
          tile.first_key -= spec::kBlockN;
          rows.look_up(tile, static_cast<uint32_t>(j));
          rows.gather_keys(keys);
        },
        [&](int j) { rows.gather_values(values, static_cast<uint32_t>(j)); });
  });
  rings.drain();  // so no copy and no commit arrives at a CTA that has exited
}

/// Role of one warp: writes zeros into the tile of V that comes first for keys behind the sequence's, if there are
/// some. Their probability is 0, but 0 times the bytes there may be NaN. It does the same in the tile that comes last
/// for keys before the sequence's start.
class Cleaner {
  const Shared shared_;
  int before_ = 0, cleaned_ = 0;  // slots of V's ring that earlier items took; tiles that were cleaned

 public:
  __device__ __forceinline__ explicit Cleaner(const Shared& shared) : shared_(shared) {}

  __device__ __forceinline__ void run(int key_tiles, int last_keys, int hidden_keys) {
    if (last_keys < spec::kBlockN) clean(key_tiles, last_keys);
    if constexpr (kCleansFirst)
      if (hidden_keys > 0) clean_first(key_tiles, hidden_keys);
    if constexpr (kQueued) before_ = (before_ + (kSharedRing ? 2 : 1) * key_tiles) % spec::kNumKvStages;
  }

 private:
  __device__ __forceinline__ void clean(int key_tiles, int last_keys) {
    // The multiplying thread reports this. The ring itself cannot: it does not wait for this warp, and might be laps
    // ahead.
    shared_.values_landed().wait_published(cleaned_);
    const bool behind_two = Tiles::order == pipeline::KvOrder::kKeysAhead && key_tiles > 1;  // tiles of K
    const int slot = (before_ + (kSharedRing ? (behind_two ? 2 : 1) : 0)) % spec::kNumKvStages;
    const uint32_t values = shared_.values() + static_cast<uint32_t>(slot * kLayout.value_slot);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x % 32); i < (spec::kBlockN - last_keys) * kRowPieces; i += 32)
#pragma unroll
      for (int slab = 0; slab < kCtaSlabsV; ++slab)
        ptx::st_shared_v4(values + slab * kValueSlabBytes + last_keys * kRowBytes + i * 16 +
                              between_stages<Consumer::mma_v_bytes>(last_keys + i / kRowPieces),
                          {});
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_.values_clean().publish_at(kLeader);
    if constexpr (kQueued || kCleansFirst) ++cleaned_;
  }

  /// The same for the first `keys` keys of the tile that comes last. Where it is also the tile that comes first, it is
  /// cleaned twice.
  __device__ __forceinline__ void clean_first(int key_tiles, int keys) {
    shared_.values_landed().wait_published(cleaned_);
    const int slot = (before_ + (kSharedRing ? 2 * key_tiles - 1 : key_tiles - 1)) % spec::kNumKvStages;
    const uint32_t values = shared_.values() + static_cast<uint32_t>(slot * kLayout.value_slot);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x % 32); i < keys * kRowPieces; i += 32)
#pragma unroll
      for (int slab = 0; slab < kCtaSlabsV; ++slab)
        ptx::st_shared_v4(
            values + slab * kValueSlabBytes + i * 16 + between_stages<Consumer::mma_v_bytes>(i / kRowPieces), {});
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_.values_clean().publish_at(kLeader);
    ++cleaned_;
  }
};

/// Called by warp `warp` of the `warps` of CTA `block` of the grid, or of the CTA that took that CTA's item.
__device__ __forceinline__ void fill_padding(const contract::AttentionParams& params, uint32_t block, uint32_t warp,
                                             uint32_t warps) {
  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
      params, block * warps + warp, gridDim.x * warps, static_cast<int>(threadIdx.x % 32));
}

/// Called by all warps of a CTA whose rows see no key.
__device__ __forceinline__ void fill_unseen(const contract::AttentionParams& params, const WorkItem& work) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  fill_unseen_rows(params, work, lane, warp, contract::kBlackwellThreads / 32);
}

}  // namespace
}  // namespace kernelwright
