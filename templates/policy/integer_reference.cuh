/// What softmaxes share whose reference is a whole power of two, and whose exponentials become e4m3:
/// integer_softmax.cuh, narrow_softmax.cuh.
#pragma once

#include "contract/integers.h"

namespace kernelwright::policy {

enum : int { kNarrowLift = 8 };  // log2 of an exponential whose score is the reference; no variable of a binary

/// 2^exponent, exact; 0 below the normal numbers. `exponent` is a whole number, at most 0.
__device__ __forceinline__ float power_of_two(float exponent) {
  return exponent < -126 ? 0.f : __int_as_float((static_cast<int>(exponent) + 127) << 23);
}

}  // namespace kernelwright::policy
