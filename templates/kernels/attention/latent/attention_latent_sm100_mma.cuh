/// The two threads of attention_latent_sm100 that multiply. Each waits for its own operands: the next scores begin when
/// their keys land, and the product with V when its probabilities are there, whichever comes first.
#pragma once

#include "kernels/attention/latent/attention_latent_sm100_tiles.cuh"
#include "mma/latent_sm100.cuh"

namespace kernelwright {
namespace {

/// S = Q K^T of every tile, part by part as keys land. Tiles take the two accumulators in turn.
class ScoreMultiplier {
 public:
  __device__ __forceinline__ ScoreMultiplier(const Shared& shared, const Tensor& tensor)
      : shared_(shared), tensor_(tensor), ring_(KeyRing::consumer(shared.key_barriers())) {}

  __device__ __forceinline__ void run(int tiles) {
    shared_.query_full().wait(0);
#pragma unroll 1
    for (int n = 0; n < tiles; ++n) {
      shared_.score_empty(n % 2).wait_before(n / 2);
      ptx::tcgen05_fence_after_thread_sync();
      multiply<0>(n % 2);
      ptx::tcgen05_commit(shared_.score_full(n % 2).address);
      ring_.step();
    }
  }

 private:
  template <int kPart>
  __device__ __forceinline__ void multiply(int tile) {
    ring_.template consumer_wait<kPart>();
    constexpr int kFirst = kPart * contract::kLatentPartSlabs;
#pragma unroll
    for (int slab = kFirst; slab < kFirst + slabs_of_part(kPart); ++slab)
      mma::issue_latent_scores<spec::kQDType>(tensor_.scores(tile), shared_.queries(slab), shared_.keys(tile, slab),
                                              slab > 0);
    if constexpr (kPart + 1 < kParts) multiply<kPart + 1>(tile);
  }

  const Shared shared_;
  const Tensor tensor_;
  KeyRing ring_;
};

/// O += P V of every tile. It releases the parts of the tile's slot: its scores have ended before.
class OutputMultiplier {
 public:
  __device__ __forceinline__ OutputMultiplier(const Shared& shared, const Tensor& tensor)
      : shared_(shared), tensor_(tensor), ring_(KeyRing::consumer(shared.key_barriers())) {}

  __device__ __forceinline__ void run(int tiles) {
#pragma unroll 1
    for (int n = 0; n < tiles; ++n) {
      wait_for_keys<0>();
      await(shared_.probability_ready(), n);
      multiply<0>(n);
      ptx::tcgen05_commit(shared_.output_full().address);
      ring_.step();
    }
  }

 private:
  /// The tile has landed long ago. This thread has to see it, too.
  template <int kPart>
  __device__ __forceinline__ void wait_for_keys() const {
    ring_.template consumer_wait<kPart>();
    if constexpr (kPart + 1 < kParts) wait_for_keys<kPart + 1>();
  }

  template <int kHalf>
  __device__ __forceinline__ void multiply(int n) const {
    constexpr int kFirst = kHalf * kOutputParts;  // of the parts
    mma::issue_latent_values<spec::kQDType>(tensor_.output(kHalf), shared_.probabilities(),
                                            shared_.keys(n % 2, kFirst * contract::kLatentPartSlabs), n > 0);
    release<kFirst, kFirst + kOutputParts>();
    if constexpr (kHalf + 1 < contract::kLatentOutputs) multiply<kHalf + 1>(n);
  }
  template <int kPart, int kEnd>
  __device__ __forceinline__ void release() const {
    ring_.template release<kPart>(ring_.state.index, CommitRelease{});
    if constexpr (kPart + 1 < kEnd) release<kPart + 1, kEnd>();
  }

  const Shared shared_;
  const Tensor tensor_;
  KeyRing ring_;
};

}  // namespace
}  // namespace kernelwright
