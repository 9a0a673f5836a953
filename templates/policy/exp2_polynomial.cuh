/// 2^x without the special function unit. That unit is the bottleneck of a softmax on Blackwell: Blackwell multiplies
/// twice as fast as Hopper, but computes exponentials no faster. Under fp8 products on Hopper it is as busy as the
/// tensor cores.
#pragma once

#include "contract/integers.h"

namespace kernelwright::policy {

/// 2^x for x <= 126, within a relative 3e-6; 0 for x <= -127. The integer part goes into the exponent. The rest is a
/// polynomial: the minimax polynomial of degree 4 on [0, 1) that is 1 at 0. The polynomial of FlashAttention-4 has
/// degree 3. Its error is 9e-5, always to the same side, and an LSE shows it.
__device__ __forceinline__ float exp2_polynomial(float x) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: the last bit of such an f32 is worth 1
  x = fmaxf(x, -127.f);
  const float whole = __fadd_rd(x, kMagic), rest = x - (whole - kMagic);
  float power = fmaf(0.0134266843f, rest, 0.0522424742f);
  power = fmaf(fmaf(fmaf(power, rest, 0.241280205f), rest, 0.693044845f), rest, 1.f);
  return __int_as_float(__float_as_int(power) + (__float_as_int(whole) << 23));
}

/// The same within a relative 1.8e-3, in three instructions fewer: for e4m3, whose neighbours differ by 6 % or more.
/// The polynomial is the minimax one of degree 2 on [-0.5, 0.5].
__device__ __forceinline__ float exp2_coarse(float x) {
  constexpr float kMagic = 12582912.f;
  x = fmaxf(x, -127.f);
  const float whole = x + kMagic, rest = x - (whole - kMagic);
  const float power = fmaf(fmaf(0.23842894f, rest, 0.70344801f), rest, 1.00044314f);
  return __int_as_float(__float_as_int(power) + (__float_as_int(whole) << 23));
}

}  // namespace kernelwright::policy
