/// A ring of kStages slots of shared memory between producers and consumers, on mbarriers. A slot may arrive in
/// kSubStages parts that are full, and let go of, one by one.
///
/// Barriers, 8 bytes each: those that say "full" of all parts of all slots, then those that say "empty". Each completes
/// one phase a lap; a wait names the parity of the phase that it waits for. A fresh barrier counts as past parity 1, so
/// producers start at phase 1 and their first lap falls through, and consumers start at 0.
#pragma once

#include "contract/integers.h"
#include "ptx/mbarrier.cuh"

namespace kernelwright::pipeline {

/// The slot that a role stands on, and the parity of its lap. Two registers.
template <int kStages>
struct PipelineState {
  uint32_t index, phase;

  /// A producer's first slot, or a consumer's.
  static __device__ __forceinline__ PipelineState producer() { return {0, 1}; }
  static __device__ __forceinline__ PipelineState consumer() { return {0, 0}; }
  /// Where step() leads to a consumer's first slot.
  static __device__ __forceinline__ PipelineState before_consumer() { return consumer().before(); }
  /// Where step() leads here.
  __device__ __forceinline__ PipelineState before() const {
    return index == 0 ? PipelineState{kStages - 1, phase ^ 1} : PipelineState{index - 1, phase};
  }

  __device__ __forceinline__ void step() {
    if (++index == kStages) {
      index = 0;
      phase ^= 1;
    }
  }
};

/// One role's view of a ring: the barriers' address and where the role stands. Each thread has its own.
/// kClusterScope: consumers of other CTAs arrive on the empty barriers too, so that a producer's wait has to see what
/// they did.
template <int kStages, int kSubStages = 1, bool kClusterScope = false>
struct StagedPipeline {
  static_assert(kStages >= 1 && kSubStages >= 1);
  static constexpr int num_stages = kStages, num_sub_stages = kSubStages;
  static constexpr uint32_t bytes = 2 * 8 * kStages * kSubStages;  // of the barriers
  using State = PipelineState<kStages>;

  uint32_t base;  // of the barriers, a multiple of 8
  State state;

  static __device__ __forceinline__ StagedPipeline producer(uint32_t base) { return {base, State::producer()}; }
  static __device__ __forceinline__ StagedPipeline consumer(uint32_t base) { return {base, State::consumer()}; }

  /// Makes the barriers. By one thread of the CTA; a barrier of the CTA, or of the cluster, follows before anyone uses
  /// them. `producer_arrivals` a lap on each full barrier (1 for TMA: the arrival that arms it), `consumer_arrivals` on
  /// each empty one.
  static __device__ __forceinline__ void init(uint32_t base, uint32_t producer_arrivals, uint32_t consumer_arrivals) {
    init_unfenced(base, producer_arrivals, consumer_arrivals);
    ptx::fence_mbarrier_init();
  }
  /// The same where the thread makes other barriers behind these: a fence_mbarrier_init() is still to come.
  static __device__ __forceinline__ void init_unfenced(uint32_t base, uint32_t producer_arrivals,
                                                       uint32_t consumer_arrivals) {
#pragma unroll 1
    for (uint32_t barrier = base; barrier != base + bytes / 2; barrier += 8) {
      ptx::mbarrier_init(barrier, producer_arrivals);
      ptx::mbarrier_init(barrier + bytes / 2, consumer_arrivals);
    }
  }

  /// Barriers of part kPart of slot `slot`.
  template <int kPart = 0>
  __device__ __forceinline__ uint32_t full(uint32_t slot) const {
    static_assert(kPart >= 0 && kPart < kSubStages);
    return base + 8 * (kSubStages * slot + kPart);
  }
  template <int kPart = 0>
  __device__ __forceinline__ uint32_t empty(uint32_t slot) const {
    static_assert(kPart >= 0 && kPart < kSubStages);
    return base + 8 * (kStages * kSubStages + kSubStages * slot + kPart);
  }

  /// Waits until every consumer has let go of part kPart of this slot.
  template <int kPart = 0>
  __device__ __forceinline__ void producer_wait() const {
    if constexpr (kClusterScope) {
      ptx::mbarrier_wait_parity_cluster(empty<kPart>(state.index), state.phase);
    } else {
      ptx::mbarrier_wait_parity(empty<kPart>(state.index), state.phase);
    }
  }

  /// Arms part kPart of this slot with the bytes of the copies that will fill it, and returns the barrier that they
  /// complete on. That is the producer's arrival.
  template <int kPart = 0>
  __device__ __forceinline__ uint32_t expect_bytes(uint32_t bytes) const {
    const uint32_t barrier = full<kPart>(state.index);
    ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    return barrier;
  }
  /// The producer's arrival where no copies come: what the thread wrote before is all there is.
  template <int kPart = 0>
  __device__ __forceinline__ void fill() const {
    ptx::mbarrier_arrive(full<kPart>(state.index));
  }

  /// Waits until part kPart of this slot has landed.
  template <int kPart = 0>
  __device__ __forceinline__ void consumer_wait() const {
    consumer_wait_at<kPart>(state);
  }
  /// The same of a slot that the role stood on, and has not let go of.
  template <int kPart = 0>
  __device__ __forceinline__ void consumer_wait_at(const State& at) const {
    ptx::mbarrier_wait_parity(full<kPart>(at.index), at.phase);
  }

  /// Whether part kPart of this slot has landed. It has for this thread once this says so.
  template <int kPart = 0>
  __device__ __forceinline__ bool consumer_test() const {
    return ptx::mbarrier_test_wait_parity(full<kPart>(state.index), state.phase);
  }

  /// Lets go of part kPart of slot `slot`, as `release` does it (kv_consumer_pipeline.cuh).
  template <int kPart = 0, class Release>
  __device__ __forceinline__ void release(uint32_t slot, const Release& release) const {
    release(empty<kPart>(slot));
  }

  __device__ __forceinline__ void step() { state.step(); }

  /// For a producer at its end: waits until consumers have let go of all that it ever filled, so that no arrival is
  /// still on its way to this CTA's barriers when the CTA exits. Clusters need it, or a barrier.cluster.
  __device__ __forceinline__ void drain() {
#pragma unroll 1
    for (int slot = 0; slot < kStages; ++slot, step()) drain_slot<0>();
  }

 private:
  template <int kPart>
  __device__ __forceinline__ void drain_slot() const {
    producer_wait<kPart>();
    if constexpr (kPart + 1 < kSubStages) drain_slot<kPart + 1>();
  }
};

}  // namespace kernelwright::pipeline
