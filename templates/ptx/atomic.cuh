/// Words of global memory through which CTAs of one grid communicate (PTX ISA 6.0, sm_70). The scope is the GPU.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// ld.relaxed.gpu: orders nothing.
__device__ __forceinline__ unsigned long long ld_relaxed_gpu_u64(const unsigned long long* address) {
  unsigned long long value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

/// st.relaxed.gpu if `exists`: orders nothing. No branch: lanes stay together.
__device__ __forceinline__ void st_relaxed_gpu_s32_if(int32_t* address, int32_t value, bool exists) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.relaxed.gpu.global.s32 [%0], %1; }" ::"l"(address),
               "r"(value), "r"(static_cast<uint32_t>(exists))
               : "memory");
}

/// st.relaxed.gpu: orders nothing.
__device__ __forceinline__ void st_relaxed_gpu_u64(unsigned long long* address, unsigned long long value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

/// ld.acquire.gpu: if the load reads what a releasing store wrote, this thread sees all writes before that store.
__device__ __forceinline__ uint32_t ld_acquire_gpu_u32(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

/// st.release.gpu: a thread that acquires this store sees what this thread has written before. It also sees what other
/// threads wrote ahead of a barrier with this thread.
__device__ __forceinline__ void st_release_gpu_u32(uint32_t* address, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// atom.cas: `value` if the word is `expected`; returns what it was. Orders nothing.
__device__ __forceinline__ unsigned long long atom_cas_relaxed_gpu_u64(unsigned long long* address,
                                                                       unsigned long long expected,
                                                                       unsigned long long value) {
  unsigned long long before;
  asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(address), "l"(expected), "l"(value)
               : "memory");
  return before;
}

/// atom.add: returns what the word was. Orders nothing.
__device__ __forceinline__ uint32_t atom_add_relaxed_gpu_u32(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
  return before;
}
__device__ __forceinline__ unsigned long long atom_add_relaxed_gpu_u64(unsigned long long* address,
                                                                       unsigned long long value) {
  unsigned long long before;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(value) : "memory");
  return before;
}

/// red.max: the word becomes the larger one. Orders nothing.
__device__ __forceinline__ void red_max_relaxed_gpu_u32(uint32_t* address, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// atom.add: returns what the word was. It releases what this thread has written, and what other threads of its CTA
/// wrote ahead of a barrier. It acquires what threads that added before have released.
__device__ __forceinline__ unsigned long long atom_add_acq_rel_gpu_u64(unsigned long long* address,
                                                                       unsigned long long value) {
  unsigned long long before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(value) : "memory");
  return before;
}

}  // namespace kernelwright::ptx
