/// A stable counting sort of (token, slot) pairs by expert. Pairs are in order of their tokens, then of their slots.
///
/// A CTA has neighbouring tokens, and each of its warps a run of them. Warps count the pairs of each expert. Counts
/// become rows: the experts before, the CTAs before, the warps before. Then each warp walks its tokens once more and
/// takes one row after another. A token has an expert at most once, so lanes that have its slots take rows of different
/// experts.
#pragma once

#include "contract/route.h"
#include "policy/cta_counts.cuh"
#include "policy/head_vector.cuh"
#include "policy/running_sum.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// Where experts are given, a number outside of them has no row. Nor has an expert that a lower slot of the token has.
///
/// Lives in shared memory. Every thread of the CTA calls all functions but those that count tokens.
template <int kExperts, int kBuckets, int kTopK, int kWarps, int kAlignment, bool kMapped, bool kGiven>
class ExpertSort {
  enum : int {
    kThreads = 32 * kWarps,
    kAhead = 4  // tokens whose experts are loaded at once
  };

 public:
  /// The caller synchronises the CTA before the first count. Without a place() only totals are counted.
  __device__ __forceinline__ void clear(bool places) {
    int32_t* const of_warps = of_warp_[0];
    if (places) for_each<kWarps * kBuckets>([&](int i) { of_warps[i] = 0; });
    for_each<kBuckets>([&](int bucket) { all_[bucket] = before_[bucket] = 0; });
  }
  /// Where this warp counts: with a place() for itself, and else for the CTA.
  __device__ __forceinline__ int32_t* counters(bool places) { return places ? of_warp_[threadIdx.x / 32] : all_; }

  /// Slots of tokens of the warp. `expert`: that of the lane's slot; -1 for lanes without one.
  static __device__ __forceinline__ void count(const contract::RouteParams& params, int32_t* counters, int expert) {
    count_pair(counters, bucket_of(params, expert));
  }
  /// The same for tokens whose experts are in memory, from `first` to `last`.
  static __device__ __forceinline__ void count_tokens(const contract::RouteParams& params, int32_t* counters, int first,
                                                      int last) {
    for (int token = first; token < last; token += kAhead) {
      const Run run(params, token, last, false);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) count_pair(counters, run.buckets[i]);
    }
  }

  /// What the CTA has counted becomes its row of params.counts.
  template <class Counts>
  __device__ __forceinline__ void write_counts(const contract::RouteParams& params) const {
    for_each<Counts::kRow>([&](int i) { Counts::write(params, i, i < kBuckets ? all_[i] : 0); });
  }
  /// This CTA has all tokens, and its warps have counted for themselves.
  __device__ __forceinline__ void take_counts() {
    for_each<kBuckets>([&](int bucket) {
      int sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += of_warp_[warp][bucket];
      all_[bucket] = sum;
    });
    __syncthreads();
  }
  /// Counts tokens whose experts are in memory, from `first` to `last` of each warp. Adds the rows of all CTAs, and of
  /// those ahead of this one.
  template <class Counts>
  __device__ __forceinline__ void read_counts(const contract::RouteParams& params, Counts& counts, int first,
                                              int last) {
    counts.add_rows(params, all_, before_, [&] { count_tokens(params, counters(true), first, last); });
  }

  /// After take_counts() or read_counts(): first rows, and the pairs of this CTA's tokens from `first` to `last` of
  /// each warp. Counts are used up.
  __device__ __forceinline__ void place(const contract::RouteParams& params, int first, int last) {
    count_becomes_rows(params);
    __syncthreads();
    const int lane = threadIdx.x % 32;
    int32_t* const next = of_warp_[threadIdx.x / 32];
    for (int token = first; token < last; token += kAhead) {
      const Run run(params, token, last, params.sorted_weights != nullptr);
      int32_t* const positions = params.positions + int64_t{token} * kTopK + lane;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (token + i >= last) break;
        const int row = run.buckets[i] >= 0 ? next[run.buckets[i]]++ : -1;
        if (lane < kTopK) ptx::st_global_u32(positions + i * kTopK, static_cast<uint32_t>(row));
        if (row >= 0) {
          ptx::st_global_u32(params.source_rows + row, static_cast<uint32_t>(token + i));
          if (params.sorted_weights) ptx::st_global_u32(params.sorted_weights + row, run.weights[i]);
        }
        __syncwarp();
      }
    }
  }

 private:
  enum : int { kOfThread = (kBuckets + kThreads - 1) / kThreads };

  /// Threads share out the numbers below kCount.
  template <int kCount, class Body>
  static __device__ __forceinline__ void for_each(const Body& body) {
#pragma unroll
    for (int first = 0; first < kCount; first += kThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      if (first + kThreads <= kCount || i < kCount) body(i);
    }
  }

  /// What a lane has of kAhead neighbouring tokens, in memory. All of it is loaded at once.
  struct Run {
    int buckets[kAhead];  // -1 for lanes without a slot, and behind the last token
    uint32_t weights[kAhead];

    /// All lanes of the warp call it.
    __device__ __forceinline__ Run(const contract::RouteParams& params, int token, int last, bool with_weights) {
      const int lane = threadIdx.x % 32;
      const int64_t pair = int64_t{token} * kTopK + lane;
      const int32_t* const ids = params.ids + pair;
      const float* const weights_of_slots = params.weights + pair;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const bool has = token + i < last && lane < kTopK;
        buckets[i] = static_cast<int>(ptx::ld_global_u32_if(ids + i * kTopK, has));
        if (!has) buckets[i] = -1;
        weights[i] = ptx::ld_global_u32_if(weights_of_slots + i * kTopK, has && with_weights);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) buckets[i] = bucket_of(params, kGiven ? valid(buckets[i]) : buckets[i]);
    }
    static __device__ __forceinline__ int valid(int expert) {
      if (static_cast<uint32_t>(expert) >= kExperts) expert = -1;
      const uint32_t alike = __match_any_sync(kAllLanes, expert);
      return __ffs(static_cast<int>(alike)) - 1 == threadIdx.x % 32 ? expert : -1;
    }
  };
  static __device__ __forceinline__ void count_pair(int32_t* counters, int bucket) {
    if (bucket >= 0) atomicAdd(&counters[bucket], 1);
  }

  /// -1: the expert's rows are not sorted here.
  static __device__ __forceinline__ int bucket_of(const contract::RouteParams& params, int expert) {
    if (!kMapped || expert < 0) return expert;
    const int local = ptx::ld_global_s32(params.local_ids + expert);
    return local < kBuckets ? local : -1;
  }
  static __device__ __forceinline__ int aligned(int count) {
    return (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  /// Rows before those of this thread's experts, in whole alignments.
  __device__ __forceinline__ int rows_before(int own) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int sum = running_sum(own, lane);
    if (lane == 31) sums_[warp] = sum;
    __syncthreads();
    int before = sum - own;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) before += i < warp ? sums_[i] : 0;
    return before;
  }

  __device__ __forceinline__ void count_becomes_rows(const contract::RouteParams& params) {
    const int first = static_cast<int>(threadIdx.x) * kOfThread;
    int own = 0;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) own += first + i < kBuckets ? aligned(all_[first + i]) : 0;
    int start = rows_before(own);
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int bucket = first + i;
      if (bucket >= kBuckets) break;
      int row = start + before_[bucket];
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        const int count = of_warp_[warp][bucket];
        of_warp_[warp][bucket] = row;
        row += count;
      }
      const int end = start + aligned(all_[bucket]);
      if (blockIdx.x == 0) write_start(params, bucket, start, start + all_[bucket], end);
      start = end;
    }
  }
  /// Rows from `unused` to `end` have no source.
  static __device__ __forceinline__ void write_start(const contract::RouteParams& params, int bucket, int start,
                                                     int unused, int end) {
    ptx::st_global_u32(params.starts + bucket, static_cast<uint32_t>(start));
    if (bucket == kBuckets - 1) ptx::st_global_u32(params.starts + kBuckets, static_cast<uint32_t>(end));
    if constexpr (kAlignment > 1) {
      for (int row = unused; row < end; ++row) {
        ptx::st_global_u32(params.source_rows + row, 0xffffffffu);
        if (params.sorted_weights) ptx::st_global_u32(params.sorted_weights + row, 0);
      }
    }
  }

  int32_t of_warp_[kWarps][kBuckets];         // pairs of each warp's tokens, then the next row of each
  int32_t all_[kBuckets], before_[kBuckets];  // pairs of all tokens, and of those of CTAs ahead
  int32_t sums_[kWarps];
};

/// The tokens of this warp: a run of the CTA's.
struct TokensOfWarp {
  int first, last;
  __device__ __forceinline__ explicit TokensOfWarp(const contract::RouteParams& params) {
    const int each = params.tokens_per_warp;
    const auto warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    first = static_cast<int>(warp) * each;
    last = first + each < params.tokens ? first + each : params.tokens;
  }
};

}  // namespace kernelwright::policy
