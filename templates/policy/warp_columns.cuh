/// Warps that own the same query rows and have split the keys: kColumns warps for every kRows / kRowGroups rows. Each
/// has walked its part of every key tile with its own softmax and output. Here they merge, once, in shared memory.
/// Afterwards the warps of column 0 have the result of all keys.
///
/// Row maxima and sums are exchanged first: [kColumns][2][kRows] f32. Then the columns add up their outputs one after
/// the other, from the last to the first, in units of the rows' common maximum: [kRows][kDepth] f32. The data is in the
/// order of accumulators, so each thread reads what the thread at its place has written. The order is fixed, so sums
/// repeat to the bit.
#pragma once

#include "ptx/math.cuh"

namespace kernelwright::policy {

template <int kColumns, int kRowGroups, int kRows, int kDepth>
struct WarpColumns {
  static constexpr int statistics_bytes = kColumns > 1 ? kColumns * 2 * kRows * 4 : 0;
  static constexpr int partials_bytes = kColumns > 1 ? kRows* kDepth * 4 : 0;

  float* statistics;
  float4* partials;

  /// All threads of the CTA call it. `softmax` is finished. `first_row` is the warp's first of the CTA's rows. `scale`
  /// turns maxima into powers of two and is positive. The function waits at a barrier before it writes anything.
  template <class Softmax, int kRowTiles, int kTiles>
  __device__ __forceinline__ void merge(Softmax& softmax, float (&output)[kRowTiles][kTiles][4], int column,
                                        int first_row, int lane, float scale) const {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r)
      if (lane % 4 == 0) {
        const int row = first_row + r / 2 * 16 + r % 2 * 8 + lane / 4;
        maximum(column, row) = softmax.maximum[r];
        sum(column, row) = softmax.sum[r];
      }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r) {
      const int row = first_row + r / 2 * 16 + r % 2 * 8 + lane / 4;
      float largest = maximum(0, row), total = 0;
#pragma unroll
      for (int c = 1; c < kColumns; ++c) largest = fmaxf(largest, maximum(c, row));
#pragma unroll
      for (int c = 0; c < kColumns; ++c) total += weight(maximum(c, row), largest, scale) * sum(c, row);
      const float factor = weight(softmax.maximum[r], largest, scale);
      softmax.maximum[r] = largest;
      softmax.sum[r] = total;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) output[r / 2][n][r % 2 * 2] *= factor, output[r / 2][n][r % 2 * 2 + 1] *= factor;
    }
    float4* const own = partials + first_row / (16 * kRowTiles) * 32 + lane;
#pragma unroll 1
    for (int c = kColumns - 1; c >= 0; --c) {
      if (column == c) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            float4& at = own[(m * kTiles + n) * kRowGroups * 32];
            float(&mine)[4] = output[m][n];
            if (c < kColumns - 1) mine[0] += at.x, mine[1] += at.y, mine[2] += at.z, mine[3] += at.w;
            if (c > 0) at = make_float4(mine[0], mine[1], mine[2], mine[3]);
          }
      }
      if (c > 0) __syncthreads();
    }
  }

 private:
  __device__ float& maximum(int column, int row) const { return statistics[column * 2 * kRows + row]; }
  __device__ float& sum(int column, int row) const { return statistics[(column * 2 + 1) * kRows + row]; }
  /// The weight of a part whose maximum is `own`: 0 if the part has seen no key.
  __device__ static float weight(float own, float largest, float scale) {
    return own == ptx::minus_infinity() ? 0 : ptx::ex2_approx_ftz((own - largest) * scale);
  }
};

}  // namespace kernelwright::policy
