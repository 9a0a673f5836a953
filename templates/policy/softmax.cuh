/// The online softmax of Milakov and Gimelshein (arXiv:1805.02867) on MMA accumulators.
///
/// A thread holds rows l/4 and l/4 + 8 of each of kRowTiles m16 tiles. It has the statistics of these kRows = 2
/// kRowTiles rows, which the four lanes of a quad share. `maximum` is the same in all four; `sum` is the thread's own
/// part until finish().
///
/// The maximum is in score units and may be stale. With Rescale::kLazy it moves only when a score of some row of the
/// warp exceeds it by kSlack powers of two (the trick is FlashAttention-4's). Exponentials then reach 2^kSlack, exact
/// after the division by the sum, and most tiles rescale nothing.
#pragma once

#include "contract/words.h"
#include "policy/key_scales.cuh"
#include "policy/row_scales.cuh"
#include "policy/score_mod.cuh"
#include "ptx/math.cuh"
#include "tile/element.cuh"

namespace kernelwright::policy {

/// Row r's largest score of one tile, the same in the four lanes of a quad.
template <int kRowTiles, int kScoreTiles>
__device__ __forceinline__ float largest_of_row(const float (&scores)[kRowTiles][kScoreTiles][4], int r) {
  float largest = ptx::minus_infinity();
#pragma unroll
  for (int n = 0; n < kScoreTiles; ++n)
    largest = fmaxf(largest, fmaxf(scores[r / 2][n][r % 2 * 2], scores[r / 2][n][r % 2 * 2 + 1]));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
}

/// The sum of a quad's four shares, the same in all four lanes.
__device__ __forceinline__ float sum_of_quad(float share) {
  share += __shfl_xor_sync(0xffffffff, share, 1);
  return share + __shfl_xor_sync(0xffffffff, share, 2);
}

template <int kRowTiles, Rescale kRescale>
class OnlineSoftmax {
  static constexpr float kSlack = 8;  // log2; bf16 and f16 hold 2^8, and f32 sums lose nothing

 public:
  static constexpr int kRows = 2 * kRowTiles;
  float maximum[kRows];
  float sum[kRows];

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) maximum[r] = ptx::minus_infinity(), sum[r] = 0;
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
  template <class Scale, int kOutputTiles>
  __device__ void add_last_sink(int r, float logit, Scale scale, bool mine,
                                float (&output)[kRowTiles][kOutputTiles][4]) {
    if (logit == ptx::minus_infinity()) return;
    const float at = logit * kLog2e / scale_of(scale, r), largest = fmaxf(maximum[r], at);
    const float factor = ptx::ex2_approx_ftz((maximum[r] - largest) * scale_of(scale, r));
    const float weight = ptx::ex2_approx_ftz((at - largest) * scale_of(scale, r)) * unit_of(scale);
    maximum[r] = largest;
    sum[r] = fmaf(sum[r], factor, mine ? weight : 0.f);
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
      output[r / 2][n][r % 2 * 2] *= factor, output[r / 2][n][r % 2 * 2 + 1] *= factor;
  }

  /// Turns the scores of one tile into exponentials, packed as the A operand of the product with V. A unit of score is
  /// `scale` powers of two: a float, or RowScales. `output` is rescaled if a maximum moved. The exponentials are added
  /// to the sum before they are rounded, over the scales of the keys' values.
  template <DType kPacked, int kScoreTiles, int kOutputTiles, class Scale, class Keys = EqualKeys>
  __device__ __forceinline__ void update(const float (&scores)[kRowTiles][kScoreTiles][4],
                                         uint32_t (&packed)[kRowTiles][kScoreTiles / 2][4],
                                         float (&output)[kRowTiles][kOutputTiles][4], Scale scale,
                                         const Keys& keys = {}) {
    float tile_maximum[kRows];
    bool moved = kRescale == Rescale::kAlways;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      tile_maximum[r] = fmaxf(maximum[r], largest_of_row(scores, r));
      // -inf - -inf is NaN, and NaN > kSlack is false: a row that has seen no key stays as it is.
      moved |= (tile_maximum[r] - maximum[r]) * scale_of(scale, r) > kSlack;
    }
    if (__any_sync(0xffffffff, moved)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float factor = tile_maximum[r] == ptx::minus_infinity()
                                 ? 1
                                 : ptx::ex2_approx_ftz((maximum[r] - tile_maximum[r]) * scale_of(scale, r));
        maximum[r] = tile_maximum[r];
        sum[r] *= factor;
#pragma unroll
        for (int n = 0; n < kOutputTiles; ++n)
          output[r / 2][n][r % 2 * 2] *= factor, output[r / 2][n][r % 2 * 2 + 1] *= factor;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float offset = maximum[r] == ptx::minus_infinity() ? 0 : policy::base2_maximum(maximum[r], scale, r);
      float part[2] = {0, 0};
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        const float low = ptx::ex2_approx_ftz(fmaf(scores[r / 2][n][r % 2 * 2], scale_of(scale, r), -offset));
        const float high = ptx::ex2_approx_ftz(fmaf(scores[r / 2][n][r % 2 * 2 + 1], scale_of(scale, r), -offset));
        add_weights(part, low, high, keys, 2 * n);
        packed[r / 2][n / 2][n % 2 * 2 + r % 2] = tile::Element<kPacked>::pack(low, high);
      }
      sum[r] += part[0] + part[1];
    }
  }

  /// Adds up the quads' sums: afterwards `sum` is the row's in all four lanes.
  __device__ void finish() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum[r] = sum_of_quad(sum[r]);
  }

  /// The maximum, base 2, on which row r's exponentials count; -inf for a row that saw no key.
  template <class Scale>
  __device__ float base2_maximum(int r, const Scale& scale) const {
    return maximum[r] == ptx::minus_infinity() ? ptx::minus_infinity() : policy::base2_maximum(maximum[r], scale, r);
  }

  /// Row r's sums: it has one, which divides the output and is that of the LSE.
  __device__ float total(int r, int /*which*/) const { return sum[r]; }

  /// 1 / sum, or 0 for a row that saw no key.
  __device__ float inverse(int r) const { return sum[r] == 0 ? 0 : 1 / sum[r]; }

  /// log2 of the sum of exponentials; -inf for a row that saw no key.
  __device__ float log2_sum(int r, float scale) const {
    return sum[r] == 0 ? ptx::minus_infinity() : maximum[r] * scale + ptx::lg2_approx_ftz(sum[r]);
  }
};

}  // namespace kernelwright::policy
