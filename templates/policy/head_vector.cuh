/// A vector of a head as f32, and what lanes that share the head compute together: sums, norms and the largest
/// magnitude. Every lane of the warp calls these functions. Elements that a lane lacks are 0.
#pragma once

#include "contract/kv_write.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

constexpr int kLaneElements = contract::kLaneElements;
constexpr uint32_t kAllLanes = 0xffffffffu;

using HeadVector = float[kLaneElements];

/// Over the kLanes lanes that share a head. All of them get the same bits.
template <int kLanes>
__device__ __forceinline__ float sum_over_head(float value) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

__device__ __forceinline__ float sum_of_squares(const HeadVector& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) sum = fmaf(x[i], x[i], sum);
  return sum;
}

/// The largest magnitude of the head, as bits: NaN is above infinity, and infinity above all numbers. `x`: the lane's
/// two vectors of it.
template <int kLanes>
__device__ __forceinline__ uint32_t largest_of_head(const HeadVector (&x)[2]) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i)
    largest = ptx::max_nan_f32(largest, ptx::max_nan_f32(fabsf(x[0][i]), fabsf(x[1][i])));
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
    largest = ptx::max_nan_f32(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  return __float_as_uint(largest);
}

}  // namespace kernelwright::policy
