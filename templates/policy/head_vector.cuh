/// The part of a head that one lane has, as f32, and what lanes that share the head compute together: sums, the largest
/// magnitude, norms and the Hadamard transform. Every lane of the warp calls these functions. Elements that a lane
/// lacks are 0.
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

/// The largest magnitude of the head, as bits: NaN is above infinity, and infinity above all numbers.
template <int kLanes>
__device__ __forceinline__ uint32_t largest_of_head(const HeadVector& x) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const uint32_t magnitude = __float_as_uint(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, distance);
    largest = other > largest ? other : largest;
  }
  return largest;
}

/// Multiplies the head by the Hadamard matrix of Sylvester's order, over the root of its size; with kSigns, first by
/// fixed signs. `chunk`: which part of the head this lane has.
template <int kHeadDim, bool kSigns>
__device__ __forceinline__ void hadamard(HeadVector& x, int chunk) {
  static_assert((kHeadDim & (kHeadDim - 1)) == 0);
  if constexpr (kSigns) {
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      if (contract::is_negated(static_cast<uint32_t>(chunk * kLaneElements + i))) x[i] = -x[i];
  }
#pragma unroll
  for (int distance = 1; distance < kLaneElements; distance *= 2)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      if ((i & distance) == 0) {
        const float low = x[i], high = x[i + distance];
        x[i] = low + high;
        x[i + distance] = low - high;
      }
#pragma unroll
  for (int distance = 1; distance < kHeadDim / kLaneElements; distance *= 2)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, x[i], distance);
      x[i] = (chunk & distance) != 0 ? other - x[i] : x[i] + other;
    }
  constexpr float kFactor = kHeadDim == 64 ? 0.125f : kHeadDim == 128 ? 0.08838834764831845f : 0.0625f;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] *= kFactor;
}

}  // namespace kernelwright::policy
