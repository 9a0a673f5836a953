/// Tile products on mma.sync: sm_80 and every architecture since.
#pragma once

#include "contract/spec_words.h"
#include "ptx/math.cuh"

namespace kernelwright::mma {

/// c += a b for one m16n8k16, operands f16 or bf16.
template <DType kDType>
__device__ __forceinline__ void multiply_accumulate(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kDType == DType::kF16) {
    ptx::mma_m16n8k16_f16(c, a, b0, b1);
  } else {
    ptx::mma_m16n8k16_bf16(c, a, b0, b1);
  }
}

}  // namespace kernelwright::mma
