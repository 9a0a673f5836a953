/// The warps of attention_sm90 that do not multiply: a thread that walks the CTA's items and issues every copy, and a
/// warp for items that see no key.
#pragma once

#include "kernels/attention_sm90_gather.cuh"
#include "kernels/attention_sm90_tiles.cuh"
#include "policy/item_record.cuh"
#include "ptx/launch.cuh"
#include "ptx/math.cuh"
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

/// A box of K or V, to every CTA of the cluster.
__device__ __forceinline__ void load_box(uint32_t to, const contract::TensorMap& map, int column, int key, int head,
                                         int batch, uint32_t full) {
  if constexpr (kCluster > 1)
    ptx::cp_async_bulk_tensor_4d_multicast(to, map, column, key, head, batch, full, (1 << kCluster) - 1);
  else
    ptx::cp_async_bulk_tensor_4d(to, map, column, key, head, batch, full);
}

/// Slabs [0, kSlabs) of the map's columns from kFirstSlab on, of this CTA's share of the keys of the tile.
template <int kFirstSlab, int kSlabs>
__device__ __forceinline__ void load_tile(const contract::TensorMap& map, const pipeline::TileTarget& to,
                                          const KvTile& tile) {
  constexpr int kShare = spec::kBlockN / kCluster;
  const int first_row = static_cast<int>(cluster_rank()) * kShare;
  if constexpr (spec::kKvLayout == KvLayoutKind::kPaged) {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
    constexpr int kBoxRows = contract::hopper_kv_box_rows(kShare, spec::kPageSize);
#pragma unroll 1
    for (int row = first_row; row < first_row + kShare; row += kBoxRows) {
      const int key = tile.first_key + row;
      // The table may end with the sequence, and begin with the window. A page that no tensor has reads as zeros.
      const int page = key < tile.high && key + kBoxRows > tile.low ? tile.pages[key / kPage] : -1;
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab)
        load_box(to.smem + slab * kKvSlabBytes + row * kRowBytes, map, (kFirstSlab + slab) * contract::kSlabColumns,
                 key % kPage, tile.head, page, to.full);
    }
  } else {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      load_box(to.smem + slab * kKvSlabBytes + first_row * kRowBytes, map, (kFirstSlab + slab) * contract::kSlabColumns,
               tile.start + tile.first_key + first_row, tile.head, tile.batch, to.full);
  }
}

template <int kChunk, class Keys>
__device__ __forceinline__ void load_keys(const HopperAttentionParams& params, Keys& keys, const KvTile& tile) {
  constexpr int kSlabs = kSlabsQk / spec::kNumQkStages;
  keys.template acquire_k<kChunk>();
  load_tile<kChunk * kSlabs, kSlabs>(params.k, keys.template get_k<kChunk>(true), tile);
  if constexpr (kChunk + 1 < spec::kNumQkStages)
    load_keys<kChunk + 1>(params, keys, tile);
  else
    keys.commit_step();
}

__device__ __forceinline__ void load_queries(const HopperAttentionParams& params, uint32_t to, const WorkItem& work,
                                             uint32_t full) {
  const int token = static_cast<int>(work.sequence.q_start) + work.query(0);
  const int batch = spec::kQLayout == QLayout::kRagged ? 0 : work.coord.batch;
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

/// The CTA's wait for the grids ahead of it is here, and one more in fill_unseen(), which shares nothing with this
/// thread. The math warpgroups have none: they touch global memory (sinks, slopes, O, the LSE) only for an item whose
/// record they have, and that record comes by an mbarrier that this thread arrives at behind its wait.
__device__ __forceinline__ void load(const HopperAttentionParams& params, const Shared& shared) {
  ptx::griddepcontrol_wait();  // lengths and offsets too may be the grid ahead's to write
  const contract::AttentionParams& attention = params.attention;
  QueryRing queries = QueryRing::producer(shared.query_barriers());
  Producer rings(shared.kv_barriers(), shared.keys(), shared.values());
  auto keys = rings.k();
  auto values = rings.v();
  ItemRing items = ItemRing::producer();
  // Values come one key tile late, as they are used: over the whole list of steps, whatever item they belong to.
  KvTile before{};
  bool pending = false;
  const auto load_values = [&] {
    values.acquire_v();
    load_tile<0, kSlabsV>(params.v, values.get_v(true), before);
    values.commit_step();
  };
  auto walk = walk_of<Walks::Loading>(params);
  policy::TileCoord coord(0, 0, 0);
  while (walk.next(coord)) {
    const ClusterItem cluster(attention, coord);
    const WorkItem work = own_tile<spec::kBlockM * kCluster>(attention, cluster);
    const ItemTiles item = tiles_of(attention, cluster, work);
    if (item.empty()) continue;  // fill_unseen()'s
    const policy::TileList& tiles = item.list;
    queries.template producer_wait<>();
    policy::post(shared.item(items.index), policy::describe<spec::kBlockN>(attention, work, tiles, item.origin));
    if constexpr (kGathersKv)
      post_gather(shared, items.index,
                  {coord.batch, item.origin, item.origin + tiles.keys.low, item.origin + tiles.keys.high});
    const uint32_t full = queries.template full<>(queries.state.index);
    ptx::mbarrier_arrive_expect_tx(full, kSlabsQk * kQuerySlabBytes);
    load_queries(params, shared.queries(queries.state.index), work, full);
    queries.step();
    items.step();
    if constexpr (kGathersKv) continue;  // the gatherers have been told
    KvTile tile{attention.page_table + static_cast<int64_t>(coord.batch) * attention.page_table_stride,
                0,
                item.origin + tiles.keys.low,
                item.origin + tiles.keys.high,
                static_cast<int>(work.sequence.kv_start),
                work.row_map.kv_head(),
                spec::kKvLayout == KvLayoutKind::kRagged ? 0 : coord.batch};
    for (int j = tiles.end - 1; j >= tiles.begin; --j) {
      if (j == tiles.begin) walk.look_ahead();
      tile.first_key = item.origin + j * spec::kBlockN;
      load_keys<0>(params, keys, tile);
      if (pending) load_values();
      before = tile;
      pending = true;
    }
  }
  if (pending) load_values();
  // Nothing more is read: what is left are the steps of a ring and an output. The next grid's CTAs come to their wait
  // on SMs whose CTA has ended; on this one there is no room before.
  ptx::griddepcontrol_launch_dependents();
  queries.template producer_wait<>();
  policy::ItemRecord none{};
  none.walk.end = -1;
  policy::post(shared.item(items.index), none);
  ptx::mbarrier_arrive(queries.template full<>(queries.state.index));
  if constexpr (kGathersKv) post_gather(shared, items.index, {});
  // A CTA of a cluster stays until the others have let go of what it sent: they arrive on its barriers.
  if constexpr (kCluster > 1) rings.drain();
}

// ---- a warp for rows that no key is seen from ----

/// O = 0 and the LSE of nothing (of the sink, if there is one) for the items that have no key tiles. Everyone else
/// skips them: a loop over keys that may not run costs the others more than a warp that has nothing else to do.
__device__ __forceinline__ void fill_unseen(const HopperAttentionParams& params) {
  ptx::griddepcontrol_wait();
  const contract::AttentionParams& attention = params.attention;
  const int lane = threadIdx.x % 32;
  auto walk = walk_of<Walks::Static>(params);  // few items: nobody waits for their even share
  policy::TileCoord coord(0, 0, 0);
  while (walk.next(coord)) {
    const ClusterItem cluster(attention, coord);
    if (!tiles_of(attention, cluster).empty()) continue;
    const WorkItem work = own_tile<spec::kBlockM * kCluster>(attention, cluster);
    for (int row = 0; row < work.num_rows; ++row) {
      uint16_t* const to = static_cast<uint16_t*>(attention.o) + work.offset(attention.o_strides, row);
      for (int column = lane * 8; column < spec::kHeadDimV; column += 32 * 8) ptx::st_global_v4(to + column, {});
      if constexpr (spec::kLse)
        if (lane == 0)
          attention.lse[work.lse_index(attention, row)] =
              spec::kSinks ? attention.sinks[work.q_head(row)] : ptx::minus_infinity();
    }
  }
}

}  // namespace
}  // namespace kernelwright
