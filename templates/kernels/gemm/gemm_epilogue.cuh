/// The epilogue of one sum, the same in every GEMM kernel: activation(alpha sum + bias) + beta c, in f32 registers.
#pragma once

#include "spec.h"

#include "contract/words.h"
#include "policy/epilogue.cuh"
#include "ptx/math.cuh"

namespace kernelwright {
namespace {

constexpr bool kPlainSums = !spec::kAlpha && !spec::kBias && !spec::kAddsC && spec::kActivation == Activation::kNone;

/// `bias` and `c` are used only where the Spec has them.
__device__ __forceinline__ float finished(float sum, float alpha, float bias, float beta, float c) {
  if constexpr (spec::kAlpha) sum *= alpha;
  if constexpr (spec::kBias) sum += bias;
  sum = policy::activated<spec::kActivation>(sum);
  if constexpr (spec::kAddsC) sum = fmaf(beta, c, sum);
  return sum;
}

/// An element of bias or c, from a word of memory: the whole word where they are f32, else one half of it.
__device__ __forceinline__ float addend_of(uint32_t word, int half) {
  if constexpr (spec::kCDType == DType::kF32)
    return __uint_as_float(word);
  else if constexpr (spec::kCDType == DType::kBf16)
    return __uint_as_float(half ? word & 0xffff0000u : word << 16);
  else
    return ptx::cvt_f32_f16(static_cast<uint16_t>(half ? word >> 16 : word));
}

}  // namespace
}  // namespace kernelwright
