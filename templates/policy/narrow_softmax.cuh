/// The online softmax of softmax.cuh with the exponentials of integer_softmax.cuh: they are rounded to e4m3, though
/// they are multiplied as f16. So a decode and fp8 products give a row the same weights.
///
/// An exponential is 2^(score * scale - M + kNarrowLift), M = ceil(maximum * scale). An output is divided by the sum of
/// rounded exponentials. The sum of the LSE is of exponentials that are not rounded.
///
/// Warps, and parts of split keys, have references of their own. References differ by whole powers of two, and the
/// rounded exponentials of all keys add up to what divides the row's output. So a part weighs as much as the sum that
/// divided it: its rounded one.
#pragma once

#include "contract/words.h"
#include "mma/sm80.cuh"
#include "policy/integer_reference.cuh"
#include "policy/score_mod.cuh"
#include "policy/softmax.cuh"
#include "ptx/math.cuh"
#include "tile/narrow_float.cuh"

namespace kernelwright::policy {

/// Members and order of calls as in OnlineSoftmax. kLse: the sum of the LSE exists. kKeyScales: keys have scales
/// (key_scales.cuh). There is then one sum, of exponentials that are not rounded.
template <int kRowTiles, bool kLse, int kArch, bool kKeyScales>
class NarrowSoftmax {
  enum : bool { kRounded = !kKeyScales, kUnrounded = kLse || kKeyScales };

 public:
  static constexpr int kRows = 2 * kRowTiles;

  __device__ NarrowSoftmax() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) reference_[r] = ptx::minus_infinity(), unrounded_[r] = 0;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) rounded_[m][e] = 0;
  }

  /// Adds a sink to row r's sums before the first tile: a logit without a value, whose exponential is not rounded.
  /// `mine`: this lane carries the quad's share.
  __device__ void add_sink(int r, float logit, float /*scale*/, bool mine) {
    if (logit == ptx::minus_infinity()) return;
    reference_[r] = ceilf(logit * kLog2e);
    const float weight = ptx::ex2_approx_ftz(fmaf(logit, kLog2e, kNarrowLift - reference_[r]));
    rounded_[r / 2][r % 2 * 2] = weight;  // the product with ones gives the row's sum to all lanes
    if constexpr (kUnrounded) unrounded_[r] = mine ? weight : 0.f;
  }

  /// Adds a sink to row r behind the last tile, where keys have scales. `mine` as above.
  template <int kOutputTiles>
  __device__ void add_last_sink(int r, float logit, float /*scale*/, bool mine,
                                float (&output)[kRowTiles][kOutputTiles][4]) {
    if (logit == ptx::minus_infinity()) return;
    const float reference = fmaxf(reference_[r], ceilf(logit * kLog2e));
    const float factor = power_of_two(reference_[r] - reference);
    reference_[r] = reference;
    const float weight = ptx::ex2_approx_ftz(fmaf(logit, kLog2e, kNarrowLift - reference));
    unrounded_[r] = fmaf(unrounded_[r], factor, mine ? weight : 0.f);
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
      output[r / 2][n][r % 2 * 2] *= factor, output[r / 2][n][r % 2 * 2 + 1] *= factor;
  }

  /// Turns the scores of one tile into exponentials, packed as the A operand of the product with V. A unit of score is
  /// `scale` powers of two. `output` is rescaled if a reference moved.
  template <DType kPacked, int kScoreTiles, int kOutputTiles, class Keys = EqualKeys>
  __device__ __forceinline__ void update(const float (&scores)[kRowTiles][kScoreTiles][4],
                                         uint32_t (&packed)[kRowTiles][kScoreTiles / 2][4],
                                         float (&output)[kRowTiles][kOutputTiles][4], float scale,
                                         const Keys& keys = {}) {
    static_assert(kPacked == DType::kF16, "e4m3 becomes f16 exactly");
    follow(scores, output, scale);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float offset = reference_[r] == ptx::minus_infinity() ? 0 : kNarrowLift - reference_[r];
      float part[2] = {0, 0};
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        const float low = ptx::ex2_approx_ftz(fmaf(scores[r / 2][n][r % 2 * 2], scale, offset));
        const float high = ptx::ex2_approx_ftz(fmaf(scores[r / 2][n][r % 2 * 2 + 1], scale, offset));
        if constexpr (kUnrounded) add_weights(part, low, high, keys, 2 * n);
        packed[r / 2][n / 2][n % 2 * 2 + r % 2] = tile::e4m3_rounded_f16<kArch>(low, high);
      }
      if constexpr (kUnrounded) unrounded_[r] += part[0] + part[1];
    }
    if constexpr (!kRounded) return;
    constexpr uint32_t kOnes[2] = {0x3c003c00, 0x3c003c00};  // f16
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int step = 0; step < kScoreTiles / 2; ++step)
        mma::multiply_accumulate<kPacked>(rounded_[m], packed[m][step], kOnes);
  }

  /// Adds up the quads' sums: afterwards total() is the row's in all four lanes.
  __device__ void finish() {
    if constexpr (kUnrounded) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) unrounded_[r] = sum_of_quad(unrounded_[r]);
    }
  }

  /// Row r's sum that divides the output, or, as sum 1, that of the LSE.
  __device__ float total(int r, int which) const {
    return kRounded && which == 0 ? rounded_[r / 2][r % 2 * 2] : unrounded_[r];
  }

  /// The maximum, base 2, on which row r's exponentials count; -inf for a row that saw no key.
  __device__ float base2_maximum(int r, float /*scale*/) const { return reference_[r] - kNarrowLift; }

 private:
  float reference_[kRows], unrounded_[kRows];
  float rounded_[kRowTiles][4];  // the product of exponentials with ones

  /// Raises references to the maxima of one tile's scores.
  template <int kScoreTiles, int kOutputTiles>
  __device__ __forceinline__ void follow(const float (&scores)[kRowTiles][kScoreTiles][4],
                                         float (&output)[kRowTiles][kOutputTiles][4], float scale) {
    float largest[kRows];
    bool moved = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      largest[r] = ceilf(largest_of_row(scores, r) * scale);
      moved |= largest[r] > reference_[r];  // a row that has seen no key stays as it is
    }
    if (!__any_sync(0xffffffff, moved)) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool grown = largest[r] > reference_[r];
      const float factor = grown ? power_of_two(reference_[r] - largest[r]) : 1;
      if (grown) reference_[r] = largest[r];
      unrounded_[r] *= factor;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = r % 2 * 2 + e;
        rounded_[r / 2][at] *= factor;
#pragma unroll
        for (int n = 0; n < kOutputTiles; ++n) output[r / 2][n][at] *= factor;
      }
    }
  }
};

}  // namespace kernelwright::policy
