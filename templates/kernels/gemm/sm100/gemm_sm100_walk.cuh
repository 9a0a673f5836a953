/// The items that a CTA of gemm_sm100 works at, and how its roles learn of them.
///
/// kPersistent: the grid deals the items out, and a cluster takes every so many. With parts of k there is one cluster
/// for each item, and a cluster takes its item as it begins. A part waits for the part before it. That part has begun,
/// in whatever order the hardware launches CTAs.
///
/// kQueued: the grid has a cluster for every item. A cluster that has finished its own item goes on with items of
/// clusters that have not begun (cluster launch control). A thread of the first CTA asks for one, after its loading
/// warp has begun the item before. An item that it asked for earlier would wait here while another cluster may be free.
/// The answer comes to every CTA of the cluster at once. The answer "no" comes at the end, or when the hardware needs
/// the SM for other work. This cluster then stops; other items may still be undone. No bit of an item depends on which
/// cluster makes it.
///
/// With groups, items are dealt out too. How many there are is known from the table of groups, on the device.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_items.cuh"
#include "pipeline/item_queue.cuh"
#include "policy/turnstile.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

template <bool kAlone>
using ItemQueue = pipeline::LaunchQueue<Shared, (kQueued ? spec::kClcDepth : 1), kClusterSize, kAlone>;

/// One role's view, standing on an item. kAlone: one thread of a warp uses it, else all lanes.
template <bool kAlone>
class ItemWalk {
  const int count_;
  int index_;
  ItemQueue<kAlone> queue_;

 public:
  __device__ __forceinline__ ItemWalk(const Shared& shared, const AnyWork& work)
      : count_(work.count()), index_(work.first), queue_(shared) {}

  __device__ __forceinline__ int index() const { return index_; }
  __device__ __forceinline__ const ItemQueue<kAlone>& queue() const { return queue_; }

  /// Whether there is an item at all, in a grid that deals items out.
  __device__ __forceinline__ bool begins() const { return kQueued || index_ < count_; }

  /// Steps to the next item, once it is known. Returns false if there is none.
  __device__ __forceinline__ bool next() {
    if constexpr (!kQueued) {
      index_ += static_cast<int>(gridDim.x) / kClusterSize;
      return index_ < count_;
    } else {
      const uint32_t block = queue_.next();
      index_ = static_cast<int>(block / kClusterSize);
      return block != ptx::kNoBlock;
    }
  }
};

/// Takes the cluster's first item. One thread of the first CTA calls this before all threads of the cluster meet. After
/// that, first_item() has the item.
__device__ __forceinline__ void take_first_item(const EntryParams& params, const Shared& shared) {
  ptx::st_shared_u32(shared.first_item(), policy::take_item(params.turnstile));
}
__device__ __forceinline__ int first_item(const Shared& shared) {
  if constexpr (kParts == 1)
    return static_cast<int>(blockIdx.x) / kClusterSize;
  else if constexpr (kClusterSize > 1)
    return static_cast<int>(ptx::ld_shared_cluster_u32(shared.first_item(), 0));
  else
    return static_cast<int>(ptx::ld_shared_u32(shared.first_item()));
}

/// Calls role(index) for each tile of each item of the CTA. Tile `index` is one of item `index` / kHalves.
template <bool kAlone, class Role>
__device__ __forceinline__ void for_each_item(const Shared& shared, const AnyWork& work, const Role& role) {
  ItemWalk<kAlone> items(shared, work);
  if (!items.begins()) return;
#pragma unroll 1
  do
    if constexpr (kHalves == 1) {
      role(items.index());
    } else {
#pragma unroll 1
      for (int half = 0; half < kHalves; ++half) role(items.index() * kHalves + half);
    }
  while (items.next());
}

/// Role of one thread of each CTA: makes the first CTA ask for items, and arms this CTA's barrier for the answers.
__device__ __forceinline__ void ask_for_items(const Shared& shared, const AnyWork& work, uint32_t rank) {
  if constexpr (kQueued) {
    ItemWalk<true> items(shared, work);
    auto wanted = pipeline::PipelineState<1>::consumer();  // of the one barrier: a phase for each item
#pragma unroll 1
    do {
      if (rank == 0) {
        shared.item_wanted().wait(wanted);
        items.queue().await_readers();
      }
      // Other CTAs have read the slot: the first CTA does not ask before that. Its answer may come before this line.
      items.queue().expect_answer();
      if (rank == 0) items.queue().ask();
      wanted.step();
    } while (items.next());
  }
}

}  // namespace
}  // namespace kernelwright
