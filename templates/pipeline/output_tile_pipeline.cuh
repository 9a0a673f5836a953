/// The output ring of a GEMM on tcgen05: accumulators in tensor memory, between the thread that multiplies and the
/// warps that take sums out, so that a tile is stored while the next one is made. A stage is kStride columns of all 128
/// lanes, and holds a tile's sums, or (where each slab of k has scales of its own that the tensor cores do not apply)
/// those of one slab.
///
/// A stage is full when the products that were issued for it have ended, which tcgen05.commit says, and empty once four
/// warps of each of kCtas CTAs have loaded what they need of it. Of a pair the first CTA multiplies for both: a commit
/// tells both that a stage is full, and the warps of both let go of it on the first one's barrier.
///
/// On Hopper sums are registers of the warps that multiply: they are handed to TileStore as they are, and no ring
/// stands between (kernels/gemm_sm90_store.cuh).
#pragma once

#include "pipeline/staged_pipeline.cuh"
#include "ptx/tcgen05.cuh"

namespace kernelwright::pipeline {

template <int kStages, uint32_t kStride, int kCtas>
class OutputTilePipeline {
  static_assert(kCtas == 1 || kCtas == 2);

 public:
  using Ring = StagedPipeline<kStages>;
  static constexpr int num_stages = kStages;
  static constexpr uint32_t stage_stride_cols = kStride, barrier_bytes = Ring::bytes;
  static constexpr uint32_t kWarps = 4;  // of a CTA: each reaches 32 lanes

  /// An accumulator while a role holds it.
  struct Stage {
    uint32_t index;
    uint32_t tensor;  // address of its first column, lane 0
  };

  /// By one thread, ahead of InputTilePipeline::init(), whose fence is for these barriers too.
  static __device__ __forceinline__ void init(uint32_t barriers) { Ring::init_unfenced(barriers, 1, kWarps * kCtas); }

 protected:
  __device__ __forceinline__ OutputTilePipeline(const Ring& ring, uint32_t tensor) : ring_(ring), tensor_(tensor) {}
  __device__ __forceinline__ Stage stage() const { return {ring_.state.index, tensor_ + ring_.state.index * kStride}; }
  Ring ring_;
  uint32_t tensor_;  // address of the first stage
};

/// The multiplying thread's side.
template <class Pipeline>
class OutputProducer : public Pipeline {
 public:
  using typename Pipeline::Ring, typename Pipeline::Stage;
  __device__ __forceinline__ OutputProducer(uint32_t barriers, uint32_t tensor)
      : Pipeline(Ring::producer(barriers), tensor) {}

  /// The next stage, once what it held before has been loaded by all. Its first product overwrites it, behind a
  /// tcgen05_fence_after_thread_sync(), which the wait for operands asks for as well.
  __device__ __forceinline__ Stage acquire() {
    this->ring_.producer_wait();  // until four warps of each CTA are done
    return this->stage();
  }
  /// All products for the stage have been issued. `commit` arrives on a barrier once they have ended, in every CTA
  /// whose sums they are.
  template <class Commit>
  __device__ __forceinline__ void release(const Commit& commit) {
    commit(this->ring_.full(this->ring_.state.index));
    this->ring_.step();
  }
};

/// A storing warp's side. All lanes have it and call alike.
template <class Pipeline>
class OutputConsumer : public Pipeline {
 public:
  using typename Pipeline::Ring, typename Pipeline::Stage;
  __device__ __forceinline__ OutputConsumer(uint32_t barriers, uint32_t tensor)
      : Pipeline(Ring::consumer(barriers), tensor) {}

  /// The next stage, once its sums are there.
  __device__ __forceinline__ Stage acquire() {
    this->ring_.consumer_wait();
    ptx::tcgen05_fence_after_thread_sync();
    return this->stage();
  }
  /// Lets go of it, behind tcgen05_wait_ld() of the warp's last load. `arrive` arrives once on the barrier, in the CTA
  /// that multiplies.
  template <class Arrive>
  __device__ __forceinline__ void release(const Arrive& arrive) {
    ptx::tcgen05_fence_before_thread_sync();
    __syncwarp();
    arrive(this->ring_.empty(this->ring_.state.index));
    this->ring_.step();
  }
};

}  // namespace kernelwright::pipeline
