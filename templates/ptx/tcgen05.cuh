#pragma once
#include "contract/integers.h"
namespace kernelwright::ptx {
__device__ __forceinline__ void tcgen05_alloc(uint32_t to, uint32_t columns) { asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(to), "r"(columns) : "memory"); }
__device__ __forceinline__ void tcgen05_dealloc(uint32_t address, uint32_t columns) { asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory"); }
__device__ __forceinline__ void tcgen05_relinquish_alloc_permit() { asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tcgen05_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tcgen05_fence_before_thread_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tcgen05_commit(uint32_t barrier) { asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory"); }
#define F(i) "=f"(r[i])
__device__ __forceinline__ void tcgen05_ld_32x32b_x16(float* r, uint32_t address) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, [%16];"
   : F(0),F(1),F(2),F(3),F(4),F(5),F(6),F(7),F(8),F(9),F(10),F(11),F(12),F(13),F(14),F(15) : "r"(address));
}
#undef F
#define F(i) "f"(r[i])
__device__ __forceinline__ void tcgen05_st_32x32b_x16(uint32_t address, const float* r) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16};"
   :: "r"(address),F(0),F(1),F(2),F(3),F(4),F(5),F(6),F(7),F(8),F(9),F(10),F(11),F(12),F(13),F(14),F(15) : "memory");
}
#undef F
#define F(i) "r"(r[i])
__device__ __forceinline__ void tcgen05_st_32x32b_x8(uint32_t address, const uint32_t* r) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8};"
   :: "r"(address),F(0),F(1),F(2),F(3),F(4),F(5),F(6),F(7) : "memory");
}
#undef F
}
