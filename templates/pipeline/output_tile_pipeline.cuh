/// The output ring of a GEMM on tcgen05. Its accumulators in tensor memory lie between the thread that multiplies and
/// the warps that take sums out. So a tile is stored while the next one is made. A stage is kStride columns of all 128
/// lanes, and holds a tile's sums. Where each slab of k has scales that the tensor cores do not apply, a stage holds
/// the sums of one slab.
///
/// A stage is full when the products that were issued for it have ended: tcgen05.commit signals that. A stage is empty
/// once four warps of each of kCtas CTAs have loaded what they need of it. The first CTA of a pair multiplies for both.
/// A commit tells both CTAs that a stage is full, and the warps of both release it on the first one's barrier.
///
/// On Hopper sums are registers of the warps that multiply. These warps hand them to TileStore, and there is no ring
/// between (kernels/gemm/sm90/gemm_sm90_store.cuh).
#pragma once

#include "pipeline/staged_pipeline.cuh"
#include "ptx/tcgen05.cuh"

namespace kernelwright::pipeline {

/// An accumulator: its number, and the address of its first column, lane 0. A plain value.
struct OutputStage {
  uint32_t index, tensor;
};

/// An accumulator while a role holds it. `Signal` is called once, with the barrier that says the role is done.
///
/// At its end a stage signals, and its role steps on. Stages of a role begin and end in the order of the ring, one at a
/// time. Accumulators may be released in any order.
template <class Role, class Signal>
class OutputRoleStage {
 public:
  /// Called by Role::acquire(). The accumulator that `role` stands on belongs to this stage from here on.
  __device__ __forceinline__ OutputRoleStage(Role& role, const Signal& signal, OutputStage stage)
      : role_(role), signal_(signal), stage_(stage) {}
  OutputRoleStage(const OutputRoleStage&) = delete;
  OutputRoleStage& operator=(const OutputRoleStage&) = delete;
  OutputRoleStage& operator=(OutputRoleStage&&) = delete;
  /// Moves the accumulator to the new stage: `from` neither signals nor steps.
  __device__ __forceinline__ OutputRoleStage(OutputRoleStage&& from)
      : role_(from.role_), signal_(from.signal_), stage_(from.stage_), signals_(from.signals_), steps_(from.steps_) {
    from.signals_ = from.steps_ = false;
  }
  __device__ __forceinline__ ~OutputRoleStage() {
    if (signals_) role_.release(stage_, signal_);
    if (steps_) role_.ring_.step();
  }

  __device__ __forceinline__ uint32_t index() const { return stage_.index; }
  /// The address of its first column, lane 0.
  __device__ __forceinline__ uint32_t tensor() const { return stage_.tensor; }

  /// Signals now; the end then steps only. Must not follow another release.
  __device__ __forceinline__ void release_early() {
    role_.release(stage_, signal_);
    signals_ = false;
  }
  /// The end steps only. The role has to release the accumulator by Role::release(), once.
  __device__ __forceinline__ OutputStage release_later() {
    signals_ = false;
    return stage_;
  }
  /// For a role's last accumulator: no role waits for it again, and nothing is signalled.
  __device__ __forceinline__ OutputStage keep() {
    signals_ = steps_ = false;
    return stage_;
  }

 private:
  Role& role_;
  const Signal signal_;
  const OutputStage stage_;
  bool signals_ = true, steps_ = true;
};

template <class Pipeline>
class OutputProducer;
template <class Pipeline>
class OutputConsumer;

/// The ring, as each thread of a role has it.
template <int kStages, uint32_t kStride, int kCtas>
class OutputTilePipeline {
  static_assert(kCtas == 1 || kCtas == 2);

 public:
  using Ring = StagedPipeline<kStages>;
  static constexpr int num_stages = kStages;
  static constexpr uint32_t stage_stride_cols = kStride, barrier_bytes = Ring::bytes;
  static constexpr uint32_t kWarps = 4;  // of a CTA: each reaches 32 lanes
  using Producer = OutputProducer<OutputTilePipeline>;
  using Consumer = OutputConsumer<OutputTilePipeline>;

  /// `tensor`: the address of the first stage.
  __device__ __forceinline__ OutputTilePipeline(uint32_t barriers, uint32_t tensor)
      : barriers_(barriers), tensor_(tensor) {}
  /// Called by one thread, ahead of InputTilePipeline::init(), whose fence covers these barriers too.
  static __device__ __forceinline__ void init(uint32_t barriers) { Ring::init_unfenced(barriers, 1, kWarps * kCtas); }

  __device__ __forceinline__ Producer producer() const { return {barriers_, tensor_}; }
  __device__ __forceinline__ Consumer consumer() const { return {barriers_, tensor_}; }

 private:
  uint32_t barriers_, tensor_;
};

/// The members that both sides have.
template <class Pipeline>
class OutputRole {
 public:
  using Ring = typename Pipeline::Ring;

 protected:
  __device__ __forceinline__ OutputRole(const Ring& ring, uint32_t tensor) : ring_(ring), tensor_(tensor) {}
  __device__ __forceinline__ OutputStage stage() const {
    return {ring_.state.index, tensor_ + ring_.state.index * Pipeline::stage_stride_cols};
  }
  Ring ring_;
  uint32_t tensor_;  // address of the first stage
};

/// The multiplying thread's side.
template <class Pipeline>
class OutputProducer : OutputRole<Pipeline> {
 public:
  using typename OutputRole<Pipeline>::Ring;
  template <class Commit>
  using Stage = OutputRoleStage<OutputProducer, Commit>;

  __device__ __forceinline__ OutputProducer(uint32_t barriers, uint32_t tensor)
      : OutputRole<Pipeline>(Ring::producer(barriers), tensor) {}

  /// The next stage, once all warps have loaded the sums that it held before. The first product overwrites it, behind a
  /// tcgen05_fence_after_thread_sync(), which the wait for operands needs as well. All products for the stage must be
  /// issued before its end. Once they have ended, `commit` arrives on a barrier in every CTA that holds their sums.
  template <class Commit>
  __device__ __forceinline__ Stage<Commit> acquire(const Commit& commit) {
    this->ring_.producer_wait();  // until four warps of each CTA are done
    return {*this, commit, this->stage()};
  }
  /// Releases an accumulator that release_later() returned.
  template <class Commit>
  __device__ __forceinline__ void release(OutputStage stage, const Commit& commit) const {
    commit(this->ring_.full(stage.index));
  }

 private:
  template <class, class>
  friend class OutputRoleStage;
};

/// A storing warp's side. All lanes have it and call alike.
template <class Pipeline>
class OutputConsumer : OutputRole<Pipeline> {
 public:
  using typename OutputRole<Pipeline>::Ring;
  template <class Arrive>
  using Stage = OutputRoleStage<OutputConsumer, Arrive>;

  __device__ __forceinline__ OutputConsumer(uint32_t barriers, uint32_t tensor)
      : OutputRole<Pipeline>(Ring::consumer(barriers), tensor) {}

  /// The next stage, once its sums are there. Before its end the warp must call tcgen05_wait_ld() behind its last load.
  /// `arrive` arrives once on the barrier, in the CTA that multiplies.
  template <class Arrive>
  __device__ __forceinline__ Stage<Arrive> acquire(const Arrive& arrive) {
    this->ring_.consumer_wait();
    ptx::tcgen05_fence_after_thread_sync();
    return {*this, arrive, this->stage()};
  }
  /// Releases an accumulator that release_later() returned.
  template <class Arrive>
  __device__ __forceinline__ void release(OutputStage stage, const Arrive& arrive) const {
    ptx::tcgen05_fence_before_thread_sync();
    __syncwarp();
    arrive(this->ring_.empty(stage.index));
  }

 private:
  template <class, class>
  friend class OutputRoleStage;
};

/// The type of a role's stage, for a pipeline.
template <class Pipeline, class Commit>
using OutputProducerStage = typename OutputProducer<Pipeline>::template Stage<Commit>;
template <class Pipeline, class Arrive>
using OutputConsumerStage = typename OutputConsumer<Pipeline>::template Stage<Arrive>;

}  // namespace kernelwright::pipeline
