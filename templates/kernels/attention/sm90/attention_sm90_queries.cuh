/// Rows of bf16 queries over fp8 keys. A math warpgroup of attention_sm90 splits them into two terms of e4m3, in the
/// slot where TMA has put them, once in an item (policy/row_scales.cuh). A row's high terms fill the first half of its
/// bytes, and its low terms the other half.
#pragma once

#include "kernels/attention/sm90/attention_sm90_rows.cuh"
#include "policy/row_scales.cuh"
#include "ptx/barrier.cuh"

namespace kernelwright {
namespace {

enum : bool {
  // Modifiers, single keys and their scales take scores as they are; else the factors of rows join the softmax's scale.
  kFoldsFactors = spec::kScoreMod == ScoreModKind::kNone && !OpenRow::exists && !kKeyScales
};

/// What the thread's two rows were divided by. A base class: without it, it takes no room.
template <bool kExists>
class QueryFactors {
  policy::RowScales<2> factors_;

 protected:
  using ExponentScale = policy::RowScales<2>;  // of scores

  /// Makes the warpgroup's rows operands; `first_row` is the address of its first one. All of its threads call it. A
  /// quad has the two rows of which it holds scores.
  __device__ __forceinline__ void prepare_queries(uint32_t first_row, uint32_t warpgroup) {
    const uint32_t thread = ptx::opaque(threadIdx.x), quad = thread % 4, row = thread / 32 % 4 * 16 + thread % 32 / 4;
    // Two pieces of 16 bytes of bf16 become a piece of either term. A last slab of terms may have had no bf16.
    constexpr uint32_t kPairs = shape().qk_row() / contract::kPieceBytes / 2, kShare = (kPairs + 3) / 4;
    constexpr uint32_t kLoaded = kSlabsQk * kRowPieces / 2;  // pairs
    const auto within = [&](uint32_t pair, uint32_t count) { return count % 4 == 0 || pair < count; };
#pragma unroll 1  // code of one row takes NVRTC half of the time
    for (uint32_t r = 0; r < 2; ++r) {
      const uint32_t mine = row + r * 8;
      const auto place = [&](uint32_t piece) {
        return first_row + piece / kRowPieces * kQuerySlabBytes + mine * kRowBytes +
               (piece % kRowPieces ^ contract::swizzle_of_row(mine, spec::kSwizzleBytes)) * 16;
      };
      ptx::Vector16 pieces[kShare][2] = {};
      uint32_t largest = 0;
#pragma unroll
      for (uint32_t i = 0; i < kShare; ++i) {
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          if (i * 4 < kLoaded && within(i * 4 + quad, kLoaded))
            pieces[i][half] = ptx::ld_shared_v4(place((i * 4 + quad) * 2 + half));
#pragma unroll
          for (const uint32_t word : pieces[i][half].word) largest = policy::largest_of(largest, word);
        }
      }
      largest = max(largest, __shfl_xor_sync(0xffffffff, largest, 1));
      largest = max(largest, __shfl_xor_sync(0xffffffff, largest, 2));
      const policy::QueryTerms terms(largest);
      __syncwarp();  // all lanes have read the row
#pragma unroll
      for (uint32_t i = 0; i < kShare; ++i) {
        ptx::Vector16 high, low;
#pragma unroll
        for (uint32_t w = 0; w < 4; ++w) {
          const ptx::Vector16& piece = pieces[i][w / 2];
          terms.split(piece.word[w % 2 * 2], piece.word[w % 2 * 2 + 1], high.word[w], low.word[w]);
        }
        if (within(i * 4 + quad, kPairs)) {
          ptx::st_shared_v4(place(i * 4 + quad), high);
          ptx::st_shared_v4(place(kPairs + i * 4 + quad), low);
        }
      }
      factors_.of[1] = terms.factor();
      if (r == 0) factors_.of[0] = factors_.of[1];
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(kStageBarrier + warpgroup, 128);
  }

  /// What the softmax multiplies scores by, if it multiplies those of other queries by `exponent_scale`.
  __device__ __forceinline__ ExponentScale exponent_scales(float exponent_scale) const {
    ExponentScale scales;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      scales.of[r] = kFoldsFactors ? policy::scale_of_normalised(factors_.of[r], exponent_scale) : exponent_scale;
    return scales;
  }
  template <class Scores>
  __device__ __forceinline__ void take_factors(const Scores& scores) const {
    if constexpr (!kFoldsFactors) policy::multiply_rows(scores, factors_);
  }
};

template <>
class QueryFactors<false> {
 protected:
  using ExponentScale = float;
  __device__ __forceinline__ static void prepare_queries(uint32_t, uint32_t) {}
  __device__ __forceinline__ static float exponent_scales(float exponent_scale) { return exponent_scale; }
  template <class Scores>
  __device__ __forceinline__ static void take_factors(const Scores&) {}
};

}  // namespace
}  // namespace kernelwright
