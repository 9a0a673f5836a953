/// 2^x without the special function unit, which on Blackwell is what a softmax waits for: its multipliers are twice as
/// fast as Hopper's and its exponentials are not.
#pragma once

#include "contract/integers.h"

namespace kernelwright::policy {

/// 2^x for x <= 126, within 1e-4 of the value; 0 for x <= -127. The whole part goes into the exponent, and a cubic does
/// the rest (FlashAttention-4; the coefficients are a minimax fit on [0, 1) that is 1 at 0).
__device__ __forceinline__ float exp2_polynomial(float x) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: an f32 of that size counts in ones
  x = fmaxf(x, -127.f);
  const float whole = __fadd_rd(x, kMagic), rest = x - (whole - kMagic);
  const float power = fmaf(fmaf(fmaf(0.0771191f, rest, 0.227564f), rest, 0.695146f), rest, 1.f);
  return __int_as_float(__float_as_int(power) + (__float_as_int(whole) << 23));
}

}  // namespace kernelwright::policy
