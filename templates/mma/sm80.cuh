/// Tile products on mma.sync: sm_80 and every architecture since.
#pragma once

#include "contract/spec_words.h"
#include "ptx/math.cuh"

namespace kernelwright::mma {

/// c += a b for one m16n8k16, operands f16 or bf16.
template <DType kDType>
__device__ __forceinline__ void multiply_accumulate(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kDType == DType::kF16) {
    ptx::mma_m16n8k16_f16(c, a, b);
  } else {
    ptx::mma_m16n8k16_bf16(c, a, b);
  }
}

}  // namespace kernelwright::mma
