/// What the compiler has to be told about registers that asynchronous instructions read and write.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// Keeps the compiler from moving accesses to `registers` across this point: it does not know that a wgmma goes on
/// after its asm, nor that a tcgen05.ld does until its wait. No instruction. Sixteen at a time: a statement for each
/// would take NVRTC as long as the products do.
#define KERNELWRIGHT_PIN4(c, r, i) "+" c(r[i]), "+" c(r[(i) + 1]), "+" c(r[(i) + 2]), "+" c(r[(i) + 3])
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&registers)[kCount]) {
  static_assert(kCount % 4 == 0);
#pragma unroll
  for (int i = 0; i + 16 <= kCount; i += 16)
    asm volatile(""
                 : KERNELWRIGHT_PIN4("f", registers, i), KERNELWRIGHT_PIN4("f", registers, i + 4),
                   KERNELWRIGHT_PIN4("f", registers, i + 8), KERNELWRIGHT_PIN4("f", registers, i + 12)::"memory");
#pragma unroll
  for (int i = kCount / 16 * 16; i < kCount; i += 4) asm volatile("" : KERNELWRIGHT_PIN4("f", registers, i)::"memory");
}
template <int kRows>
__device__ __forceinline__ void pin_registers(uint32_t (&registers)[kRows][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) asm volatile("" : KERNELWRIGHT_PIN4("r", registers[i], 0)::"memory");
}
#undef KERNELWRIGHT_PIN4

}  // namespace kernelwright::ptx
