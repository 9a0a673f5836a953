/// The scale of values that are quantised to an 8-bit format: heads, rows, or some columns of a row.
#pragma once

#include "contract/integers.h"
#include "contract/words.h"

namespace kernelwright::policy {

/// The largest number of an 8-bit format.
template <DType kTo>
constexpr float kLargestFp8 = kTo == DType::kE5m2 ? 57344.f : 448.f;

/// The scale of a head, or of what else shares one, whose largest magnitude has the bits `largest`: so that this
/// element becomes the format's largest number. At least the smallest normal f32, so that its reciprocal is a number.
/// Infinity and NaN give themselves, and make all of the head NaN where it is read.
template <DType kTo, bool kPowerOfTwo>
__device__ __forceinline__ float scale_of_head(uint32_t largest) {
  constexpr uint32_t kInfinity = 0x7f800000, kSmallestNormal = 0x00800000, kMantissa = 0x007fffff;
  if (largest >= kInfinity) return __uint_as_float(largest);
  uint32_t bits = __float_as_uint(__fdiv_rn(__uint_as_float(largest), kLargestFp8<kTo>));
  if (bits < kSmallestNormal) bits = kSmallestNormal;
  if (kPowerOfTwo && (bits & kMantissa) != 0) bits = (bits | kMantissa) + 1;
  return __uint_as_float(bits);
}

}  // namespace kernelwright::policy
