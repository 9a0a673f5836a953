/// The loading warp of attention_sm100, and the one that cleans values.
#pragma once

#include "kernels/attention_sm100_tiles.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"

namespace kernelwright {
namespace {

/// Where the keys of a tile lie, in coordinates of the maps.
struct KvTile {
  const int32_t* pages;  // of the sequence
  int first_key;
  int low, high;    // keys that some row of the item sees
  int start;        // ragged: token of the sequence's first key
  int head, batch;  // batch 0 if ragged
};

/// Slabs [0, kSlabs) of the map's columns from kFirstSlab on, of all keys of the tile.
template <int kFirstSlab, int kSlabs>
__device__ __forceinline__ void load_tile(const contract::TensorMap& map, const pipeline::TileTarget& to,
                                          const KvTile& tile) {
  if constexpr (kPaged) {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
    constexpr int kBoxRows = contract::hopper_kv_box_rows(spec::kBlockN, spec::kPageSize);
#pragma unroll 1
    for (int row = 0; row < spec::kBlockN; row += kBoxRows) {
      const int key = tile.first_key + row;
      // The table may end with the sequence, and begin with the window. A page that no tensor has reads as zeros.
      const int page = key < tile.high && key + kBoxRows > tile.low ? tile.pages[key / kPage] : -1;
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab)
        ptx::cp_async_bulk_tensor_4d(to.smem + slab * kKvSlabBytes + row * kRowBytes, map,
                                     (kFirstSlab + slab) * contract::kSlabColumns, key % kPage, tile.head, page,
                                     to.full);
    }
  } else {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      ptx::cp_async_bulk_tensor_4d(to.smem + slab * kKvSlabBytes, map, (kFirstSlab + slab) * contract::kSlabColumns,
                                   tile.start + tile.first_key, tile.head, tile.batch, to.full);
  }
}

template <int kChunk, class Keys>
__device__ __forceinline__ void load_keys(const BlackwellAttentionParams& params, Keys& keys, const KvTile& tile) {
  constexpr int kSlabs = kSlabsQk / spec::kNumQkStages;
  keys.template acquire_k<kChunk>();
  load_tile<kChunk * kSlabs, kSlabs>(params.k, keys.template get_k<kChunk>(true), tile);
  if constexpr (kChunk + 1 < spec::kNumQkStages)
    load_keys<kChunk + 1>(params, keys, tile);
  else
    keys.commit_step();
}

__device__ __forceinline__ void load_queries(const BlackwellAttentionParams& params, const Shared& shared,
                                             const WorkItem& work, int tile) {
  const uint32_t to = shared.queries(tile), full = shared.barrier(kBarriers.query_full + tile);
  const int token = static_cast<int>(work.sequence.q_start) + work.query(tile * kTileRows);
  const int batch = spec::kQLayout == QLayout::kRagged ? 0 : work.coord.batch;
  ptx::mbarrier_arrive_expect_tx(full, kSlabsQk * kQuerySlabBytes);
#pragma unroll
  for (int slab = 0; slab < kSlabsQk; ++slab) {
    const int column = slab * contract::kSlabColumns;
    if constexpr (spec::kPackGqa)
      ptx::cp_async_bulk_tensor_5d(to + slab * kQuerySlabBytes, params.q, column, 0, token, work.coord.head, batch,
                                   full);
    else
      ptx::cp_async_bulk_tensor_4d(to + slab * kQuerySlabBytes, params.q, column, token, work.coord.head, batch, full);
  }
}

/// Role of one thread: Q0, the first K, Q1 if there is one, and then K and V as the products take them.
__device__ __forceinline__ void load(const BlackwellAttentionParams& params, const Shared& shared) {
  const contract::AttentionParams& attention = params.attention;
  const Work work(attention);
  const policy::TileList& tiles = work.tiles.list;
  Producer rings(shared.kv_barriers(), shared.keys(), shared.values());
  auto keys = rings.k();
  auto values = rings.v();
  KvTile tile{attention.page_table + static_cast<int64_t>(work.item.coord.batch) * attention.page_table_stride,
              0,
              work.tiles.origin + tiles.keys.low,
              work.tiles.origin + tiles.keys.high,
              static_cast<int>(work.item.sequence.kv_start),
              work.item.row_map.kv_head(),
              spec::kKvLayout == KvLayoutKind::kRagged ? 0 : work.item.coord.batch};
  load_queries(params, shared, work.item, 0);
  const auto at = [&](int j) {  // the j-th tile that is walked
    tile.first_key = work.tiles.origin + (tiles.end - 1 - j) * spec::kBlockN;
    return tile;
  };
  pipeline::for_each_load<Tiles::order>(
      tiles.end - tiles.begin,
      [&](int j) {
        load_keys<0>(params, keys, at(j));
        if (kTwoQueryTiles && j == 0) load_queries(params, shared, work.item, 1);
      },
      [&](int j) {
        values.acquire_v();
        load_tile<0, kSlabsV>(params.v, values.get_v(true), at(j));
        values.commit_step();
      });
  rings.drain();  // no commit of a product arrives at a CTA that is gone
}

/// Role of one warp: zeros in the first tile of V for keys that are not the sequence's, of which there are some. Their
/// probability is 0, yet 0 times what lies there may be NaN.
__device__ __forceinline__ void clean_values(const Shared& shared, int key_tiles, int last_keys) {
  // Told by who multiplies, and not by the ring itself: that one does not wait for this warp, and might be laps ahead.
  ptx::mbarrier_wait_parity(shared.barrier(kBarriers.values_landed), 0);
  const bool behind_two = Tiles::order == pipeline::KvOrder::kKeysAhead && key_tiles > 1;  // tiles of K
  const int slot = kSharedRing ? (behind_two ? 2 : 1) % spec::kNumKvStages : 0;
  const uint32_t values = shared.values() + static_cast<uint32_t>(slot * kLayout.value_slot);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x % 32); i < (spec::kBlockN - last_keys) * 8; i += 32)
#pragma unroll
    for (int slab = 0; slab < kSlabsV; ++slab)
      ptx::st_shared_v4(values + slab * kKvSlabBytes + last_keys * kRowBytes + i * 16, {});
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.barrier(kBarriers.values_clean));
}

/// O = 0 and the LSE of nothing (of the sink, if there is one): by all warps of a CTA whose rows see no key.
__device__ __forceinline__ void fill_unseen(const contract::AttentionParams& params, const WorkItem& work) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int row = warp; row < work.num_rows; row += contract::kBlackwellThreads / 32) {
    uint16_t* const to = static_cast<uint16_t*>(params.o) + work.offset(params.o_strides, row);
    for (int column = lane * 8; column < spec::kHeadDimV; column += 32 * 8) ptx::st_global_v4(to + column, {});
    if constexpr (spec::kLse)
      if (lane == 0)
        params.lse[work.lse_index(params, row)] = spec::kSinks ? params.sinks[work.q_head(row)] : ptx::minus_infinity();
  }
}

}  // namespace
}  // namespace kernelwright
