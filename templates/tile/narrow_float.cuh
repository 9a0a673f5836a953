/// f32 to e4m3 and e2m1 on any architecture, with the bits that cvt.rn.satfinite gives for numbers. It rounds to
/// nearest, ties to even; beyond the largest number it gives the largest. On architectures with that cvt, the cvt runs.
#pragma once

#include "contract/integers.h"
#include "ptx/math.cuh"

namespace kernelwright::tile {

/// The code of a finite `value`, with its sign in the bit above the exponent. The format has kMantissa bits, its
/// smallest normal number is 2^kLowest, and its largest number is `largest`.
template <int kExponent, int kMantissa, int kLowest>
__device__ __forceinline__ uint32_t narrow_code(float value, float largest) {
  const float magnitude = fminf(fabsf(value), largest);
  const uint32_t bits = __float_as_uint(magnitude) >> 23, lowest = 127 + kLowest;
  const uint32_t exponent = bits > lowest ? bits : lowest;
  // The last bit of `anchor` is worth one step of the format. So the sum rounds to steps, and its low bits say how many
  // there are.
  const uint32_t anchor = (exponent + 23 - kMantissa) << 23;
  const uint32_t steps = __float_as_uint(__fadd_rn(magnitude, __uint_as_float(anchor))) - anchor;
  const uint32_t sign = __float_as_uint(value) >> 31 << (kExponent + kMantissa);
  return ((exponent - lowest) << kMantissa) + steps + sign;
}

/// Two finite values as e4m3, `low` in the low byte.
template <int kArch>
__device__ __forceinline__ uint32_t e4m3_pair(float low, float high) {
  if constexpr (kArch >= 89)
    return ptx::cvt_rn_satfinite_e4m3x2_f32(low, high);
  else
    return narrow_code<4, 3, -6>(low, 448.f) | narrow_code<4, 3, -6>(high, 448.f) << 8;
}

/// A value of [0, 448], or NaN, rounded to e4m3.
__device__ __forceinline__ float rounded_to_e4m3(float value) {
  constexpr uint32_t kLowest = 127 - 6;
  const uint32_t exponent = __float_as_uint(value) >> 23;
  // As in narrow_code(): the sum with `anchor` has no bits below a step of e4m3.
  const float anchor = __uint_as_float((exponent > kLowest ? exponent + 20 : kLowest + 20) << 23);
  return __fadd_rn(__fadd_rn(value, anchor), -anchor);
}

/// Two values of [0, 448], or NaN, rounded to e4m3, as packed f16: exact from there.
template <int kArch>
__device__ __forceinline__ uint32_t e4m3_rounded_f16(float low, float high) {
  if constexpr (kArch >= 89)
    return ptx::cvt_rn_f16x2_e4m3x2(ptx::cvt_rn_satfinite_e4m3x2_f32(low, high));
  else
    return ptx::cvt_rn_f16x2_f32(rounded_to_e4m3(low), rounded_to_e4m3(high));
}

/// Two finite values as e2m1, `low` in the low half of a byte.
template <int kArch>
__device__ __forceinline__ uint32_t e2m1_pair(float low, float high) {
  if constexpr (kArch >= 100)
    return ptx::cvt_rn_satfinite_e2m1x2_f32(low, high);
  else
    return narrow_code<2, 1, 0>(low, 6.f) | narrow_code<2, 1, 0>(high, 6.f) << 4;
}

/// The value of a ue4m3 that is no NaN. Its bits, moved to where an f32 has them, read as the value times 2^-120,
/// subnormals too.
__device__ __forceinline__ float ue4m3_value(uint32_t code) { return __uint_as_float(code << 20) * 0x1p120f; }

}  // namespace kernelwright::tile
