/// Which items a CTA of attention_sm100 works at, as its roles come to know of them.
///
/// A grid has a CTA for every item. Unless the scheduler is kQueued each does its own and ends. Queued, it goes on with
/// those of CTAs that have not begun: one thread asks the hardware to cancel such a CTA (cluster launch control), and
/// what it answers comes to all warps by an mbarrier. The order of items is the grid's, and nobody has to keep a
/// counter in memory. Which CTA computes an item changes no bit of it.
///
/// Roles then live for many items: their rings and barriers run on, without a seam, and an item that sees no key is
/// skipped by all but softmax, which writes its outputs.
#pragma once

#include "kernels/attention/sm100/attention_sm100_tiles.cuh"
#include "pipeline/item_queue.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {
namespace {

template <bool kAlone>
using ItemQueue = pipeline::LaunchQueue<Shared, contract::kBlackwellItemSlots, 1, kAlone>;

/// The items of a CTA as one role sees them, which stands on one of them. Every warp of a queued CTA has one: in one
/// thread of it (kAlone), or in all.
template <bool kAlone>
class ItemWalk {
  ItemQueue<kAlone> queue_;
  uint32_t block_ = blockIdx.x;

 public:
  __device__ __forceinline__ explicit ItemWalk(const Shared& shared) : queue_(shared) {}

  /// The index of the CTA that the grid has for the item.
  __device__ __forceinline__ uint32_t block() const { return kQueued ? block_ : ptx::opaque(blockIdx.x); }

  /// By one thread of the CTA, once for each item: asks for the next. As late as may be: an item that was asked for
  /// waits for this CTA, though another may be free. As early as must be: an answer takes as long as a key tile.
  __device__ __forceinline__ void ask() const {
    if constexpr (kQueued) {
      queue_.await_readers();
      queue_.expect_answer();
      queue_.ask();
    }
  }

  /// On to the next item, once it is known. False: there is none.
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
