/// The items that a CTA of attention_sm100 works at, and how its roles learn of them.
///
/// A grid has a CTA for every item. Unless the scheduler is kQueued, each CTA does its own item and ends. A queued CTA
/// goes on with items of CTAs that have not begun. One thread asks the hardware to cancel such a CTA (cluster launch
/// control). The answer comes to all warps by an mbarrier. The order of items is the grid's, and no counter in memory
/// is needed. No bit of an item depends on which CTA computes it.
///
/// Roles then work on many items. Their rings and barriers run on, without a seam. All roles but softmax skip an item
/// that sees no key; softmax writes its outputs.
#pragma once

#include "kernels/attention/sm100/attention_sm100_tiles.cuh"
#include "pipeline/item_queue.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {
namespace {

template <bool kAlone>
using ItemQueue = pipeline::LaunchQueue<Shared, contract::kBlackwellItemSlots, 1, kAlone>;

/// The items of a CTA as one role sees them; the role stands on one of them. Every warp of a queued CTA has this view:
/// in one thread of the warp (kAlone), or in all.
template <bool kAlone>
class ItemWalk {
  ItemQueue<kAlone> queue_;
  uint32_t block_ = blockIdx.x;

 public:
  __device__ __forceinline__ explicit ItemWalk(const Shared& shared) : queue_(shared) {}

  /// The index of the item's CTA in the grid.
  __device__ __forceinline__ uint32_t block() const { return kQueued ? block_ : ptx::opaque(blockIdx.x); }

  /// Asks for the next item. One thread of the CTA calls it once for each item. It should call late: an item waits for
  /// the CTA that asked, even if another CTA is free. But not too late: an answer takes as long as a key tile.
  __device__ __forceinline__ void ask() const {
    if constexpr (kQueued) {
      queue_.await_readers();
      queue_.expect_answer();
      queue_.ask();
    }
  }

  /// Steps to the next item, once it is known. Returns false if there is none.
  __device__ __forceinline__ bool next() {
    if constexpr (!kQueued) {
      return false;
    } else {
      block_ = queue_.next();
      return block_ != ptx::kNoBlock;
    }
  }
};

/// Calls role(items) for each item of the CTA.
template <bool kAlone, class Role>
__device__ __forceinline__ void for_each_item(const Shared& shared, const Role& role) {
  ItemWalk<kAlone> items(shared);
#pragma unroll 1
  do role(items);
  while (items.next());
}

}  // namespace
}  // namespace kernelwright
