/// What attention_sm90 and attention_sm100 have in common, which load through tensor maps: how a tile lies in shared
/// memory, which key tiles an item walks, their copies, and what rows that see no key come to.
#pragma once

#include "spec.h"

#include "contract/hopper_attention.h"
#include "contract/spec_words.h"
#include "pipeline/tma_producer_pipeline.cuh"
#include "policy/attention_item.cuh"
#include "policy/item_tiles.cuh"
#include "policy/mask.cuh"
#include "ptx/cluster.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"

namespace kernelwright {
namespace {

constexpr uint32_t kRowBytes = 128;  // of a slab: 64 columns of 16 bits
constexpr int kSlabsQk = contract::padded_depth(spec::kHeadDimQk) / contract::kSlabColumns;
constexpr int kSlabsV = contract::padded_depth(spec::kHeadDimV) / contract::kSlabColumns;
constexpr uint32_t kKvSlabBytes = spec::kBlockN * kRowBytes;
constexpr bool kSharedRing = spec::kKvRing == KvRing::kShared;
constexpr bool kPaged = spec::kKvLayout == KvLayoutKind::kPaged;
// Whether threads copy K and V row by row: pages in which no box of TMA lies.
constexpr bool kGathersKv = contract::hopper_gathers_kv(spec::kPageSize);
// The CTAs of a cluster each load a share of every key tile for all of them, or everything for themselves.
constexpr int kShares = spec::kMulticast, kShareRows = spec::kBlockN / kShares;
constexpr int kBoxRows = contract::hopper_kv_box_rows(kShareRows, spec::kPageSize);  // of K and V

using WorkItem = policy::WorkItem<spec::kQLayout, spec::kKvLayout, spec::kPackGqa, spec::kGroup, spec::kBlockM>;
using Mask = policy::Mask<spec::kMask, spec::kChunk>;

__device__ __forceinline__ uint32_t share_rank() {
  if constexpr (kShares > 1)
    return ptx::cluster_ctarank();
  else
    return 0;
}

/// The key tiles of `work`, be it a CTA's or that of a cluster.
template <class WorkItemT>
__device__ __forceinline__ policy::ItemTiles tiles_of(const contract::AttentionParams& params, const WorkItemT& work) {
  constexpr int kStart = kPaged && !kGathersKv ? kBoxRows : 1;
  constexpr int kChunk = spec::kMask == MaskKind::kChunked ? spec::kChunk : 1;
  return policy::item_tiles<spec::kBlockN, kStart, kChunk, Mask>(params, work);
}

/// Where the keys of a tile lie, in coordinates of the maps.
struct KvTile {
  const int32_t* pages;  // of the sequence
  int first_key;
  int low, high;    // keys that some row of the item sees
  int start;        // ragged: token of the sequence's first key
  int head, batch;  // batch 0 if ragged

  KvTile() = default;
  __device__ __forceinline__ KvTile(const contract::AttentionParams& params, const WorkItem& work,
                                    const policy::ItemTiles& tiles)
      : pages(params.page_table + static_cast<int64_t>(work.coord.batch) * params.page_table_stride),
        first_key(0),
        low(tiles.origin + tiles.list.keys.low),
        high(tiles.origin + tiles.list.keys.high),
        start(static_cast<int>(work.sequence.kv_start)),
        head(work.row_map.kv_head()),
        batch(spec::kKvLayout == KvLayoutKind::kRagged ? 0 : work.coord.batch) {}
};

/// A box of K or V, to every CTA that it is shared with.
__device__ __forceinline__ void load_box(uint32_t to, const contract::TensorMap& map, int column, int key, int head,
                                         int batch, uint32_t full) {
  if constexpr (kShares > 1)
    ptx::cp_async_bulk_tensor_4d_multicast(to, map, column, key, head, batch, full, (1 << kShares) - 1);
  else
    ptx::cp_async_bulk_tensor_4d(to, map, column, key, head, batch, full);
}

/// Slabs [0, kSlabs) of the map's columns from kFirstSlab on, of this CTA's share of the keys of the tile.
template <int kFirstSlab, int kSlabs>
__device__ __forceinline__ void load_tile(const contract::TensorMap& map, const pipeline::TileTarget& to,
                                          const KvTile& tile) {
  const int first_row = static_cast<int>(share_rank()) * kShareRows;
  if constexpr (kPaged) {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
#pragma unroll 1
    for (int row = first_row; row < first_row + kShareRows; row += kBoxRows) {
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

/// The next tile of K, chunk by chunk as each is let go of.
template <int kChunk, class Keys>
__device__ __forceinline__ void load_keys(const contract::TensorMap& map, Keys& keys, const KvTile& tile) {
  constexpr int kSlabs = kSlabsQk / spec::kNumQkStages;
  keys.template acquire_k<kChunk>();
  load_tile<kChunk * kSlabs, kSlabs>(map, keys.template get_k<kChunk>(true), tile);
  if constexpr (kChunk + 1 < spec::kNumQkStages)
    load_keys<kChunk + 1>(map, keys, tile);
  else
    keys.commit_step();
}

/// The next tile of V.
template <class Values>
__device__ __forceinline__ void load_values(const contract::TensorMap& map, Values& values, const KvTile& tile) {
  values.acquire_v();
  load_tile<0, kSlabsV>(map, values.get_v(true), tile);
  values.commit_step();
}

/// Queries in boxes of `kRows` rows, the first of which is row `row` of the CTA's. The caller has armed `full`.
template <int kRows>
__device__ __forceinline__ void load_queries(const contract::TensorMap& map, uint32_t to, const WorkItem& work, int row,
                                             uint32_t full) {
  const int token = static_cast<int>(work.sequence.q_start) + work.query(row);
  const int batch = spec::kQLayout == QLayout::kRagged ? 0 : work.coord.batch;
#pragma unroll
  for (int slab = 0; slab < kSlabsQk; ++slab) {
    const uint32_t slab_at = to + slab * kRows * kRowBytes;
    const int column = slab * contract::kSlabColumns;
    if constexpr (spec::kPackGqa)
      ptx::cp_async_bulk_tensor_5d(slab_at, map, column, 0, token, work.coord.head, batch, full);
    else
      ptx::cp_async_bulk_tensor_4d(slab_at, map, column, token, work.coord.head, batch, full);
  }
}

/// O = 0 and the LSE of nothing (of the sink, if there is one) for rows first, first + step, .. of an item that sees no
/// key. By all lanes of a warp.
__device__ __forceinline__ void fill_unseen_rows(const contract::AttentionParams& params, const WorkItem& work,
                                                 int lane, int first, int step) {
  for (int row = first; row < work.num_rows; row += step) {
    uint16_t* const to = static_cast<uint16_t*>(params.o) + work.offset(params.o_strides, row);
    for (int column = lane * 8; column < spec::kHeadDimV; column += 32 * 8) ptx::st_global_v4(to + column, {});
    if constexpr (spec::kLse)
      if (lane == 0)
        params.lse[work.lse_index(params, row)] = spec::kSinks ? params.sinks[work.q_head(row)] : ptx::minus_infinity();
  }
}

}  // namespace
}  // namespace kernelwright
