/// Which key tiles a work item walks, and the key from which tiles are counted.
#pragma once

#include "contract/attention_params.h"
#include "contract/key_range.h"
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

/// Keys of a tile that are before the sequence's start: the tile begins with `first_key`, and the start is one of its
/// keys or before. 0 unless kHidesInTiles.
template <bool kHidesInTiles, class WorkItemT>
__device__ __forceinline__ int hidden_keys(const WorkItemT& work, int first_key) {
  if constexpr (kHidesInTiles) return max(work.start - first_key, 0);
  return 0;
}

/// That number where a role keeps it, as a base class: without kHidesInTiles it takes no room.
template <bool kHidesInTiles>
class HiddenKeys {
  int count_ = 0;

 protected:
  __device__ void hide(int count) { count_ = count; }

 public:
  __device__ int hidden_keys() const { return count_; }
};
template <>
class HiddenKeys<false> {
 protected:
  __device__ void hide(int) {}

 public:
  __device__ int hidden_keys() const { return 0; }
};

/// Keys come in boxes of kBoxRows. kChunk: keys of a chunk; 1 unless the mask is chunked. kFromStart: tiles are counted
/// from the first key that exists, so items of a sequence have the same tiles. Otherwise they are counted from the first
/// key that the item sees, and are fewer.
template <int kBlockN, int kBoxRows, int kChunk, bool kFromStart, class MaskT, class WorkItemT>
__device__ __forceinline__ ItemTiles item_tiles(const contract::AttentionParams& params, const WorkItemT& work) {
  if (work.num_rows <= 0) return {{{0, 0}, 0, 0, 0, 0}, 0};
  const MaskT mask = work.template mask<MaskT>(params);
  const int first = work.query(0), last = work.query(work.num_rows - 1);
  const int low = kFromStart ? work.first_key() : mask.visible(first).low;
  const int origin = MaskT::hides_low ? contract::first_tile_key(true, kChunk, kBoxRows, low) : 0;
  return {tile_list<kBlockN>(mask.counted_from(origin), first, last), origin};
}

}  // namespace kernelwright::policy
