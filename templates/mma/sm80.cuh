/// Tile products on mma.sync: sm_80 and every later architecture.
#pragma once

#include "contract/words.h"
#include "ptx/math.cuh"

namespace kernelwright::mma {

/// c += a b for one m16n8k16; operands are f16 or bf16.
template <DType kDType>
__device__ __forceinline__ void multiply_accumulate(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kDType == DType::kF16) {
    ptx::mma_m16n8k16_f16(c, a, b);
  } else {
    ptx::mma_m16n8k16_bf16(c, a, b);
  }
}

/// c += a b for 32 bytes of k. The product is m16n8k16 with both operands f16 or both bf16. With fp8 operands, each
/// e4m3 or e5m2, it is m16n8k32 (sm_89).
template <DType kA, DType kB>
__device__ __forceinline__ void multiply_accumulate_of(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kA == DType::kE4m3 || kA == DType::kE5m2)
    ptx::mma_m16n8k32_fp8<kA, kB>(c, a, b);
  else
    multiply_accumulate<kA>(c, a, b);
}

}  // namespace kernelwright::mma
