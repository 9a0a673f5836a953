/// The online softmax where a thread has a whole row of scores, as tensor memory hands them out: no shuffles. What
/// row_softmax.cuh says of `maximum`, kSlack and stale maxima holds here, too.
#pragma once

#include "contract/spec_words.h"
#include "policy/exp2_polynomial.cuh"
#include "policy/score_mod.cuh"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// kEmulated: exponentials of every 16 that a polynomial does, off the special function unit.
/// kNarrow: exponentials become e4m3, which ends at 448 and is coarse below 2^-6. They are lifted by kLift powers of
/// two, 2^8 at most, as far from there as that allows; the sum is lifted too, and a row's output does not tell.
template <Rescale kRescale, int kEmulated, bool kNarrow = false>
class LaneSoftmax {
  static constexpr float kSlack = kRescale == Rescale::kAlways ? 0 : kNarrow ? 2 : 8;  // log2
  static constexpr float kLift = kNarrow ? 8 - kSlack : 0;

 public:
  float maximum = ptx::minus_infinity(), sum = 0;

  /// A sink joins the sum before the first tile: a logit without a value.
  __device__ void add_sink(float logit, float scale) {
    if (logit == ptx::minus_infinity()) return;
    maximum = logit * kLog2e / scale;
    sum = kNarrow ? static_cast<float>(1 << static_cast<int>(kLift)) : 1;
  }

  /// Takes the largest score of the next tile, `scale` powers of two per unit. What the row's output and sum so far are
  /// to be multiplied with: 1 unless the maximum moved.
  __device__ __forceinline__ float follow(float largest, float scale) {
    // -inf - -inf is NaN, and NaN > kSlack is false: a row that has seen nothing stays as it is.
    if (!((largest - maximum) * scale > kSlack)) return 1;
    const float factor = ptx::ex2_approx_ftz((maximum - largest) * scale);
    maximum = largest;
    sum *= factor;
    return factor;
  }

  /// What is added to a score times `scale` to make it the exponent.
  __device__ float offset(float scale) const {
    if (maximum == ptx::minus_infinity()) return 0;
    return kNarrow ? fmaf(-maximum, scale, kLift) : -maximum * scale;
  }

  /// Scores of columns [kFirst, kFirst + kCount) become exponentials; `offset` as above. The caller adds them up.
  template <int kFirst, int kCount, int kScores>
  __device__ __forceinline__ static void exponentiate(float (&scores)[kScores], float scale, float offset) {
#pragma unroll
    for (int i = kFirst; i < kFirst + kCount; ++i) {
      const float exponent = fmaf(scores[i], scale, offset);
      scores[i] = i % 16 < kEmulated ? exp2_polynomial(exponent) : ptx::ex2_approx_ftz(exponent);
    }
  }

  /// The softmax of both's keys. weights: what their outputs are to be multiplied with.
  __device__ static LaneSoftmax merge(const LaneSoftmax& first, const LaneSoftmax& second, float scale,
                                      float (&weights)[2]) {
    LaneSoftmax merged;
    merged.maximum = fmaxf(first.maximum, second.maximum);
    // A part that saw nothing weighs nothing: 2^(-inf - finite). If neither saw a key their maxima are equal.
    const auto weigh = [&](const LaneSoftmax& part) {
      return part.maximum == merged.maximum ? 1 : ptx::ex2_approx_ftz((part.maximum - merged.maximum) * scale);
    };
    weights[0] = weigh(first), weights[1] = weigh(second);
    merged.sum = weights[0] * first.sum + weights[1] * second.sum;
    const float inverse = merged.inverse();
    weights[0] *= inverse, weights[1] *= inverse;
    return merged;
  }

  /// 1 / sum, or 0 for a row that saw no key.
  __device__ float inverse() const { return sum == 0 ? 0 : 1 / sum; }

  /// What the sum counts in, as a power of two: the maximum, less what exponentials are lifted by. -inf for a row that
  /// saw no key.
  __device__ float log2_unit(float scale) const { return kNarrow ? maximum * scale - kLift : maximum * scale; }

  /// log2 of the sum of exponentials; -inf for a row that saw no key.
  __device__ float log2_sum(float scale) const {
    return sum == 0 ? ptx::minus_infinity() : maximum * scale + (ptx::lg2_approx_ftz(sum) - kLift);
  }
};

}  // namespace kernelwright::policy
