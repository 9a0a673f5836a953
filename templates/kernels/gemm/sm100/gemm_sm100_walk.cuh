/// Which items a CTA of gemm_sm100 works at, as its roles come to know of them.
///
/// kPersistent: the grid deals items out, each cluster takes every so many. With parts of k there is a cluster for each
/// item, and it takes them as it begins: a part waits for the one before, which so has begun, in whatever order the
/// hardware launches CTAs. kQueued: the grid has a cluster for every item, and one that has done its own goes on with
/// those of clusters that have not begun (cluster launch control). A thread of the first CTA asks, once its loading
/// warp has begun the item before: asked for earlier, an item would wait here while another cluster may be free. The
/// answer comes to every CTA of the cluster at once. It is a "no" at the end, or when the hardware has other plans for
/// the SM: both mean that this cluster stops, and neither that all items are done. Which cluster makes an item changes
/// no bit of it.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_tiles.cuh"
#include "policy/turnstile.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// One role's view, standing on an item. kAlone: one thread of a warp has it, else all lanes.
template <bool kAlone>
class ItemWalk {
  using Slot = pipeline::PipelineState<(kQueued ? spec::kClcDepth : 1)>;
  const Shared shared_;
  const int count_;
  int index_;
  Slot slot_ = Slot::consumer();  // of the answer that names the next item

 public:
  __device__ __forceinline__ ItemWalk(const Shared& shared, const Work& work)
      : shared_(shared), count_(work.count()), index_(work.first) {}

  __device__ __forceinline__ int index() const { return index_; }
  __device__ __forceinline__ uint32_t full() const {
    return shared_.barrier(kBarriers.item_full + static_cast<int>(slot_.index));
  }
  __device__ __forceinline__ uint32_t empty() const {
    return shared_.barrier(kBarriers.item_empty + static_cast<int>(slot_.index));
  }
  __device__ __forceinline__ const Slot& slot() const { return slot_; }

  /// Whether there is an item at all: of a grid that deals them out.
  __device__ __forceinline__ bool begins() const { return kQueued || index_ < count_; }

  /// On to the next item, once it is known. False: there is none.
  __device__ __forceinline__ bool next() {
    if constexpr (!kQueued) {
      index_ += static_cast<int>(gridDim.x) / kClusterSize;
      return index_ < count_;
    } else {
      ptx::mbarrier_wait_parity(full(), slot_.phase);
      uint32_t block = ptx::clusterlaunchcontrol_canceled_block(shared_.item(slot_.index));
      if constexpr (!kAlone) block = __shfl_sync(0xffffffff, block, 0);  // the same in all lanes, to the compiler too
      ptx::fence_proxy_async_shared();  // the next answer is written in the other proxy
      if constexpr (!kAlone) __syncwarp();
      if (kAlone || threadIdx.x % 32 == 0) {
        if constexpr (kClusterSize > 1)
          ptx::mbarrier_arrive_remote(empty(), 0);
        else
          ptx::mbarrier_arrive(empty());
      }
      slot_.step();
      index_ = static_cast<int>(block / kClusterSize);
      return block != ptx::kNoBlock;
    }
  }
};

/// The cluster's first item. Before all threads of the cluster meet, one of its first CTA; then first_item().
__device__ __forceinline__ void take_first_item(const BlackwellGemmParams& params, const Shared& shared) {
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

/// Calls role(index) for each item of the CTA.
template <bool kAlone, class Role>
__device__ __forceinline__ void for_each_item(const Shared& shared, const Work& work, const Role& role) {
  ItemWalk<kAlone> items(shared, work);
  if (!items.begins()) return;
#pragma unroll 1
  do role(items.index());
  while (items.next());
}

// Who reads an answer, in a cluster: a loading thread, four storing warps, in some kernels one that gathers scales, in
// every CTA; a multiplying thread for each product's CTAs; and the threads that ask.
constexpr uint32_t kItemReaders = kClusterSize * (2 + Output::kWarps + (kGathers ? 1 : 0)) + kClusterSize / kCtas;

/// Role of one thread of each CTA: has the first CTA ask for items, and arms this CTA's barrier for the answers.
__device__ __forceinline__ void ask_for_items(const Shared& shared, const Work& work, uint32_t rank) {
  if constexpr (kQueued) {
    ItemWalk<true> items(shared, work);
    uint32_t parity = 0;
#pragma unroll 1
    do {
      if (rank == 0) {
        ptx::mbarrier_wait_parity(shared.barrier(kBarriers.item_wanted), parity);
        ptx::mbarrier_wait_parity(items.empty(), items.slot().phase ^ 1);
      }
      // Other CTAs have read what the slot held: the first one asks no sooner. Its answer may come before this.
      ptx::mbarrier_arrive_expect_tx(items.full(), ptx::kCancelResponseBytes);
      if (rank == 0) {
        if constexpr (kClusterSize > 1)
          ptx::clusterlaunchcontrol_try_cancel_multicast(shared.item(items.slot().index), items.full());
        else
          ptx::clusterlaunchcontrol_try_cancel(shared.item(items.slot().index), items.full());
      }
      parity ^= 1;
    } while (items.next());
  }
}

}  // namespace
}  // namespace kernelwright
