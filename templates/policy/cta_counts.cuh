/// Pairs that each CTA has for each expert, in global memory: a row for each CTA. The CTAs of the next launch add the
/// rows. They all need the sums over all CTAs, and each the sums over the CTAs ahead of it.
///
/// WordCounts has 32 bits a number, and threads meet in atomic additions. ShortCounts has 16 bits, adds two numbers at
/// once, and threads meet in shared memory.
#pragma once

#include "contract/route.h"
#include "policy/either.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// Every thread of the CTA calls add_rows(), which adds to the experts' numbers `all` and `before` in shared memory,
/// and ends with a barrier. The caller synchronises the CTA after it has set these to zero. meanwhile() is called once,
/// ahead of the barrier.
template <int kBuckets, int kWarps>
class WordCounts {
  enum : int { kThreads = 32 * kWarps };

 public:
  enum : int { kRow = contract::route_count_row(kBuckets, false) };

  /// The `i`-th number of this CTA's row.
  static __device__ __forceinline__ void write(const contract::RouteParams& params, int i, int count) {
    ptx::st_global_u32(static_cast<uint32_t*>(params.counts) + int64_t{blockIdx.x} * kRow + i,
                       static_cast<uint32_t>(count));
  }

  /// Four experts a thread; threads share out the rows.
  template <class Meanwhile>
  static __device__ __forceinline__ void add_rows(const contract::RouteParams& params, int32_t (&all)[kBuckets],
                                                  int32_t (&before)[kBuckets], const Meanwhile& meanwhile) {
    meanwhile();
    constexpr int kVectors = kRow / 4, kRowsAtOnce = kThreads / kVectors;
    const int column = threadIdx.x % kVectors * 4;
    int of_all[4] = {}, of_before[4] = {};
    if (threadIdx.x < kRowsAtOnce * kVectors) {
#pragma unroll 8
      for (int cta = threadIdx.x / kVectors; cta < gridDim.x; cta += kRowsAtOnce) {
        const ptx::Vector16 counts =
            ptx::ld_global_v4(static_cast<const uint32_t*>(params.counts) + int64_t{cta} * kRow + column);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          of_all[i] += static_cast<int>(counts.word[i]);
          of_before[i] += cta < blockIdx.x ? static_cast<int>(counts.word[i]) : 0;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (of_all[i] != 0) atomicAdd(&all[column + i], of_all[i]);
      if (of_before[i] != 0) atomicAdd(&before[column + i], of_before[i]);
    }
    __syncthreads();
  }
};

/// The same with 16 bits a number. A CTA has at most contract::kMostTokensOfShortCounts tokens.
template <int kBuckets, int kWarps>
class ShortCounts {
  enum : int {
    kThreads = 32 * kWarps,
    kVectors = contract::route_count_row(kBuckets, true) / 8,  // of a row; a thread loads one
    kPairs = 4 * kVectors,                                     // words, which have two experts each
    kSharers = contract::route_count_sharers(kBuckets, kThreads),
    kRowsOfThread = contract::kRowsOfShortSum,
    kRowsAtOnce = kSharers * kRowsOfThread
  };

 public:
  enum : int { kRow = 8 * kVectors };

  static __device__ __forceinline__ void write(const contract::RouteParams& params, int i, int count) {
    ptx::st_global_u16(static_cast<uint16_t*>(params.counts) + int64_t{blockIdx.x} * kRow + i,
                       static_cast<uint16_t>(count));
  }

  /// kSharers threads have a column of eight experts. No sum of a thread has more than 16 bits. meanwhile() runs while
  /// rows are on their way.
  template <class Meanwhile>
  __device__ __forceinline__ void add_rows(const contract::RouteParams& params, int32_t (&all)[kBuckets],
                                           int32_t (&before)[kBuckets], const Meanwhile& meanwhile) {
    for (int first = 0; first < gridDim.x; first += kRowsAtOnce) {
      const Rows rows(params, first);
      if (first == 0) meanwhile();
      rows.add(first, sums_);
      __syncthreads();
      for (int i = threadIdx.x; i < 2 * kPairs; i += kThreads) {
        const int of = i / kPairs, pair = i % kPairs;
        add_sharers(sums_[of], pair, of == 0 ? all : before);
      }
      __syncthreads();
    }
  }

 private:
  using Sums = ptx::Vector16[2][kSharers][kVectors];  // of all CTAs, and of those ahead

  /// A thread's vectors: of every kSharers-th row.
  struct Rows {
    const int sharer = threadIdx.x / kVectors, vector = threadIdx.x % kVectors;
    ptx::Vector16 rows[kRowsOfThread];

    __device__ __forceinline__ Rows(const contract::RouteParams& params, int first) {
      const int cta = first + sharer;
      const uint16_t* const counts = static_cast<const uint16_t*>(params.counts) + int64_t{cta} * kRow + vector * 8;
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i)
        rows[i] =
            ptx::ld_global_v4_if(counts + i * (kSharers * kRow), sharer < kSharers && cta + i * kSharers < gridDim.x);
    }
    __device__ __forceinline__ void add(int first, Sums& sums) const {
      ptx::Vector16 all{}, before{};
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i) {
        const bool is_before = first + sharer + i * kSharers < blockIdx.x;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          all.word[word] += rows[i].word[word];
          before.word[word] += is_before ? rows[i].word[word] : 0;
        }
      }
      if (sharer < kSharers) sums[0][sharer][vector] = all, sums[1][sharer][vector] = before;
    }
  };

  static __device__ __forceinline__ void add_sharers(const ptx::Vector16 (&sums)[kSharers][kVectors], int pair,
                                                     int32_t (&to)[kBuckets]) {
    int low = 0, high = 0;
#pragma unroll
    for (int sharer = 0; sharer < kSharers; ++sharer) {
      const uint32_t sum = sums[sharer][pair / 4].word[pair % 4];
      low += static_cast<int>(sum & 0xffffu);
      high += static_cast<int>(sum >> 16);
    }
    if (2 * pair < kBuckets) to[2 * pair] += low;
    if (2 * pair + 1 < kBuckets) to[2 * pair + 1] += high;
  }

  Sums sums_;
};

template <bool kShort, int kBuckets, int kWarps>
using CtaCounts = typename Either<kShort, ShortCounts<kBuckets, kWarps>, WordCounts<kBuckets, kWarps>>::type;

}  // namespace kernelwright::policy
