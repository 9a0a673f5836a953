/// The epilogue of one sum, the same in every GEMM kernel: activation(alpha sum + bias) + beta c, in f32 registers. Or
/// of a gate and an up, two sums that make one result.
#pragma once

#include "spec.h"

#include "contract/words.h"
#include "policy/epilogue.cuh"
#include "ptx/math.cuh"

namespace kernelwright {
namespace {

constexpr bool kGated = spec::kGated;  // columns of the product are gates and ups in runs of 8
constexpr bool kPlainSums =
    !spec::kAlpha && !spec::kBias && !spec::kAddsC && !kGated && spec::kActivation == Activation::kNone;
constexpr bool kNeedsSumsAlone = kPlainSums || (kGated && !spec::kBias);  // as they are, or gates and ups

/// `bias` and `c` are used only where the Spec has them.
__device__ __forceinline__ float finished(float sum, float alpha, float bias, float beta, float c) {
  if constexpr (spec::kAlpha) sum *= alpha;
  if constexpr (spec::kBias) sum += bias;
  sum = policy::activated<spec::kActivation>(sum);
  if constexpr (spec::kAddsC) sum = fmaf(beta, c, sum);
  return sum;
}

/// The same of a gate and an up, each with its bias.
__device__ __forceinline__ float finished_pair(float gate, float up, float alpha, float gate_bias, float up_bias) {
  if constexpr (spec::kAlpha) gate *= alpha, up *= alpha;
  if constexpr (spec::kBias) gate += gate_bias, up += up_bias;
  return policy::gated_product<spec::kActivation, spec::kClamped>(gate, up, spec::kLimit, spec::kSteepness);
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
