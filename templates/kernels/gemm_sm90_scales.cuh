/// Scales of gemm_sm90's operands, as a thread of a math warpgroup meets them: its rows of a product of 64 are
/// 16 * warp + lane / 4 and 8 more, its columns 8 j + 2 (lane % 4) and one more.
#pragma once

#include "kernels/gemm_sm90_tiles.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Scales that a whole row and a whole column have, or all: they multiply the sums once k is done.
class EndScales {
 public:
  static constexpr bool kAny = spec::kScales == ScaleKind::kPerTensor || spec::kScales == ScaleKind::kPerToken;

  __device__ __forceinline__ explicit EndScales(const GemmParams& params)
      : a_(params.scale_a), b_(params.scale_b), m_(params.m), n_(params.n) {}

  /// `row`, `column`: of the warpgroup's part of the tile. Scales past the end are not read.
  __device__ __forceinline__ void apply(Sums& sums, int row, int column) const {
    if constexpr (spec::kScales == ScaleKind::kPerTensor) {
      const float factor = ptx::ld_global_settled_f32(ptx::opaque(a_)) * ptx::ld_global_settled_f32(ptx::opaque(b_));
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
        for (float& sum : sums[wave]) sum *= factor;
    } else if constexpr (spec::kScales == ScaleKind::kPerToken) {
      const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
      const int first = row + warp * 16 + lane / 4;
      const float *const a = ptx::opaque(a_), *const b = ptx::opaque(b_);
      float of_row[kWaves][2];
#pragma unroll
      for (int i = 0; i < 2 * kWaves; ++i)
        of_row[i / 2][i % 2] = ptx::ld_global_settled_f32(a + min(first + i / 2 * 64 + i % 2 * 8, m_ - 1));
#pragma unroll
      for (int tile = 0; tile < spec::kBlockN / 8; ++tile)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float of_column = ptx::ld_global_settled_f32(b + min(column + tile * 8 + lane % 4 * 2 + i, n_ - 1));
#pragma unroll
          for (int wave = 0; wave < kWaves; ++wave) {
            sums[wave][tile * 4 + i] *= of_row[wave][0] * of_column;
            sums[wave][tile * 4 + 2 + i] *= of_row[wave][1] * of_column;
          }
        }
    }
  }

 private:
  const float* const a_;
  const float* const b_;
  const int m_, n_;
};

}  // namespace
}  // namespace kernelwright
