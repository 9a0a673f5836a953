/// Merging the parts of split keys: O = sum_s w_s O_s / sum_s w_s with w_s = 2^lse_s. The sums are in the order of the
/// parts, so the result does not depend on the order in which CTAs finish. A part that saw no key has lse -inf and an
/// output of zeros. attention_combine and, in the kernel itself, the CTA that arrives last use this same arithmetic.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "ptx/atomic.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/row_tile.cuh"

namespace kernelwright::policy {

/// One row, merged by one warp. The warp waits for memory, so it issues the loads of kBatch parts before it uses the
/// first. It issues the loads of the first batch before it knows any weight. kDepth: the columns that the warp merges,
/// of the kRowDepth that a row has.
template <int kDepth, int kRowDepth = kDepth>
class MergedRow {
  static constexpr int kVector = kDepth % 128 == 0 ? 4 : 2;                      // columns of one load
  static constexpr int kVectors = (kDepth + 32 * kVector - 1) / (32 * kVector);  // loads of a lane for one part
  static constexpr int kRoom = 64 / (kVector * kVectors);                        // parts that 64 registers hold
  static constexpr int kBatch = kRoom >= 16 ? 16 : 8;  // divides 32, the number of parts that the lanes weigh at a time
  static constexpr bool kRagged = kDepth % (32 * kVector) != 0;

 public:
  float sum[kVectors][kVector] = {};
  float inverse;   // factor for `sum`: 0 for a row that saw no key
  float log2_sum;  // -inf for a row that saw no key

  /// Part s has its kDepth columns at outputs + s * rows * kRowDepth and its base-2 LSE at lses + s * rows. The
  /// columns' address is a multiple of 16 bytes. All lanes take part.
  __device__ __forceinline__ MergedRow(const float* outputs, const float* lses, int64_t rows, int parts, int lane) {
    const auto lse_of = [&](int part) {
      return part < parts ? ptx::ld_global_cg_f32(lses + part * rows) : ptx::minus_infinity();
    };
    const float* part = outputs;
    const int64_t stride = rows * kRowDepth;
    float lse = lse_of(lane), largest = 0, weight = 0, total = 0;
#pragma unroll 1
    for (int first = 0; first < parts; first += kBatch) {
      float held[kBatch][kVectors][kVector];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
          if (first + i < parts && (!kRagged || column_of(j, lane) < kDepth))
            ptx::ld_global_cg(held[i][j], part + column_of(j, lane));
        part += stride;
      }
      if (first == 0) {
        largest = lse;
        bool seen = lse != ptx::minus_infinity();  // some part saw a key; its lse may be NaN, which fmaxf would drop
#pragma unroll 1
        for (int other = lane + 32; other < parts; other += 32) {
          const float other_lse = lse_of(other);
          seen |= other_lse != ptx::minus_infinity();
          largest = fmaxf(largest, other_lse);
        }
        if (!__any_sync(0xffffffff, seen)) break;
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
        if (!(largest > ptx::minus_infinity())) largest = 0;  // the row saw only NaN
      }
      if (first % 32 == 0) {  // each lane weighs one of 32 parts for all lanes
        if (first > 0) lse = lse_of(first + lane);
        weight = ptx::ex2_approx_ftz(lse - largest);
        total += weight;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i >= parts) break;
        const float share = __shfl_sync(0xffffffff, weight, first % 32 + i);
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
#pragma unroll
          for (int e = 0; e < kVector; ++e) sum[j][e] += share * held[i][j][e];
      }
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(0xffffffff, total, distance);
    inverse = total == 0 ? 0 : 1 / total;
    log2_sum = total == 0 ? ptx::minus_infinity() : largest + ptx::lg2_approx_ftz(total);
  }

  /// Stores to the row that begins `offset` elements into `out`.
  template <DType kOut>
  __device__ __forceinline__ void store(void* out, int64_t offset, int lane) const {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int column = column_of(j, lane);
      if (kRagged && column >= kDepth) continue;
#pragma unroll
      for (int e = 0; e < kVector; e += 2)
        tile::store_pair<kOut>(out, offset + column + e, sum[j][e] * inverse, sum[j][e + 1] * inverse);
    }
  }

 private:
  __device__ static int column_of(int j, int lane) { return (j * 32 + lane) * kVector; }
};

/// The base-2 LSE of a row whose parts MergedRow has merged. kApart: parts were weighed by other sums than those of
/// their LSEs. These LSEs lie behind the weights of all parts. `lses`, `rows`: as for MergedRow. All lanes take part.
template <bool kApart, class Merged>
__device__ __forceinline__ float merged_log2_sum(const Merged& merged, const float* lses, int64_t rows, int parts,
                                                 int lane) {
  if constexpr (!kApart) {
    return merged.log2_sum;
  } else {
    lses += parts * rows;
    float largest = ptx::minus_infinity(), total = 0;
#pragma unroll 1
    for (int part = lane; part < parts; part += 32) largest = fmaxf(largest, ptx::ld_global_cg_f32(lses + part * rows));
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
    if (!(largest > ptx::minus_infinity())) largest = 0;  // the row saw no key, or only NaN
#pragma unroll 1
    for (int part = lane; part < parts; part += 32)
      total += ptx::ex2_approx_ftz(ptx::ld_global_cg_f32(lses + part * rows) - largest);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(0xffffffff, total, distance);
    return total == 0 ? ptx::minus_infinity() : largest + ptx::lg2_approx_ftz(total);
  }
}

/// Finds the CTA that arrives last among those that share a word of AttentionParams::merge_counters. The word need not
/// be zeroed, because a count has a tag in its upper 48 bits. No output and no LSE ever has these bits: they are those
/// of two NaNs that no instruction makes. A word without the tag is no count yet. A launch leaves a count of 0, for the
/// next launch and for every replay of a graph. Launches that may overlap have their own workspaces, and so their own
/// counters.
class LastArrival {
  static constexpr unsigned long long kTag = 0x7fa5c3d2ffb60000, kCount = 0xffff;
  unsigned long long* word_;

 public:
  __device__ explicit LastArrival(uint64_t* word) : word_(reinterpret_cast<unsigned long long*>(word)) {}

  /// Makes the word a count of 0 unless it is a count. The thread that will arrive calls it, some time before. If
  /// several CTAs find the same leftovers, one of them succeeds. The exchange of the others fails, because the word is
  /// a count by then and never becomes these leftovers again.
  __device__ void open() const {
    const unsigned long long found = ptx::ld_relaxed_gpu_u64(word_);
    if ((found & ~kCount) != kTag) ptx::atom_cas_relaxed_gpu_u64(word_, found, kTag);
  }

  /// Called by one thread, behind a barrier that follows all writes of the CTA. Returns whether `arrivals` CTAs have
  /// arrived by now. If so, the word is 0 again, and this CTA can read what the other CTAs wrote, behind another
  /// barrier.
  __device__ bool arrive(int arrivals) const {
    const unsigned long long before = ptx::atom_add_acq_rel_gpu_u64(word_, 1);
    const bool last = static_cast<int>(before & kCount) == arrivals - 1;
    if (last) ptx::st_relaxed_gpu_u64(word_, kTag);  // no other CTA arrives any more
    return last;
  }
};

}  // namespace kernelwright::policy
