/// The multiplying warp of attention_sm100: one thread of it issues every product.
#pragma once

#include "kernels/attention/sm100/attention_sm100_tiles.cuh"
#include "mma/sm100.cuh"
#include "ptx/mbarrier.cuh"

namespace kernelwright {
namespace {

/// Between a product that makes scores and the product that needs their probabilities, there are always two others.
/// With T key tiles, two query tiles go so:
///
///     S0 = Q0 K(0)   S1 = Q1 K(0)   O0 = P0 V(0)
///     S0 = Q0 K(n)   O1 += P1 V(n-1)   S1 = Q1 K(n)   O0 += P0 V(n)      n = 1 .. T-1
///     O1 += P1 V(T-1)
///
/// One query tile goes so. Its accumulators take the key tiles in turn, i = n % 2:
///
///     S0 = Q K(0)
///     Si = Q K(n)    Oj += Pj V(n-1)      n = 1 .. T-1, j = 1 - i
///     Oi += Pi V(T-1)
///
/// New scores overwrite old probabilities. This is safe, because the hardware performs one thread's tcgen05.mma in the
/// order of issue.
class Multiplier {
 public:
  __device__ __forceinline__ Multiplier(const Shared& shared, const Tensor& tensor)
      : shared_(shared), tensor_(tensor), kv_(shared.kv_barriers(), shared.keys(), shared.values(), {}) {}

  /// Multiplies one item. `cleans`: the cleaning warp writes zeros into the first tile of V before it is multiplied.
  /// `cleans_last`: it does so with the last tile.
  __device__ __forceinline__ void run(int key_tiles, bool cleans, bool cleans_last) {
    if constexpr (kQueued)
      if (key_tiles == 0) return;
    shared_.query_full(0).wait(items_);
    if constexpr (kTwoQueryTiles)
      run_two(key_tiles, cleans, cleans_last);
    else
      run_one(key_tiles, cleans, cleans_last);
    before_.add(key_tiles);
    if constexpr (kQueued) ++items_;
  }

 private:
  __device__ __forceinline__ void run_two(int key_tiles, bool cleans, bool cleans_last) {
    uint32_t keys = 0;
    scores_as_they_land<0>(0, keys);
    shared_.query_full(1).wait(items_);
    scores_again(keys);
    release_keys<0>();
    uint32_t values = take_values(cleans);
    if (cleans_last && key_tiles == 1) let_clean_first();
    output<kAsItLands>(0, values, 0);
#pragma unroll 1
    for (int n = 1; n < key_tiles; ++n) {
      scores_as_they_land<0>(0, keys);
      output<kThenReleases>(1, values, n - 1);
      scores_again(keys);
      release_keys<0>();
      values = take_values(false);
      if (cleans_last && n == key_tiles - 1) let_clean_first();
      output<kAsItLands>(0, values, n);
    }
    output<kThenReleases>(1, values, key_tiles - 1);
  }

  __device__ __forceinline__ void run_one(int key_tiles, bool cleans, bool cleans_last) {
    uint32_t keys = 0;
#pragma unroll 1
    for (int n = 0; n <= key_tiles; ++n) {
      if (n < key_tiles) {
        scores_as_they_land<0>(n % 2, keys);
        release_keys<0>();
      }
      if (n > 0) {
        const uint32_t values = take_values(cleans && n == 1);
        if (cleans_last && n == key_tiles) let_clean_first();
        output<kAsItLands | kThenReleases>((n - 1) % 2, values, (n - 1) / 2);
      }
    }
  }

  static constexpr int kChunks = spec::kNumQkStages, kChunkSlabs = kSlabsQk / kChunks;
  using Scores = mma::ScoreProduct<spec::kQDType, spec::kHeadDimQk, spec::kBlockN, spec::kSwizzleBytes, kCtas,
                                   spec::kRopeDType, spec::kRopeWidth>;
  using Output = mma::OutputProduct<spec::kQDType, spec::kHeadDimV, spec::kBlockN, spec::kSwizzleBytes, kCtas>;

  /// Opaque: otherwise the compiler keeps sixteen descriptors of Q for all key tiles, more than there are registers.
  __device__ __forceinline__ uint32_t queries(int tile) const { return ptx::opaque(shared_.queries(tile)); }

  /// Scores of query tile 0 and the next tile of K, chunk by chunk as chunks land.
  template <int kChunk>
  __device__ __forceinline__ void scores_as_they_land(int tile, uint32_t& keys) {
    const uint32_t chunk = kv_.template wait_k<kChunk>();
    if constexpr (kChunk == 0) keys = chunk;
    take_gathered();
    ptx::tcgen05_fence_after_thread_sync();
    Scores::template issue<kChunk * kChunkSlabs, kChunkSlabs>(tensor_.scores(tile), queries(0), chunk);
    if constexpr (kChunk + 1 < kChunks)
      scores_as_they_land<kChunk + 1>(tile, keys);
    else
      commit(shared_.score_full(tile));
  }

  /// Scores of query tile 1 and the same tile of K.
  __device__ __forceinline__ void scores_again(uint32_t keys) {
    if constexpr (pipeline::KvBytes<Tiles>::k_stride == pipeline::KvBytes<Tiles>::k_stage)
      Scores::template issue<0, kSlabsQk>(tensor_.scores(1), queries(1), keys);
    else
      scores_again_of<0>();
    commit(shared_.score_full(1));
  }
  /// The same where sub-stages do not follow each other in memory.
  template <int kChunk>
  __device__ __forceinline__ void scores_again_of() {
    Scores::template issue<kChunk * kChunkSlabs, kChunkSlabs>(tensor_.scores(1), queries(1),
                                                              kv_.template k_tile<kChunk>());
    if constexpr (kChunk + 1 < kChunks) scores_again_of<kChunk + 1>();
  }

  /// Gathering threads write rows in the generic proxy; products read them in the async proxy. Their copies arrive on a
  /// barrier by themselves, so no fence can stand before that arrival. The fence stands behind the wait for it.
  __device__ __forceinline__ static void take_gathered() {
    if constexpr (kGathersKv) ptx::fence_proxy_async_shared();
  }

  /// Waits for the first sub-stage of the next tile of V, or for the whole tile if it must be cleaned.
  __device__ __forceinline__ uint32_t take_values(bool cleans) {
    const uint32_t values = kv_.template wait_v<0>();
    take_gathered();
    if (cleans) {
      kv_.template wait_more_v<1>();
#pragma unroll
      for (uint32_t rank = 0; rank < kCtas; ++rank) shared_.values_landed().publish_at(rank);
      shared_.values_clean().wait_published(cleaned_);
      if constexpr (kQueued || kCleansFirst) ++cleaned_;
    }
    return values;
  }
  /// Lets the cleaning warp write zeros for the keys before the sequence's start to the tile of V that was taken last.
  __device__ __forceinline__ void let_clean_first() {
    if constexpr (kCleansFirst) {
      kv_.template wait_more_v<1>();
#pragma unroll
      for (uint32_t rank = 0; rank < kCtas; ++rank) shared_.values_landed().publish_at(rank);
      shared_.values_clean().wait_published(cleaned_);
      ++cleaned_;
    }
  }

  /// What a product with V does besides: it waits for sub-stages behind the first, or releases the tile.
  enum : int { kAsItLands = 1, kThenReleases = 2 };

  /// O += P V, step n of accumulator `tile`.
  template <int kDoes>
  __device__ __forceinline__ void output(int tile, uint32_t values, int n) {
    const uint32_t to = tensor_.output(tile), from = tensor_.probabilities(tile);
    const int phase = before_[tile] + n;
    shared_.probability_ready(tile).wait(phase);
    ptx::tcgen05_fence_after_thread_sync();
    output_of<kDoes, 0>(to, from, values, n, tile, phase);
    commit(shared_.output_full(tile));
    if constexpr ((kDoes & kThenReleases) && kValueStages == 1) kv_.release_v();
  }
  /// Multiplies sub-stage kStage at `values`, and those behind it. The second part of the probabilities begins in one
  /// of them.
  template <int kDoes, int kStage>
  __device__ __forceinline__ void output_of(uint32_t to, uint32_t from, uint32_t values, int n, int tile, int phase) {
    constexpr int kBegin = kStage * kStageKeys, kEnd = kBegin + kStageKeys;
    if constexpr (kBegin < kFirstKeys) {
      constexpr int kCount = (kEnd < kFirstKeys ? kEnd : kFirstKeys) - kBegin;
      Output::template issue<kBegin, kCount, kStageKeys>(to, from, values, kBegin > 0 || n > 0);
    }
    if constexpr (kEnd > kFirstKeys) {
      constexpr int kRest = kBegin > kFirstKeys ? kBegin : kFirstKeys;
      if constexpr (kBegin <= kFirstKeys) {
        shared_.probability_rest(tile).wait(phase);
        ptx::tcgen05_fence_after_thread_sync();
      }
      Output::template issue<kRest, kEnd - kRest, kStageKeys>(to, from, values, kRest > 0 || n > 0);
    }
    if constexpr ((kDoes & kThenReleases) && kValueStages > 1) kv_.template release_v<kStage>();
    if constexpr (kStage + 1 < kValueStages) {
      uint32_t more = 0;
      if constexpr (kDoes & kAsItLands) {
        more = kv_.template wait_v<kStage + 1>();
        take_gathered();
        ptx::tcgen05_fence_after_thread_sync();  // behind the wait for more of V
      } else {
        more = kv_.template v_tile<kStage + 1>();
      }
      output_of<kDoes, kStage + 1>(to, from, more, n, tile, phase);
    }
  }

  template <int kChunk>
  __device__ __forceinline__ void release_keys() {
    kv_.template release_k<kChunk>();
    if constexpr (kChunk + 1 < kChunks) release_keys<kChunk + 1>();
  }

  const Shared shared_;
  const Tensor tensor_;
  Consumer kv_;
  StepsBefore before_;
  int items_ = 0, cleaned_ = 0;  // earlier items with keys, and tiles of values that were cleaned
};

}  // namespace
}  // namespace kernelwright
