/// What the warps of attention_latent_sm100 share, beyond attention_latent_ring.cuh: constants, places in shared memory
/// and in tensor memory, and how warps signal.
#pragma once

#include "spec.h"

#include "contract/attention_latent_sm100.h"
#include "kernels/attention/latent/attention_latent_ring.cuh"
#include "pipeline/phased_barrier.cuh"
#include "ptx/tcgen05.cuh"

namespace kernelwright {
namespace {

enum : int {          // not variables, which would be in every binary
  kRoleWarps = 4,     // of a warpgroup
  kRowThreads = 256,  // softmax and correction: those that bring Q, and store the output
  kWarpRows = 32,     // a warp reaches a quarter of tensor memory's lanes
  kFolds = contract::kLatentFolds,
  kFoldKeys = spec::kBlockN / kFolds,  // of a row's scores, in one lane
  kParts = contract::kLatentParts,
  kOutputParts = contract::kLatentParts / contract::kLatentOutputs,  // that have the values of one accumulator
};
enum : uint32_t { kEndBarrier = 1, kFoldBarrier = 2 };  // kFoldBarrier and the next: two warps of softmax each

static_assert(!kConverts && !spec::kBalanced, "keys of 16 bits, and one item for each CTA");

constexpr contract::BlackwellLatentLayout kLayout = contract::blackwell_latent_layout(spec::kHeadDimQk);
constexpr contract::BlackwellLatentBarriers kBarriers = contract::blackwell_latent_barriers();
constexpr contract::BlackwellLatentColumns kColumns = contract::blackwell_latent_columns(spec::kHeadDimV);

/// Shared memory, with the layout of the contract. `lane`: of tensor memory.
struct Shared {
  uint32_t base;
  __device__ uint32_t queries(int slab = 0) const { return base + kLayout.queries + slab * kSlabBytes; }
  __device__ uint32_t keys(int slot, int slab = 0) const {
    return base + kLayout.keys + slot * kLayout.slot + slab * kSlabBytes;
  }
  __device__ uint32_t probabilities() const { return base + kLayout.probabilities; }
  __device__ uint32_t maximum(int tile, int lane) const {
    return base + kLayout.maxima + (tile * contract::kLatentLanes + lane) * 4;
  }
  __device__ uint32_t sum(int lane) const { return maximum(0, lane); }
  __device__ uint32_t factor(int tile, int lane) const {
    return base + kLayout.factors + (tile * contract::kLatentLanes + lane) * 4;
  }
  __device__ uint32_t tensor_address() const { return base + kLayout.tensor_address; }
  __device__ uint32_t last() const { return base + kLayout.last; }
  __device__ uint32_t barrier(int index) const {
    return base + kLayout.barriers + static_cast<uint32_t>(index) * contract::kBarrierBytes;
  }

  // Barriers, each with the arrivals that end its phases. Barriers of a tile number its laps: tile n is lap n / 2.
  template <uint32_t kArrivals>
  using Barrier = pipeline::PhasedBarrier<kArrivals>;
  __device__ uint32_t key_barriers() const { return barrier(kBarriers.key_full); }
  __device__ Barrier<2 * kRoleWarps> query_full() const { return {barrier(kBarriers.query_full)}; }
  __device__ Barrier<1> score_full(int tile) const { return {barrier(kBarriers.score_full + tile)}; }
  __device__ Barrier<kRoleWarps> score_empty(int tile) const { return {barrier(kBarriers.score_empty + tile)}; }
  __device__ Barrier<kRoleWarps> factor_full(int tile) const { return {barrier(kBarriers.factor_full + tile)}; }
  __device__ Barrier<2 * kRoleWarps> probability_ready() const { return {barrier(kBarriers.probability_ready)}; }
  __device__ Barrier<1> output_full() const { return {barrier(kBarriers.output_full)}; }
};

/// Tensor memory: addresses of an accumulator's first column, lane 0.
struct Tensor {
  uint32_t base;
  __device__ uint32_t scores(int tile) const { return base + (tile == 0 ? kColumns.scores[0] : kColumns.scores[1]); }
  /// The accumulator of half `half` of the output's columns.
  __device__ uint32_t output(int half) const { return base + (half == 0 ? kColumns.outputs[0] : kColumns.outputs[1]); }
};

/// The place of a thread of softmax or correction: a lane of tensor memory. Lanes r and 64 + r have row r: each of them
/// has a fold of the columns of every accumulator.
struct Lane {
  int warp, lane;  // of the warpgroup, of the warp
  __device__ __forceinline__ Lane()
      : warp(static_cast<int>(threadIdx.x / 32) % kRoleWarps), lane(static_cast<int>(threadIdx.x % 32)) {}
  __device__ int index() const { return warp * kWarpRows + lane; }
  __device__ int first_row() const { return warp % 2 * kWarpRows; }  // of the warp
  __device__ int row() const { return first_row() + lane; }
  __device__ int fold() const { return warp / 2; }
  __device__ int twin() const { return index() ^ contract::kLatentRows; }  // the other lane of the row
  /// The warp's lanes of the accumulator at `address`.
  __device__ uint32_t of(uint32_t address) const { return address + (static_cast<uint32_t>(warp * kWarpRows) << 16); }
};

/// The warp arrives once at a barrier of a multiplying thread, behind all that its lanes did, in tensor memory too.
template <class Barrier>
__device__ __forceinline__ void arrive(const Barrier& barrier) {
  ptx::tcgen05_fence_before_thread_sync();
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive();
}
template <class Barrier>
__device__ __forceinline__ void await(const Barrier& barrier, int phase) {
  barrier.wait(phase);
  ptx::tcgen05_fence_after_thread_sync();
}

/// Releases a part of a slot once the products that read it have ended: tcgen05.commit arrives then, on the barriers of
/// all CTAs that load a share of the part.
struct CommitRelease {
  __device__ __forceinline__ void operator()(uint32_t empty) const {
    if constexpr (kCluster > 1)
      ptx::tcgen05_commit_multicast(empty, (1 << kCluster) - 1);
    else
      ptx::tcgen05_commit(empty);
  }
};

}  // namespace
}  // namespace kernelwright
