/// 2^x without the special function unit, which on Blackwell is what a softmax waits for: its multipliers are twice as
/// fast as Hopper's and its exponentials are not.
#pragma once

#include "contract/integers.h"

namespace kernelwright::policy {

/// 2^x for x <= 126, within 3e-6 of the value; 0 for x <= -127. The whole part goes into the exponent, and a polynomial
/// does the rest: the minimax one of degree 4 on [0, 1) that is 1 at 0. FlashAttention-4 has one of degree 3, which is
/// 9e-5 off, and always to the same side: an LSE shows it.
__device__ __forceinline__ float exp2_polynomial(float x) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: an f32 of that size counts in ones
  x = fmaxf(x, -127.f);
  const float whole = __fadd_rd(x, kMagic), rest = x - (whole - kMagic);
  float power = fmaf(0.0134266843f, rest, 0.0522424742f);
  power = fmaf(fmaf(fmaf(power, rest, 0.241280205f), rest, 0.693044845f), rest, 1.f);
  return __int_as_float(__float_as_int(power) + (__float_as_int(whole) << 23));
}

}  // namespace kernelwright::policy
