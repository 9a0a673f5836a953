/// Outputs of a GEMM beside d: the largest magnitude of all values, and sums of squares of kGemmScaledColumns columns
/// of a row each. And the factors of rows that such sums give: those of an RMS norm.
#pragma once

#include "contract/gemm_launch.h"
#include "kernels/gemm/gemm_options.cuh"
#include "ptx/atomic.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// 1 / sqrt(mean + eps) of row `row`, where the mean is over the k squares whose sums a launch gives. kLanes lanes side
/// by side have the row, 1 or 4, and share the loads. Sums are added in one order. A template, so that other kernels do
/// not compile it.
template <int kLanes, class Params>
__device__ __forceinline__ float rstd_of_row(const Params& params, int row, bool exists, int lane) {
  const contract::GemmStatisticsParams& of = params.statistics;
  const int groups = (params.k + contract::kGemmScaledColumns - 1) / contract::kGemmScaledColumns;
  float sum = 0;
#pragma unroll 8
  for (int first = 0; first < groups; first += kLanes) {
    const int group = first + lane % kLanes;
    sum += __uint_as_float(
        ptx::ld_global_u32_if(of.squares_a + group * of.squares_a_stride + row, exists && group < groups));
  }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
  return __frcp_rn(__fsqrt_rn(__fdiv_rn(sum, static_cast<float>(params.k)) + of.eps));
}

/// What a thread has seen of the values of kRows rows. Values are added in one order, whatever the launch.
template <class Params, int kRows>
class Statistics {
 public:
  __device__ __forceinline__ explicit Statistics(const Params& params) : of_(params.statistics) {}

  __device__ __forceinline__ void add(int r, float value, bool exists) {
    if (!exists) value = 0;
    if constexpr (spec::kAmax) largest_ = ptx::max_nan_f32(largest_, fabsf(value));
    if constexpr (spec::kSquares) squares_[r] = fmaf(value, value, squares_[r]);
  }
  /// The sum of row r, and from there on 0. kLanes lanes side by side have parts of it.
  template <int kLanes>
  __device__ __forceinline__ float take_sum(int r) {
    float sum = squares_[r];
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    squares_[r] = 0;
    return sum;
  }
  /// `column`: any of those whose squares were added.
  __device__ __forceinline__ void store_sum(int row, int column, float sum, bool exists) const {
    ptx::st_global_u32_if(of_.squares + column / contract::kGemmScaledColumns * of_.squares_stride + row,
                          __float_as_uint(sum), exists);
  }
  /// All lanes call it, once no values are left.
  __device__ __forceinline__ void finish(int lane) const {
    if constexpr (spec::kAmax) {
      float largest = largest_;
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        largest = ptx::max_nan_f32(largest, __shfl_xor_sync(0xffffffff, largest, distance));
      // Magnitudes are in the order of their bits, and NaN is above all of them.
      if (lane == 0) ptx::red_max_relaxed_gpu_u32(of_.amax, __float_as_uint(largest));
    }
  }

 private:
  const contract::GemmStatisticsParams& of_;
  float largest_ = 0, squares_[kRows] = {};
};

}  // namespace
}  // namespace kernelwright
