/// The multiplying warp of attention_sm100: one thread of it issues every product.
#pragma once

#include "kernels/attention_sm100_tiles.cuh"
#include "mma/sm100.cuh"
#include "ptx/mbarrier.cuh"

namespace kernelwright {
namespace {

/// Two products always lie between making the scores of a query tile and needing its probabilities. With T key tiles:
///
///     S0 = Q0 K(0)   S1 = Q1 K(0)   O0 = P0 V(0)
///     S0 = Q0 K(n)   O1 += P1 V(n-1)   S1 = Q1 K(n)   O0 += P0 V(n)      n = 1 .. T-1
///     O1 += P1 V(T-1)
///
/// S(n) goes where P(n-1) lay: tcgen05.mma of one thread are performed in the order in which they are issued.
class Multiplier {
 public:
  __device__ __forceinline__ Multiplier(const Shared& shared, const Tensor& tensor)
      : shared_(shared), tensor_(tensor), kv_(shared.kv_barriers(), shared.keys(), shared.values(), {}) {}

  /// `cleans`: someone puts zeros into the first tile of V before it is multiplied.
  __device__ __forceinline__ void run(int tiles, bool cleans) {
    uint32_t keys = 0;
    ptx::mbarrier_wait_parity(shared_.barrier(kBarriers.query_full), 0);
    first_scores<0>(keys);
    ptx::mbarrier_wait_parity(shared_.barrier(kBarriers.query_full + 1), 0);
    second_scores(keys);
    uint32_t values = kv_.template wait_v<0>();
    if (cleans) ptx::mbarrier_wait_parity(shared_.barrier(kBarriers.values_clean), 0);
    output(0, values, 0);
#pragma unroll 1
    for (int n = 1; n < tiles; ++n) {
      first_scores<0>(keys);
      output(1, values, n - 1);
      release_values();
      second_scores(keys);
      values = kv_.template wait_v<0>();
      output(0, values, n);
    }
    output(1, values, tiles - 1);
  }

 private:
  static constexpr int kChunks = spec::kNumQkStages, kChunkSlabs = kSlabsQk / kChunks;
  using Scores = mma::ScoreProduct<spec::kQDType, spec::kHeadDimQk, spec::kBlockN>;
  using Output = mma::OutputProduct<spec::kQDType, spec::kHeadDimV, spec::kBlockN>;

  /// Opaque: sixteen descriptors of Q that hold for all key tiles would take more registers than there are.
  __device__ __forceinline__ uint32_t queries(int tile) const { return ptx::opaque(shared_.queries(tile)); }

  /// S0 of the next tile of K, chunk by chunk as they land.
  template <int kChunk>
  __device__ __forceinline__ void first_scores(uint32_t& keys) {
    const uint32_t chunk = kv_.template wait_k<kChunk>();
    if constexpr (kChunk == 0) keys = chunk;
    ptx::tcgen05_fence_after_thread_sync();
    Scores::template issue<kChunk * kChunkSlabs, kChunkSlabs>(tensor_.scores(0), queries(0), chunk);
    if constexpr (kChunk + 1 < kChunks)
      first_scores<kChunk + 1>(keys);
    else
      ptx::tcgen05_commit(shared_.barrier(kBarriers.score_full));
  }

  /// S1 of the same tile, which nobody else reads.
  __device__ __forceinline__ void second_scores(uint32_t keys) {
    Scores::template issue<0, kSlabsQk>(tensor_.scores(1), queries(1), keys);
    ptx::tcgen05_commit(shared_.barrier(kBarriers.score_full + 1));
    release_keys<0>();
  }

  /// O += P V of key tile n of the list.
  __device__ __forceinline__ void output(int tile, uint32_t values, int n) {
    const uint32_t to = tensor_.output(tile), from = tensor_.probabilities(tile);
    ptx::mbarrier_wait_parity(shared_.barrier(kBarriers.probability_ready + tile), parity_of(n));
    ptx::tcgen05_fence_after_thread_sync();
    Output::template issue<0, kFirstKeys>(to, from, values, n > 0);
    if constexpr (kFirstKeys < spec::kBlockN) {
      ptx::mbarrier_wait_parity(shared_.barrier(kBarriers.probability_rest + tile), parity_of(n));
      ptx::tcgen05_fence_after_thread_sync();
      Output::template issue<kFirstKeys, spec::kBlockN - kFirstKeys>(to, from, values, kFirstKeys > 0 || n > 0);
    }
    ptx::tcgen05_commit(shared_.barrier(kBarriers.output_full + tile));
  }

  template <int kChunk>
  __device__ __forceinline__ void release_keys() {
    kv_.template release_k<kChunk>();
    if constexpr (kChunk + 1 < kChunks) release_keys<kChunk + 1>();
  }
  __device__ __forceinline__ void release_values() { kv_.template release_v<kChunks - 1>(); }

  const Shared shared_;
  const Tensor tensor_;
  Consumer kv_;
};

}  // namespace
}  // namespace kernelwright
