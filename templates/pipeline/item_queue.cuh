/// The queue of work items that cluster launch control (sm_100) makes of a grid. The grid has a CTA, or a cluster, for
/// every item. A CTA that has done its own item asks the hardware to cancel a CTA that has not begun, and does that
/// one's item. The answer comes to all roles of the asking CTA, or cluster, by an mbarrier.
///
/// A slot holds one answer of 16 bytes. It is full once the answer is there, and empty once every role has read it.
#pragma once

#include "pipeline/phased_barrier.cuh"
#include "ptx/launch.cuh"
#include "ptx/mbarrier.cuh"

namespace kernelwright::pipeline {

/// One role's view of the queue. It stands on the answer that names the role's next item. Each thread has its own view.
///   Place         shared memory: item(slot) is the address of an answer. item_full(slot), of one arrival, and
///                 item_empty(slot), of one for each role that calls next(), are PhasedBarriers
///   kSlots        how many answers may wait to be read
///   kClusterSize  CTAs that take items together. The first CTA asks for all, and all roles release its slots
///   kAlone        one thread of a warp has the view; otherwise all lanes have it and call alike
template <class Place, int kSlots, int kClusterSize, bool kAlone>
class LaunchQueue {
  const Place place_;
  PipelineState<kSlots> at_ = PipelineState<kSlots>::consumer();

 public:
  __device__ __forceinline__ explicit LaunchQueue(const Place& place) : place_(place) {}

  /// Makes the barriers. By one thread; fence_barrier_init() follows.
  static __device__ __forceinline__ void init(const Place& place) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      place.item_full(slot).init();
      place.item_empty(slot).init();
    }
  }

  // The asking thread calls these three once for each item, in this order. In a cluster one thread of each CTA calls
  // expect_answer(), and that of the first CTA calls the others too.

  /// Waits until all roles have read what the slot held.
  __device__ __forceinline__ void await_readers() const { place_.item_empty(at_.index).wait_before(at_); }
  /// Arms this CTA's barrier. In a cluster the answer may come before that.
  __device__ __forceinline__ void expect_answer() const {
    place_.item_full(at_.index).expect_bytes(ptx::kCancelResponseBytes);
  }
  /// Asks for an item, for all CTAs of the cluster.
  __device__ __forceinline__ void ask() const {
    if constexpr (kClusterSize > 1)
      ptx::clusterlaunchcontrol_try_cancel_multicast(place_.item(at_.index), place_.item_full(at_.index).address);
    else
      ptx::clusterlaunchcontrol_try_cancel(place_.item(at_.index), place_.item_full(at_.index).address);
  }

  /// The block whose item is the next one, once it is known; ptx::kNoBlock if there is none.
  __device__ __forceinline__ uint32_t next() {
    place_.item_full(at_.index).wait(at_);
    uint32_t block = ptx::clusterlaunchcontrol_canceled_block(place_.item(at_.index));
    // This also tells the compiler that all lanes have the same value.
    if constexpr (!kAlone) block = __shfl_sync(0xffffffff, block, 0);
    // The hardware writes the next answer in the other proxy.
    ptx::fence_proxy_async_shared();
    if constexpr (!kAlone) __syncwarp();
    if (kAlone || threadIdx.x % 32 == 0) place_.item_empty(at_.index).arrive_at(0);
    at_.step();
    return block;
  }
};

}  // namespace kernelwright::pipeline
