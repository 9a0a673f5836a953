/// A stable counting sort of (token, slot) pairs by expert. Pairs are in order of their tokens, then of their slots.
///
/// A CTA has neighbouring tokens, and each of its warps a run of them. A token has an expert at most once. So the lanes
/// that have its slots count in different words, and no atomic operation is needed. Counts become rows: the experts
/// before, the CTAs before, the warps before. Then each warp walks its tokens once more and takes one row after
/// another.
#pragma once

#include "contract/route.h"
#include "policy/head_vector.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// Where experts are given, a number outside of them has no row. Nor has an expert that a lower slot of the token has.
///
/// Lives in shared memory. Every thread of the CTA calls all functions but count().
template <int kExperts, int kBuckets, int kTopK, int kWarps, int kAlignment, bool kMapped, bool kGiven>
class ExpertSort {
 public:
  enum : int { kThreads = 32 * kWarps };

  /// The caller synchronises the CTA before the first count.
  __device__ __forceinline__ void clear() {
    for (int i = threadIdx.x; i < kWarps * kBuckets; i += kThreads) of_warp_[i / kBuckets][i % kBuckets] = 0;
    for (int i = threadIdx.x; i < kBuckets; i += kThreads) all_[i] = before_[i] = 0;
  }

  /// The expert of the lane's slot, in memory; -1 for lanes without one. All lanes of the warp call it.
  static __device__ __forceinline__ int expert_of(const contract::RouteParams& params, int token) {
    const int lane = threadIdx.x % 32;
    int expert = lane < kTopK ? ptx::ld_global_s32(params.ids + int64_t{token} * kTopK + lane) : -1;
    if constexpr (kGiven) {
      if (static_cast<uint32_t>(expert) >= kExperts) expert = -1;
      const uint32_t alike = __match_any_sync(kAllLanes, expert);
      if (__ffs(static_cast<int>(alike)) - 1 != lane) expert = -1;
    }
    return expert;
  }

  /// One token of the warp, whose lanes have its slots. `expert` is that of the lane's slot.
  __device__ __forceinline__ void count(const contract::RouteParams& params, int expert) {
    const int bucket = bucket_of(params, expert);
    if (bucket >= 0) ++of_warp_[threadIdx.x / 32][bucket];
    __syncwarp();
  }

  /// What all warps have counted becomes this CTA's row of params.counts.
  __device__ __forceinline__ void write_counts(const contract::RouteParams& params) const {
    const int64_t row = int64_t{blockIdx.x} * contract::route_count_stride(kBuckets);
    for (int i = threadIdx.x; i < contract::route_count_stride(kBuckets); i += kThreads)
      ptx::st_global_u32(params.counts + row + i, i < kBuckets ? of_warps(i) : 0);
  }
  /// This CTA has all tokens.
  __device__ __forceinline__ void take_counts() {
    for (int i = threadIdx.x; i < kBuckets; i += kThreads) all_[i] = of_warps(i);
    __syncthreads();
  }
  /// Adds the rows of all CTAs, and of those ahead of this one. Four experts a thread; threads share out the rows.
  __device__ __forceinline__ void read_counts(const contract::RouteParams& params) {
    constexpr int kVectors = contract::route_count_stride(kBuckets) / 4, kRowsAtOnce = kThreads / kVectors;
    const int column = threadIdx.x % kVectors * 4;
    int all[4] = {}, before[4] = {};
    if (threadIdx.x < kRowsAtOnce * kVectors) {
#pragma unroll 8
      for (int cta = threadIdx.x / kVectors; cta < gridDim.x; cta += kRowsAtOnce) {
        const ptx::Vector16 counts = ptx::ld_global_v4(params.counts + int64_t{cta} * (4 * kVectors) + column);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          all[i] += static_cast<int>(counts.word[i]);
          before[i] += cta < blockIdx.x ? static_cast<int>(counts.word[i]) : 0;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (all[i] != 0) atomicAdd(&all_[column + i], all[i]);
      if (before[i] != 0) atomicAdd(&before_[column + i], before[i]);
    }
    __syncthreads();
  }

  /// After take_counts() or read_counts(): first rows, and the pairs of this CTA's tokens from `first` to `last` of
  /// each warp. Counts are used up.
  __device__ __forceinline__ void place(const contract::RouteParams& params, int first, int last) {
    count_becomes_rows(params);
    __syncthreads();
    const int lane = threadIdx.x % 32;
    int32_t* const next = of_warp_[threadIdx.x / 32];
    for (int token = first; token < last; ++token) {
      const int64_t pair = int64_t{token} * kTopK + lane;
      const int bucket = bucket_of(params, expert_of(params, token));
      const int row = bucket >= 0 ? next[bucket]++ : -1;
      if (lane < kTopK) ptx::st_global_u32(params.positions + pair, static_cast<uint32_t>(row));
      if (row >= 0) {
        ptx::st_global_u32(params.source_rows + row, static_cast<uint32_t>(token));
        if (params.sorted_weights)
          ptx::st_global_u32(params.sorted_weights + row, __float_as_uint(ptx::ld_global_f32(params.weights + pair)));
      }
      __syncwarp();
    }
  }

 private:
  enum : int { kOfThread = (kBuckets + kThreads - 1) / kThreads };

  /// -1: the expert's rows are not sorted here.
  static __device__ __forceinline__ int bucket_of(const contract::RouteParams& params, int expert) {
    if (!kMapped || expert < 0) return expert;
    const int local = ptx::ld_global_s32(params.local_ids + expert);
    return local < kBuckets ? local : -1;
  }
  static __device__ __forceinline__ int aligned(int count) {
    return (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  __device__ __forceinline__ int of_warps(int bucket) const {
    int sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += of_warp_[warp][bucket];
    return sum;
  }

  /// Rows before those of this thread's experts, in whole alignments.
  __device__ __forceinline__ int rows_before(int own) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += other;
    }
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
  __device__ __forceinline__ TokensOfWarp(const contract::RouteParams& params, int warps) {
    const int each = params.tokens_per_cta / warps;
    first = static_cast<int>(blockIdx.x) * params.tokens_per_cta + static_cast<int>(threadIdx.x / 32) * each;
    last = first + each < params.tokens ? first + each : params.tokens;
  }
};

}  // namespace kernelwright::policy
