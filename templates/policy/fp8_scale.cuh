/// The scale of values that are quantised to an 8-bit format: heads, rows, or some columns of a row.
#pragma once

#include "contract/integers.h"
#include "contract/words.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// The largest number of an 8-bit format.
template <DType kTo>
constexpr float kLargestFp8 = kTo == DType::kE5m2 ? 57344.f : 448.f;

constexpr uint32_t kInfinityBits = 0x7f800000;

/// value / kLargestFp8 of a finite value of at least 0, rounded to nearest. If that is no normal number, the result is
/// at most the smallest normal one. It is a product and what the product lacks: __fdiv_rn() branches, and lanes wait
/// for each other. tests/templates/fp8_scale_test.cpp tries all mantissas.
template <DType kTo>
__device__ __forceinline__ float quotient_of_largest(float value) {
  constexpr float kLargest = kLargestFp8<kTo>, kReciprocal = 1.f / kLargest;
  const float first = __fmul_rn(value, kReciprocal);
  return __fmaf_rn(__fmaf_rn(-first, kLargest, value), kReciprocal, first);
}

/// The scale of a head, or of what else shares one, whose largest magnitude has the bits `largest`: so that this
/// element becomes the format's largest number. At least the smallest normal f32, so that its reciprocal is a number.
/// Infinity and NaN give themselves, and make all of the head NaN where it is read.
template <DType kTo, bool kPowerOfTwo>
__device__ __forceinline__ float scale_of_head(uint32_t largest) {
  constexpr uint32_t kSmallestNormal = 0x00800000, kMantissa = 0x007fffff;
  uint32_t bits = __float_as_uint(quotient_of_largest<kTo>(__uint_as_float(largest)));
  if (bits < kSmallestNormal) bits = kSmallestNormal;
  if (kPowerOfTwo && (bits & kMantissa) != 0) bits = (bits | kMantissa) + 1;
  return __uint_as_float(largest < kInfinityBits ? bits : largest);
}

/// 1 / scale of a scale_of_head(), rounded to nearest; 0 of infinity. Unlike __frcp_rn it has no branch for numbers
/// that are not normal.
__device__ __forceinline__ float reciprocal_of_scale(float scale) {
  const float first = ptx::rcp_approx_ftz(scale);
  const float better = __fmaf_rn(__fmaf_rn(-scale, first, 1.f), first, first);
  return __float_as_uint(scale) < kInfinityBits ? better : first;
}

}  // namespace kernelwright::policy
