/// The online softmax for threads that have a whole row of scores, as tensor memory gives them: no shuffles. The
/// comments of row_softmax.cuh on `maximum`, kSlack and stale maxima apply here too.
#pragma once

#include "contract/words.h"
#include "policy/exp2_polynomial.cuh"
#include "policy/score_mod.cuh"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// kEmulated: how many of every 16 exponentials a polynomial computes, instead of the special function unit.
/// kNarrow: exponentials become e4m3, which ends at 448 and is coarse below 2^-6. They are multiplied by 2^kLift and
/// then reach 2^8 at most: as far above 2^-6 as the end allows. The sum is multiplied too, so a row's output does not
/// change.
template <Rescale kRescale, int kEmulated, bool kNarrow = false>
class LaneSoftmax {
  static constexpr float kSlack = kRescale == Rescale::kAlways ? 0 : kNarrow ? 2 : 8;  // log2
  static constexpr float kLift = kNarrow ? 8 - kSlack : 0;

 public:
  float maximum = ptx::minus_infinity(), sum = 0;

  /// Adds a sink to the sum before the first tile: a logit without a value.
  __device__ void add_sink(float logit, float scale) {
    if (logit == ptx::minus_infinity()) return;
    maximum = logit * kLog2e / scale;
    sum = kNarrow ? static_cast<float>(1 << static_cast<int>(kLift)) : 1;
  }

  /// Adds a sink behind the last tile, where keys have scales (key_scales.cuh). Returns the factor for the row's
  /// output.
  __device__ float add_last_sink(float logit, float scale) {
    if (logit == ptx::minus_infinity()) return 1;
    const float at = logit * kLog2e / scale, largest = fmaxf(maximum, at);
    const auto weigh = [&](float score) {
      return score == largest ? 1 : ptx::ex2_approx_ftz((score - largest) * scale);
    };
    const float factor = weigh(maximum);
    sum = fmaf(sum, factor, weigh(at) * (kNarrow ? static_cast<float>(1 << static_cast<int>(kLift)) : 1.f));
    maximum = largest;
    return factor;
  }

  /// Takes the largest score of the next tile; a unit of score is `scale` powers of two. Returns the factor for the
  /// row's output and sum so far: 1 unless the maximum moved.
  __device__ __forceinline__ float follow(float largest, float scale) {
    // -inf - -inf is NaN, and NaN > kSlack is false: a row that has seen no key stays as it is.
    if (!((largest - maximum) * scale > kSlack)) return 1;
    const float factor = ptx::ex2_approx_ftz((maximum - largest) * scale);
    maximum = largest;
    sum *= factor;
    return factor;
  }

  /// Added to a score times `scale`, it gives the exponent.
  __device__ float offset(float scale) const {
    if (maximum == ptx::minus_infinity()) return 0;
    return kNarrow ? fmaf(-maximum, scale, kLift) : -maximum * scale;
  }

  /// Turns the scores of columns [kFirst, kFirst + kCount) into exponentials; `offset` as above. The caller adds them
  /// up.
  template <int kFirst, int kCount, int kScores>
  __device__ __forceinline__ static void exponentiate(float (&scores)[kScores], float scale, float offset) {
#pragma unroll
    for (int i = kFirst; i < kFirst + kCount; ++i) {
      const float exponent = fmaf(scores[i], scale, offset);
      scores[i] = i % 16 < kEmulated ? exp2_polynomial(exponent) : ptx::ex2_approx_ftz(exponent);
    }
  }

  /// The softmax over the keys of both. weights: the factors for their outputs. add_last(softmax) adds a sink and
  /// returns the factor for the outputs.
  template <class AddLast>
  __device__ static LaneSoftmax merge(const LaneSoftmax& first, const LaneSoftmax& second, float scale,
                                      float (&weights)[2], const AddLast& add_last) {
    LaneSoftmax merged;
    merged.maximum = fmaxf(first.maximum, second.maximum);
    // A part that saw no key weighs nothing: 2^(-inf - finite). If neither part saw a key, their maxima are equal.
    const auto weigh = [&](const LaneSoftmax& part) {
      return part.maximum == merged.maximum ? 1 : ptx::ex2_approx_ftz((part.maximum - merged.maximum) * scale);
    };
    weights[0] = weigh(first), weights[1] = weigh(second);
    merged.sum = weights[0] * first.sum + weights[1] * second.sum;
    const float kept = add_last(merged), inverse = merged.inverse() * kept;
    weights[0] *= inverse, weights[1] *= inverse;
    return merged;
  }

  /// 1 / sum, or 0 for a row that saw no key.
  __device__ float inverse() const { return sum == 0 ? 0 : 1 / sum; }

  /// The unit of the sum, as a power of two: the maximum, less the lift of exponentials. -inf for a row that saw no
  /// key.
  __device__ float log2_unit(float scale) const { return kNarrow ? maximum * scale - kLift : maximum * scale; }

  /// log2 of the sum of exponentials; -inf for a row that saw no key.
  __device__ float log2_sum(float scale) const {
    return sum == 0 ? ptx::minus_infinity() : maximum * scale + (ptx::lg2_approx_ftz(sum) - kLift);
  }
};

}  // namespace kernelwright::policy
