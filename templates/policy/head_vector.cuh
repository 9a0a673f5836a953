/// A vector of a head as f32, and what lanes that share the head compute together: sums, the largest magnitude, norms
/// and the Hadamard transform. Every lane of the warp calls these functions. Elements that a lane lacks are 0.
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

/// Multiplies the head by the Hadamard matrix of Sylvester's order, over the root of its size; with kSigns, first by
/// fixed signs. `x`: vectors `lane` and `lane` plus half of the head's vectors. Lanes count among those of the head.
template <int kHeadDim, bool kSigns>
__device__ __forceinline__ void hadamard(HeadVector (&x)[2], int lane) {
  static_assert((kHeadDim & (kHeadDim - 1)) == 0);
  enum : int { kLanes = kHeadDim / (2 * kLaneElements) };
  const auto butterfly = [](float& first, float& second) {
    const float low = first, high = second;
    first = low + high;
    second = low - high;
  };
  if constexpr (kSigns) {
#pragma unroll
    for (int v = 0; v < 2; ++v)
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i)
        if (contract::is_negated(static_cast<uint32_t>((lane + v * kLanes) * kLaneElements + i))) x[v][i] = -x[v][i];
  }
#pragma unroll
  for (int distance = 1; distance < kLaneElements; distance *= 2)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      if ((i & distance) == 0) {
        butterfly(x[0][i], x[0][i + distance]);
        butterfly(x[1][i], x[1][i + distance]);
      }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const float other = __shfl_xor_sync(kAllLanes, x[v][i], distance);
        x[v][i] = (lane & distance) != 0 ? other - x[v][i] : x[v][i] + other;
      }
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) butterfly(x[0][i], x[1][i]);
  constexpr float kFactor = kHeadDim == 64 ? 0.125f : kHeadDim == 128 ? 0.08838834764831845f : 0.0625f;
#pragma unroll
  for (int v = 0; v < 2; ++v)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[v][i] *= kFactor;
}

}  // namespace kernelwright::policy
