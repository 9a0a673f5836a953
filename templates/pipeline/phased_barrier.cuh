/// An mbarrier as roles use it: phases that complete one after the other, numbered 0, 1, 2, ..
///
/// A kernel names its barriers once, in its struct of shared memory, each by the arrivals that end a phase:
///
///     pipeline::PhasedBarrier<4> scores_full(int tile) const { return {barrier(kBarriers.scores_full + tile)}; }
///
/// A role then says which phase it waits for. The hardware knows a phase by its parity alone, so a role may be one
/// phase behind the barrier, and no more. Parities stay in this folder.
#pragma once

#include "contract/integers.h"
#include "pipeline/staged_pipeline.cuh"
#include "ptx/mbarrier.cuh"

namespace kernelwright::pipeline {

/// kArrivals end a phase. kRemote: CTAs of a cluster arrive on each other's barriers. Without it arrive_at() and
/// publish_at() reach this CTA's barrier, whatever the rank.
template <uint32_t kArrivals, bool kRemote = false>
struct PhasedBarrier {
  static_assert(kArrivals > 0);
  uint32_t address;

  /// Called by one thread. fence_barrier_init() and a barrier of the CTA or the cluster follow before any use.
  __device__ __forceinline__ void init() const { ptx::mbarrier_init(address, kArrivals); }

  /// Returns once phase number `phase` has completed.
  __device__ __forceinline__ void wait(int phase) const { ptx::mbarrier_wait_parity(address, parity_of(phase)); }
  /// Returns once the phase before `phase` has completed. A role waits so before it refills memory that that phase
  /// released. Phase 0 has no phase before it: the wait returns at once.
  __device__ __forceinline__ void wait_before(int phase) const {
    ptx::mbarrier_wait_parity(address, parity_of(phase) ^ 1);
  }
  /// The same for the barrier of a slot, where a role stands on the slot and a phase is a lap of its ring.
  template <int kSlots>
  __device__ __forceinline__ void wait(const PipelineState<kSlots>& at) const {
    ptx::mbarrier_wait_parity(address, at.phase);
  }
  template <int kSlots>
  __device__ __forceinline__ void wait_before(const PipelineState<kSlots>& at) const {
    ptx::mbarrier_wait_parity(address, at.phase ^ 1);
  }
  /// As wait(), where other CTAs arrive by publish_at(): this thread then sees what their threads wrote before.
  __device__ __forceinline__ void wait_published(int phase) const {
    if constexpr (kRemote)
      ptx::mbarrier_wait_parity_cluster(address, parity_of(phase));
    else
      wait(phase);
  }

  /// One arrival.
  __device__ __forceinline__ void arrive() const { ptx::mbarrier_arrive(address); }
  /// One arrival, and the phase also waits for `bytes` of copies.
  __device__ __forceinline__ void expect_bytes(uint32_t bytes) const { ptx::mbarrier_arrive_expect_tx(address, bytes); }
  /// One arrival on the barrier of CTA `rank`. It does not hand over what this thread wrote by ordinary stores. The
  /// release at cluster scope that does so waits for all memory accesses of the thread (ptx/mbarrier.cuh).
  __device__ __forceinline__ void arrive_at(uint32_t rank) const {
    if constexpr (kRemote)
      ptx::mbarrier_arrive_remote(address, rank);
    else
      arrive();
  }
  /// One arrival on the barrier of CTA `rank`, with a release at cluster scope: it hands over what this thread wrote to
  /// shared memory, or has seen there.
  __device__ __forceinline__ void publish_at(uint32_t rank) const {
    if constexpr (kRemote)
      ptx::mbarrier_arrive_cluster(address, rank);
    else
      arrive();
  }

 private:
  __device__ __forceinline__ static uint32_t parity_of(int phase) { return static_cast<uint32_t>(phase) & 1; }
};

/// The thread that made the barriers calls it behind the last of them. Other threads, CTAs and copies may use the
/// barriers once a barrier of the CTA or the cluster follows.
__device__ __forceinline__ void fence_barrier_init() { ptx::fence_mbarrier_init(); }

/// The signal of a warp that is done with a slot of a ring or an accumulator: its first lane arrives, with kRemote on
/// the barrier of CTA `rank`. All lanes must be done before.
template <bool kRemote>
struct ArrivalOfWarp {
  uint32_t lane, rank;
  __device__ __forceinline__ void operator()(uint32_t barrier) const {
    if (lane == 0) PhasedBarrier<1, kRemote>{barrier}.arrive_at(rank);
  }
};
/// The signal of a warp whose lanes have written their bytes of a slot. Products read them in the async proxy.
struct SignalledByWarp {
  uint32_t lane;
  __device__ __forceinline__ void operator()(uint32_t full) const {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(full);
  }
};

}  // namespace kernelwright::pipeline
