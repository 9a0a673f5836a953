/// The online softmax of Milakov and Gimelshein (arXiv:1805.02867) on wgmma accumulators, in steps that a pipeline can
/// put between its products. exponentiate() runs while O += P V of the step before still runs. rescale() runs once that
/// product has ended.
///
/// A thread holds rows l/4 and l/4 + 8 of its warp's 16; registers 4j + 2r + e are columns 8j + 2(l%4) + e of row r.
/// `maximum` is the same in the four lanes of a quad; `sum` is the thread's own part until finish().
///
/// The maximum is in score units and may be stale. With Rescale::kLazy it moves only once a score of the row exceeds it
/// by kSlack powers of two (the trick is FlashAttention-4's). Exponentials then reach 2^kSlack, exact after the
/// division by the sum, and most tiles rescale nothing.
#pragma once

#include "contract/words.h"
#include "policy/exp2_polynomial.cuh"
#include "policy/key_scales.cuh"
#include "policy/quad_rows.cuh"
#include "policy/row_scales.cuh"
#include "policy/score_mod.cuh"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// kEmulated: how many of every 16 exponentials a polynomial computes, instead of the special function unit.
template <Rescale kRescale, int kEmulated>
class RowSoftmax {
  // log2; bf16 and f16 hold 2^8, and f32 sums lose nothing.
  static constexpr float kSlack = kRescale == Rescale::kAlways ? 0 : 8;

 public:
  float maximum[2], sum[2];
  float factor[2];  // factor for O, if `moved`
  bool moved;       // a maximum of some row of the warp moved; the same in all lanes

  __device__ RowSoftmax() {
#pragma unroll
    for (int r = 0; r < 2; ++r) maximum[r] = ptx::minus_infinity(), sum[r] = 0, factor[r] = 1;
  }

  /// Adds a sink to row r's sum before the first tile: a logit without a value. `mine`: this lane carries the quad's
  /// share.
  template <class Scale>
  __device__ void add_sink(int r, float logit, Scale scale, bool mine) {
    if (logit == ptx::minus_infinity()) return;
    maximum[r] = logit * kLog2e / scale_of(scale, r);
    sum[r] = mine ? unit_of(scale) : 0.f;
  }

  /// Adds a sink to row r behind the last tile, where keys have scales (key_scales.cuh). `mine` as above.
  template <class Scale, int kCount>
  __device__ void add_last_sink(int r, float logit, Scale scale, bool mine, float (&output)[kCount]) {
    if (logit == ptx::minus_infinity()) return;
    const float at = logit * kLog2e / scale_of(scale, r), largest = fmaxf(maximum[r], at);
    const float factor = ptx::ex2_approx_ftz((maximum[r] - largest) * scale_of(scale, r));
    const float weight = ptx::ex2_approx_ftz((at - largest) * scale_of(scale, r)) * unit_of(scale);
    maximum[r] = largest;
    sum[r] = fmaf(sum[r], factor, mine ? weight : 0.f);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i / 2 % 2 == r) output[i] *= factor;
  }

  /// Turns the scores of one tile into exponentials; a unit of score is `scale` powers of two: a float, or
  /// RowScales. The exponentials are added to the sum before they are rounded, over the scales of the keys' values. A
  /// row depends on its own maximum only: the other rows of the warp do not change its result.
  template <int kCount, class Scale, class Keys>
  __device__ __forceinline__ void exponentiate(float (&scores)[kCount], Scale scale, const Keys& keys) {
    float largest[2];
    largest_of_rows(scores, largest, [&](int r, float score) { return fmaxf(score, maximum[r]); });
    // -inf - -inf is NaN, and NaN > kSlack is false: a row that has seen no key stays as it is.
    const auto grown = [&](int r) { return (largest[r] - maximum[r]) * scale_of(scale, r) > kSlack; };
    moved = __any_sync(0xffffffff, grown(0) || grown(1));
    if (moved) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        factor[r] = grown(r) ? ptx::ex2_approx_ftz((maximum[r] - largest[r]) * scale_of(scale, r)) : 1;
        if (grown(r)) maximum[r] = largest[r];
        sum[r] *= factor[r];
      }
    }
    float offset[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      offset[r] = maximum[r] == ptx::minus_infinity() ? 0 : base2_offset(maximum[r], scale, r);
    float part[2][2] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int r = i / 2 % 2;
      const float exponent = fmaf(scores[i], scale_of(scale, r), offset[r]);
      scores[i] = i % 16 < kEmulated ? exp2_polynomial(exponent) : ptx::ex2_approx_ftz(exponent);
      if constexpr (!Keys::differ) part[r][i % 2] += scores[i];
    }
    if constexpr (Keys::differ) {
#pragma unroll
      for (int column = 0; column < kCount / 2; ++column) {
        const float inverse = keys.inverse(column);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          part[r][column % 2] = fmaf(scores[column / 2 * 4 + r * 2 + column % 2], inverse, part[r][column % 2]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] += part[r][0] + part[r][1];
  }

  /// Multiplies the sums so far by their factors, if any row of the warp needs it.
  template <int kCount>
  __device__ __forceinline__ void rescale(float (&output)[kCount]) const {
    if (!moved) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) output[i] *= factor[i / 2 % 2];
  }

  /// Adds up the quads' sums: afterwards `sum` is the row's in all four lanes.
  __device__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
    }
  }

  /// 1 / sum, or 0 for a row that saw no key.
  __device__ float inverse(int r) const { return sum[r] == 0 ? 0 : 1 / sum[r]; }

  /// log2 of the sum of exponentials; -inf for a row that saw no key.
  template <class Scale>
  __device__ float log2_sum(int r, Scale scale) const {
    return sum[r] == 0 ? ptx::minus_infinity() : base2_maximum(maximum[r], scale, r) + ptx::lg2_approx_ftz(sum[r]);
  }
};

}  // namespace kernelwright::policy
