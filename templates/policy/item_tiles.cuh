/// Which key tiles a work item walks, and from which key they are counted.
#pragma once

#include "contract/attention_params.h"
#include "contract/spec_words.h"
#include "policy/mask.cuh"

namespace kernelwright::policy {

/// Key tiles of an item, counted from `origin`: none if a shorter sequence of a ragged batch ends before it, or no key
/// is seen.
struct ItemTiles {
  TileList list;
  int origin;
  __device__ bool empty() const { return list.begin == list.end; }
  __device__ int count() const { return list.end - list.begin; }
};

/// Under a window, tiles begin with the first key that the item sees: a window of 128 keys and a few queries are then
/// two tiles of 80 and not three. Where keys come in boxes of kBoxRows of a page they begin with a box; under a chunked
/// mask with a chunk, so that chunks can be counted from there; and with key 0 if a box and a chunk do not begin
/// together. kChunk: 1 unless the mask is chunked.
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
