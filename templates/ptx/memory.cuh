/// Moves between global memory, shared memory and registers. Each function is one instruction.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// 16 bytes, which one thread moves at once.
struct alignas(16) Vector16 {
  uint32_t word[4];
};

/// The shared-window address that shared-memory instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Returns `value`, and hides from the compiler how it was computed. The compiler then does not hoist computations with
/// it out of a loop, where they would hold registers. No instruction.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// As above, for an address through which every later access goes. Volatile statements keep their order: a read through
/// the returned address comes after a griddepcontrol.wait that stands before this call.
template <class T>
__device__ __forceinline__ T* opaque(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

/// ld.global.L1::no_allocate.v4, for data that is read once. Not .nc: see ptx/launch.cuh.
__device__ __forceinline__ Vector16 ld_global_once_v4(const void* address) {
  Vector16 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "l"(address));
  return value;
}

/// The same if `exists`. Otherwise nothing is read, and the value is zeros.
__device__ __forceinline__ Vector16 ld_global_once_v4_if(const void* address, bool exists) {
  Vector16 value;
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; "
      "@p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(value.word[0]), "=&r"(value.word[1]), "=&r"(value.word[2]), "=&r"(value.word[3])
      : "l"(address), "r"(static_cast<uint32_t>(exists)));
  return value;
}

/// ld.global of memory that no thread of the grid writes. Like __ldg, the compiler may move it among other accesses, so
/// that several loads are in flight at once. Unlike __ldg it is not .nc (ptx/launch.cuh). `address` comes from
/// opaque(), called after the wait.
__device__ __forceinline__ int32_t ld_global_settled_s32(const int32_t* address) {
  int32_t value;
  asm("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}
__device__ __forceinline__ float ld_global_settled_f32(const float* address) {
  float value;
  asm("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}

/// ld.global.cg: bypasses the L1, whose lines may be older than what another CTA of the grid has written since.
__device__ __forceinline__ float ld_global_cg_f32(const float* address) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void ld_global_cg(float (&value)[2], const float* address) {
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "l"(address) : "memory");
}
__device__ __forceinline__ void ld_global_cg(float (&value)[4], const float* address) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
               : "l"(address)
               : "memory");
}

/// ld.global if `exists`. Otherwise nothing is read, and the value is 0.
__device__ __forceinline__ uint32_t ld_global_u32_if(const void* address, bool exists) {
  uint32_t value;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0; @p ld.global.u32 %0, [%1]; }"
               : "=&r"(value)
               : "l"(address), "r"(static_cast<uint32_t>(exists)));
  return value;
}
__device__ __forceinline__ uint32_t ld_global_u16_if(const void* address, bool exists) {
  uint16_t value;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b16 %0, 0; @p ld.global.u16 %0, [%1]; }"
               : "=&h"(value)
               : "l"(address), "r"(static_cast<uint32_t>(exists)));
  return value;
}
__device__ __forceinline__ void ld_global_v2_u32_if(uint32_t* value, const void* address, bool exists) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; @p ld.global.v2.u32 {%0, %1}, [%2]; }"
      : "=&r"(value[0]), "=&r"(value[1])
      : "l"(address), "r"(static_cast<uint32_t>(exists)));
}

/// ld.global. Not .nc: see ptx/launch.cuh.
__device__ __forceinline__ int32_t ld_global_s32(const int32_t* address) {
  int32_t value;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}
__device__ __forceinline__ int64_t ld_global_s64(const int64_t* address) {
  int64_t value;
  asm volatile("ld.global.s64 %0, [%1];" : "=l"(value) : "l"(address));
  return value;
}
__device__ __forceinline__ float ld_global_f32(const float* address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}

/// ld.global.v4 of 16 bytes at a multiple of 16. Not .nc: see ptx/launch.cuh.
__device__ __forceinline__ Vector16 ld_global_v4(const void* address) {
  Vector16 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "l"(address));
  return value;
}

/// The same if `exists`. Otherwise nothing is read, and the value is zeros.
__device__ __forceinline__ Vector16 ld_global_v4_if(const void* address, bool exists) {
  Vector16 value;
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; "
      "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(value.word[0]), "=&r"(value.word[1]), "=&r"(value.word[2]), "=&r"(value.word[3])
      : "l"(address), "r"(static_cast<uint32_t>(exists)));
  return value;
}

__device__ __forceinline__ void st_global_v4(void* address, const Vector16& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.word[0]), "r"(value.word[1]),
               "r"(value.word[2]), "r"(value.word[3])
               : "memory");
}

/// The same if `exists`. No branch: lanes stay together.
__device__ __forceinline__ void st_global_v4_if(void* address, const Vector16& value, bool exists) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.u32 [%0], {%1, %2, %3, %4}; }" ::"l"(address),
               "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3]),
               "r"(static_cast<uint32_t>(exists))
               : "memory");
}

/// st.global.v2: 8 bytes at a multiple of 8.
__device__ __forceinline__ void st_global_v2_u32(void* address, uint32_t low, uint32_t high) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(low), "r"(high) : "memory");
}

__device__ __forceinline__ void st_global_u8(void* address, uint32_t value) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void st_global_u16(void* address, uint16_t value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"(value) : "memory");
}
__device__ __forceinline__ void st_global_u32(void* address, uint32_t value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// The same if `exists`. No branch: lanes stay together.
__device__ __forceinline__ void st_global_u32_if(void* address, uint32_t value, bool exists) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.u32 [%0], %1; }" ::"l"(address), "r"(value),
               "r"(static_cast<uint32_t>(exists))
               : "memory");
}

__device__ __forceinline__ void st_global_u8_if(void* address, uint32_t value, bool exists) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.u8 [%0], %1; }" ::"l"(address), "r"(value),
               "r"(static_cast<uint32_t>(exists))
               : "memory");
}
__device__ __forceinline__ void st_global_v2_u32_if(void* address, uint32_t low, uint32_t high, bool exists) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p st.global.v2.u32 [%0], {%1, %2}; }" ::"l"(address), "r"(low),
               "r"(high), "r"(static_cast<uint32_t>(exists))
               : "memory");
}

__device__ __forceinline__ void st_shared_v4(uint32_t address, const Vector16& value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.word[0]), "r"(value.word[1]),
               "r"(value.word[2]), "r"(value.word[3])
               : "memory");
}

__device__ __forceinline__ void ld_shared_v4_f32(uint32_t address, float (&value)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ld_shared_v2_f32(uint32_t address, float (&value)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "r"(address) : "memory");
}
__device__ __forceinline__ Vector16 ld_shared_v4(uint32_t address) {
  Vector16 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "r"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ void st_shared_u32(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t ld_shared_u32(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ void st_shared_u64(uint32_t address, uint64_t value) {
  asm volatile("st.shared.u64 [%0], %1;" ::"r"(address), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t ld_shared_u64(uint32_t address) {
  uint64_t value;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(value) : "r"(address) : "memory");
  return value;
}

/// ld.shared.u64 if `exists`. Otherwise nothing is read, and the value is 0. No branch: lanes stay together.
__device__ __forceinline__ uint64_t ld_shared_u64_if(uint32_t address, bool exists) {
  uint64_t value;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b64 %0, 0; @p ld.shared.u64 %0, [%1]; }"
               : "=&l"(value)
               : "r"(address), "r"(static_cast<uint32_t>(exists))
               : "memory");
  return value;
}
/// st.shared.v2 if `exists`: 8 bytes at a multiple of 8. No branch: lanes stay together.
__device__ __forceinline__ void st_shared_v2_u32_if(uint32_t address, uint32_t low, uint32_t high, bool exists) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p st.shared.v2.u32 [%0], {%1, %2}; }" ::"r"(address), "r"(low),
               "r"(high), "r"(static_cast<uint32_t>(exists))
               : "memory");
}

__device__ __forceinline__ float ld_shared_f32(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ void st_shared_f32(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void st_shared_v2_f32(uint32_t address, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}
__device__ __forceinline__ void st_shared_u16(uint32_t address, uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}
/// st.shared.u8: stores the low byte of `value`.
__device__ __forceinline__ void st_shared_u8(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// cp.async.cg.shared.global (PTX ISA 9.7.9.25.3, sm_80): 16 bytes, bypassing the L1. Copies `source_bytes` bytes and
/// fills the rest of the 16 with zeros. With 0 the source is not read.
__device__ __forceinline__ void cp_async_cg_16(uint32_t shared, const void* global, uint32_t source_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(source_bytes)
               : "memory");
}

__device__ __forceinline__ void cp_async_cg_16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

/// cp.async.ca.shared.global: 4 bytes, through the L1.
__device__ __forceinline__ void cp_async_ca_4(uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

/// The same, of which `source_bytes`, 4 or 0, are read and the rest is zeros.
__device__ __forceinline__ void cp_async_ca_4(uint32_t shared, const void* global, uint32_t source_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(source_bytes) : "memory");
}

__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kPending of this thread's newest groups are in flight. It does not wait for other threads'
/// copies: a barrier must follow.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Waits for all of this thread's cp.async, committed or not.
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// ldmatrix.x4 (sm_75): four 8x8 matrices of 16-bit elements. Lanes 8i..8i+7 give the row addresses of matrix i.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&matrix)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(address)
               : "memory");
}

/// As ldmatrix_x4, with each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&matrix)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(address)
               : "memory");
}

/// stmatrix.x4 (PTX ISA 7.8, sm_90): four 8x8 matrices of 16-bit elements. Lanes 8i..8i+7 give the row addresses of
/// matrix i. Lane l gives row l/4 of each matrix, columns 2(l%4) and 2(l%4)+1, packed.
__device__ __forceinline__ void stmatrix_x4(uint32_t address, const uint32_t (&matrix)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(matrix[0]),
               "r"(matrix[1]), "r"(matrix[2]), "r"(matrix[3])
               : "memory");
}

/// As stmatrix_x4, with each matrix transposed: lane l gives column l/4 of each matrix, rows 2(l%4) and 2(l%4)+1.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, const uint32_t (&matrix)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(matrix[0]),
               "r"(matrix[1]), "r"(matrix[2]), "r"(matrix[3])
               : "memory");
}

/// stmatrix.x2: two matrices; lanes 0..15 give the row addresses.
__device__ __forceinline__ void stmatrix_x2(uint32_t address, const uint32_t (&matrix)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(matrix[0]), "r"(matrix[1])
               : "memory");
}

/// As stmatrix_x2, with each matrix transposed.
__device__ __forceinline__ void stmatrix_x2_trans(uint32_t address, const uint32_t (&matrix)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(matrix[0]),
               "r"(matrix[1])
               : "memory");
}

}  // namespace kernelwright::ptx
