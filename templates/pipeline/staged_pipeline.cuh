/// A ring of kStages slots of shared memory between producers and consumers, on mbarriers. A slot may arrive in
/// kSubStages parts. Each part is filled and released by itself.
///
/// Barriers have 8 bytes each: first the "full" barriers of all parts of all slots, then the "empty" ones. Each
/// completes one phase a lap. A wait names the parity of the phase that it waits for. A fresh barrier counts as past
/// parity 1. So producers start at parity 1, and their first lap does not wait; consumers start at 0.
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
  /// The state from which step() leads to a consumer's first slot.
  static __device__ __forceinline__ PipelineState before_consumer() { return consumer().before(); }
  /// The state from which step() leads here.
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

/// One role's view of a ring: the barriers' address, and the slot that the role stands on. Each thread has its own.
/// kClusterScope: consumers of other CTAs arrive on the empty barriers too, so a producer's wait needs cluster scope to
/// see what they did.
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

  /// Makes the barriers. One thread of the CTA calls it. A barrier of the CTA, or of the cluster, follows before any
  /// use. Each full barrier gets `producer_arrivals` a lap (1 for TMA: the arrival that arms it). Each empty barrier
  /// gets `consumer_arrivals`. A loop has a fence for each pair of barriers, which costs 100 clocks at a kernel's
  /// start, and kUnrolls has one for all.
  template <bool kUnrolls = false>
  static __device__ __forceinline__ void init(uint32_t base, uint32_t producer_arrivals, uint32_t consumer_arrivals) {
    init_unfenced<kUnrolls>(base, producer_arrivals, consumer_arrivals);
    ptx::fence_mbarrier_init();
  }
  /// The same where the thread makes other barriers behind these: a fence_mbarrier_init() is still to come.
  template <bool kUnrolls = false>
  static __device__ __forceinline__ void init_unfenced(uint32_t base, uint32_t producer_arrivals,
                                                       uint32_t consumer_arrivals) {
    constexpr int kUnroll = kUnrolls ? static_cast<int>(bytes / 16) : 1;
#pragma unroll kUnroll
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

  /// Waits until every consumer has released part kPart of this slot.
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
  /// The producer's arrival where no copies come: the bytes that the thread wrote before are the whole part.
  template <int kPart = 0>
  __device__ __forceinline__ void fill() const {
    ptx::mbarrier_arrive(full<kPart>(state.index));
  }

  /// Waits until part kPart of this slot has landed.
  template <int kPart = 0>
  __device__ __forceinline__ void consumer_wait() const {
    consumer_wait_at<kPart>(state);
  }
  /// The same for a slot that the role stood on and has not released.
  template <int kPart = 0>
  __device__ __forceinline__ void consumer_wait_at(const State& at) const {
    ptx::mbarrier_wait_parity(full<kPart>(at.index), at.phase);
  }

  /// Whether part kPart of this slot has landed. After `true`, this thread may read it.
  template <int kPart = 0>
  __device__ __forceinline__ bool consumer_test() const {
    return ptx::mbarrier_test_wait_parity(full<kPart>(state.index), state.phase);
  }

  /// Releases part kPart of slot `slot`, by `release` (kv_consumer_pipeline.cuh).
  template <int kPart = 0, class Release>
  __device__ __forceinline__ void release(uint32_t slot, const Release& release) const {
    release(empty<kPart>(slot));
  }

  __device__ __forceinline__ void step() { state.step(); }

  /// For a producer at its end: waits until consumers have released every slot that it ever filled. Then no arrival is
  /// on its way to this CTA's barriers when the CTA exits. Clusters need it, or a barrier.cluster.
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
