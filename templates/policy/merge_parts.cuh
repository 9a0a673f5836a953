/// Merging the parts of split keys: O = sum_s w_s O_s / sum_s w_s with w_s = 2^lse_s, in the order of the parts, so
/// that the result does not depend on who finished first. A part that saw no key has lse -inf and an output of zeros.
/// The same arithmetic whether attention_combine does it or, in the kernel itself, the CTA that arrives last.
#pragma once

#include "contract/attention_params.h"
#include "contract/spec_words.h"
#include "ptx/atomic.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/row_tile.cuh"

namespace kernelwright::policy {

/// One row, merged by one warp. What it waits for is memory, so the loads of kBatch parts are issued before the first
/// is used, and those of the first batch before anything is known of the weights.
template <int kDepth>
class MergedRow {
  static constexpr int kVector = kDepth % 128 == 0 ? 4 : 2;                      // columns of one load
  static constexpr int kVectors = (kDepth + 32 * kVector - 1) / (32 * kVector);  // loads of a lane for one part
  static constexpr int kRoom = 64 / (kVector * kVectors);                        // parts that 64 registers hold
  static constexpr int kBatch = kRoom >= 16 ? 16 : 8;  // divides 32, the parts that lanes weigh
  static constexpr bool kRagged = kDepth % (32 * kVector) != 0;

 public:
  float sum[kVectors][kVector] = {};
  float inverse;   // what `sum` is to be multiplied with: 0 for a row that saw no key
  float log2_sum;  // -inf for a row that saw no key

  /// Part s has its kDepth columns at outputs + s * rows * kDepth and its base-2 LSE at lses + s * rows. The columns'
  /// address is a multiple of 16 bytes. All lanes take part.
  __device__ __forceinline__ MergedRow(const float* outputs, const float* lses, int64_t rows, int parts, int lane) {
    const auto lse_of = [&](int part) {
      return part < parts ? ptx::ld_global_cg_f32(lses + part * rows) : ptx::minus_infinity();
    };
    const float* part = outputs;
    const int64_t stride = rows * kDepth;
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
        if (!(largest > ptx::minus_infinity())) largest = 0;  // only NaN was seen
      }
      if (first % 32 == 0) {  // a lane weighs one part of 32 for all
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

  /// To the row that begins `offset` elements into `out`.
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

/// Finds the CTA that arrives last of those that share a word of AttentionParams::merge_counters. A word that holds
/// no count yet says so itself: a count stands behind 48 bits that neither an output nor an LSE ever has, those of two
/// NaNs that no instruction makes. Thus the workspace needs no zeroing, and what a launch leaves behind is a count of
/// 0, fit for the next launch and for every replay of a graph. Launches that may overlap have workspaces of their own,
/// and thereby counters of their own.
class LastArrival {
  static constexpr unsigned long long kTag = 0x7fa5c3d2ffb60000, kCount = 0xffff;
  unsigned long long* word_;

 public:
  __device__ explicit LastArrival(uint64_t* word) : word_(reinterpret_cast<unsigned long long*>(word)) {}

  /// By the thread that will arrive, some time before: makes the word a count of 0 unless it is a count. Of several
  /// CTAs that find the same leftovers one succeeds; the others' exchange fails, for the word is a count by then and
  /// never becomes those leftovers again.
  __device__ void open() const {
    const unsigned long long found = ptx::ld_relaxed_gpu_u64(word_);
    if ((found & ~kCount) != kTag) ptx::atom_cas_relaxed_gpu_u64(word_, found, kTag);
  }

  /// By one thread, behind a barrier behind all that the CTA has written: whether `arrivals` have come by now. If so
  /// the word is 0 again, and what the other CTAs wrote can be read behind another barrier.
  __device__ bool arrive(int arrivals) const {
    const unsigned long long before = ptx::atom_add_acq_rel_gpu_u64(word_, 1);
    const bool last = static_cast<int>(before & kCount) == arrivals - 1;
    if (last) ptx::st_relaxed_gpu_u64(word_, kTag);  // nobody else comes
    return last;
  }
};

}  // namespace kernelwright::policy
