/// A result that is quantised: kGemmScaledColumns neighbouring columns of a row of d share a scale, which the kernel
/// makes of their largest magnitude. Scale and elements are those that row_op makes of the same values.
#pragma once

#include "kernels/gemm/gemm_defaults.cuh"
#include "policy/fp8_scale.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Adds a thread's values of a slab to the largest magnitudes of its two rows. values[4 j + 2 r + e] is of row r. NaN
/// is above all numbers.
template <int kCount>
__device__ __forceinline__ void add_magnitudes(float (&largest)[2], const float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      largest[r] =
          ptx::max_nan_f32(largest[r], ptx::max_nan_f32(fabsf(values[i + 2 * r]), fabsf(values[i + 2 * r + 1])));
}

/// The same over the four lanes that share the row. All of them get the same bits.
__device__ __forceinline__ float largest_of_quad(float largest) {
  largest = ptx::max_nan_f32(largest, __shfl_xor_sync(0xffffffff, largest, 1));
  return ptx::max_nan_f32(largest, __shfl_xor_sync(0xffffffff, largest, 2));
}

/// The scale of a largest magnitude. A template, so that other kernels have no constant of it.
template <DType kTo = spec::kDDType>
__device__ __forceinline__ float scale_of(float largest) {
  return policy::scale_of_head<kTo, spec::kPowerOfTwo>(__float_as_uint(largest));
}
/// What values are multiplied by.
__device__ __forceinline__ float factor_of(float scale) { return policy::reciprocal_of_scale(scale); }

/// The scales of a group of rows; without groups, of all rows.
class ScaleRows {
 public:
  /// `columns`: of d, all of them. `group`, `capacity`: of masked groups, whose scales lie one behind the other. So do
  /// those of a batch, whose rows are counted from the first one of a group.
  template <class Params>
  __device__ __forceinline__ ScaleRows(const Params& params, int columns, int group, int capacity)
      : scales_(params.scale_d), stride_(params.scale_d_stride) {
    if constexpr (kBatched || spec::kGroups == GroupKind::kMasked)
      scales_ += int64_t{group} * (columns / contract::kGemmScaledColumns) * stride_;
    if constexpr (spec::kGroups == GroupKind::kMasked) first_row_ = group * capacity;
  }
  /// For row `row` and the group of columns that begins at column `column` of d. Lanes stay together.
  __device__ __forceinline__ void store(int row, int column, float scale, bool exists) const {
    const int64_t at = column / contract::kGemmScaledColumns * stride_ + (row - first_row_);
    ptx::st_global_u32_if(scales_ + at, __float_as_uint(scale), exists);
  }

 private:
  float* scales_;
  int64_t stride_;
  int first_row_ = 0;
};

}  // namespace
}  // namespace kernelwright
