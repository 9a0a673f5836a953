/// Which key tiles a work item walks, and the key from which tiles are counted.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/mask.cuh"

namespace kernelwright::policy {

/// Key tiles of an item, counted from `origin`. There are none if a shorter sequence of a ragged batch ends before the
/// item, or if the item sees no key.
struct ItemTiles {
  TileList list;
  int origin;
  __device__ bool empty() const { return list.begin == list.end; }
  __device__ int count() const { return list.end - list.begin; }
};

/// Under a window, tiles begin with the first key that the item sees: a window of 128 keys with a few queries then
/// takes two tiles of 80, not three. Tiles have to begin with a box where keys come in boxes of kBoxRows of a page.
/// Under a chunked mask they begin with a chunk, so that chunks can be counted from there. If a box and a chunk do not
/// begin together, tiles begin with key 0. kChunk: 1 unless the mask is chunked.
template <int kBlockN, int kBoxRows, int kChunk, class MaskT, class WorkItemT>
__device__ __forceinline__ ItemTiles item_tiles(const contract::AttentionParams& params, const WorkItemT& work) {
  if (work.num_rows <= 0) return {{{0, 0}, 0, 0, 0, 0}, 0};
  const MaskT mask = work.template mask<MaskT>(params);
  const int first = work.query(0), last = work.query(work.num_rows - 1);
  int origin = 0;
  if constexpr (MaskT::hides_low) {
    constexpr int kStep = kChunk > kBoxRows ? kChunk : kBoxRows;
    if constexpr (kStep % kChunk == 0 && kStep % kBoxRows == 0) origin = mask.visible(first).low / kStep * kStep;
  }
  return {tile_list<kBlockN>(mask.counted_from(origin), first, last), origin};
}

}  // namespace kernelwright::policy
