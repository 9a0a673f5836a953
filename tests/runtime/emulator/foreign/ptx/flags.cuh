/// Flags in global memory between CTAs, in the spellings that other people's kernels use: accesses with release and
/// acquire, or relaxed ones beside fences.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

__device__ __forceinline__ void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

__device__ __forceinline__ uint32_t ld_flag_acquire(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t ld_flag_relaxed(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.global.relaxed.gpu.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ __forceinline__ void st_flag_release(uint32_t* flag, uint32_t value) {
  asm volatile("st.global.release.gpu.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ void red_flag_add_relaxed(uint32_t* flag, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ void red_flag_add_release(uint32_t* flag, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

}  // namespace kernelwright::ptx
