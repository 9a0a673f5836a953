/// Tensor memory (PTX ISA 8.6, sm_100a): each SM has 128 lanes by 512 columns of 32 bits. An address is lane << 16 |
/// column. This file has allocation, loads and stores, copies from shared memory, and their order; tcgen05_mma.cuh
/// multiplies.
///
/// Loads and stores are asynchronous until tcgen05_wait_ld() and tcgen05_wait_st() of the same warp. Copies and
/// products are asynchronous until a tcgen05_commit() of the issuing thread has arrived on its mbarrier. To pass tensor
/// memory between threads, the giving thread calls tcgen05_fence_before_thread_sync() before the barrier (a commit
/// implies it). The receiving thread calls tcgen05_fence_after_thread_sync() after the barrier.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

// ---- allocation: by one warp of the CTA, or with kCtaGroup 2 by one warp of each CTA of the pair together ----

/// tcgen05.alloc: waits until `columns` columns (a power of two from 32 to 512) are free, and writes the address of the
/// first to shared memory at `result`. All lanes call it.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_alloc(uint32_t result, uint32_t columns) {
  static_assert(kCtaGroup == 1 || kCtaGroup == 2);
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(result), "r"(columns)
                 : "memory");
  else
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(result), "r"(columns)
                 : "memory");
}

/// tcgen05.dealloc of the columns of one alloc, before the CTA exits. All work on the columns must be over.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_dealloc(uint32_t address, uint32_t columns) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
  else
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

/// tcgen05.relinquish_alloc_permit: this CTA allocates no more, so the next CTA on the SM may allocate.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_relinquish_alloc_permit() {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  else
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
}

// ---- order ----

__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/// tcgen05.commit: one arrival on an mbarrier of this CTA, or of the CTA that the address names. The arrival comes once
/// all products, copies and shifts that this thread has issued are complete. One thread calls it.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_commit(uint32_t barrier) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
  else
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
}

/// The same on the mbarrier at the same offset of every CTA of the cluster whose bit is set in `ctas`.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_commit_multicast(uint32_t barrier, uint16_t ctas) {
  if constexpr (kCtaGroup == 1)
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
            barrier),
        "h"(ctas)
        : "memory");
  else
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
            barrier),
        "h"(ctas)
        : "memory");
}

/// Waits until the warp's loads have written their registers, or its stores their cells.
__device__ __forceinline__ void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tcgen05_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// ---- loads and stores ----

#define KERNELWRIGHT_PLACES_1 "%0"
#define KERNELWRIGHT_PLACES_2 KERNELWRIGHT_PLACES_1 ", %1"
#define KERNELWRIGHT_PLACES_4 KERNELWRIGHT_PLACES_2 ", %2, %3"
#define KERNELWRIGHT_PLACES_8 KERNELWRIGHT_PLACES_4 ", %4, %5, %6, %7"
#define KERNELWRIGHT_PLACES_16 KERNELWRIGHT_PLACES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KERNELWRIGHT_PLACES_32 \
  KERNELWRIGHT_PLACES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KERNELWRIGHT_PLACES_64                                                                                       \
  KERNELWRIGHT_PLACES_32                                                                                             \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
  "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KERNELWRIGHT_VALUES_1(c, v, i) c(v[i])
#define KERNELWRIGHT_VALUES_2(c, v, i) KERNELWRIGHT_VALUES_1(c, v, i), KERNELWRIGHT_VALUES_1(c, v, (i) + 1)
#define KERNELWRIGHT_VALUES_4(c, v, i) KERNELWRIGHT_VALUES_2(c, v, i), KERNELWRIGHT_VALUES_2(c, v, (i) + 2)
#define KERNELWRIGHT_VALUES_8(c, v, i) KERNELWRIGHT_VALUES_4(c, v, i), KERNELWRIGHT_VALUES_4(c, v, (i) + 4)
#define KERNELWRIGHT_VALUES_16(c, v, i) KERNELWRIGHT_VALUES_8(c, v, i), KERNELWRIGHT_VALUES_8(c, v, (i) + 8)
#define KERNELWRIGHT_VALUES_32(c, v, i) KERNELWRIGHT_VALUES_16(c, v, i), KERNELWRIGHT_VALUES_16(c, v, (i) + 16)
#define KERNELWRIGHT_VALUES_64(c, v, i) KERNELWRIGHT_VALUES_32(c, v, i), KERNELWRIGHT_VALUES_32(c, v, (i) + 32)

/// The same. It also keeps the compiler from moving uses of `values` ahead of the wait: the compiler believes that the
/// values are there from the load on.
template <int kCount>
__device__ __forceinline__ void tcgen05_wait_ld(uint32_t (&values)[kCount]) {
  tcgen05_wait_ld();
  if constexpr (kCount % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 16) asm volatile("" : KERNELWRIGHT_VALUES_16("+r", values, i)::"memory");
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
  }
}
template <int kCount>
__device__ __forceinline__ void tcgen05_wait_ld(float (&values)[kCount]) {
  tcgen05_wait_ld();
  if constexpr (kCount % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 16) asm volatile("" : KERNELWRIGHT_VALUES_16("+f", values, i)::"memory");
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
  }
}

#define KERNELWRIGHT_TCGEN05_LD(count, constraint)                                                                \
  if constexpr (kCount == count)                                                                                  \
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x" #count ".b32 {" KERNELWRIGHT_PLACES_##count "}, [%" #count "];" \
               : KERNELWRIGHT_VALUES_##count(constraint, values, 0)                                               \
               : "r"(address)                                                                                     \
               : "memory")
#define KERNELWRIGHT_TCGEN05_ST(count, constraint)                                                           \
  if constexpr (kCount == count)                                                                             \
  asm volatile("tcgen05.st.sync.aligned.32x32b.x" #count ".b32 [%" #count "], {" KERNELWRIGHT_PLACES_##count \
               "};" ::KERNELWRIGHT_VALUES_##count(constraint, values, 0),                                    \
               "r"(address)                                                                                  \
               : "memory")
#define KERNELWRIGHT_TCGEN05_EACH(form, constraint) \
  form(1, constraint);                              \
  form(2, constraint);                              \
  form(4, constraint);                              \
  form(8, constraint);                              \
  form(16, constraint);                             \
  form(32, constraint);                             \
  form(64, constraint)

/// tcgen05.ld.32x32b: values[i] of lane l is column i of tensor-memory lane 32w + l; w is the warp's number modulo 4.
/// All lanes of the warp give one address, whose lane is 32w. `values` may be used after tcgen05_wait_ld(values).
template <int kCount>
__device__ __forceinline__ void tcgen05_ld(uint32_t address, uint32_t (&values)[kCount]) {
  static_assert(kCount >= 1 && kCount <= 64 && (kCount & (kCount - 1)) == 0);
  KERNELWRIGHT_TCGEN05_EACH(KERNELWRIGHT_TCGEN05_LD, "=r");
}
template <int kCount>
__device__ __forceinline__ void tcgen05_ld(uint32_t address, float (&values)[kCount]) {
  static_assert(kCount >= 1 && kCount <= 64 && (kCount & (kCount - 1)) == 0);
  KERNELWRIGHT_TCGEN05_EACH(KERNELWRIGHT_TCGEN05_LD, "=f");
}

/// tcgen05.st.32x32b: stores what tcgen05.ld.32x32b loads. The registers may be changed at once; the cells hold the
/// values after tcgen05_wait_st().
template <int kCount>
__device__ __forceinline__ void tcgen05_st(uint32_t address, const uint32_t (&values)[kCount]) {
  static_assert(kCount >= 1 && kCount <= 64 && (kCount & (kCount - 1)) == 0);
  KERNELWRIGHT_TCGEN05_EACH(KERNELWRIGHT_TCGEN05_ST, "r");
}
template <int kCount>
__device__ __forceinline__ void tcgen05_st(uint32_t address, const float (&values)[kCount]) {
  static_assert(kCount >= 1 && kCount <= 64 && (kCount & (kCount - 1)) == 0);
  KERNELWRIGHT_TCGEN05_EACH(KERNELWRIGHT_TCGEN05_ST, "f");
}
#undef KERNELWRIGHT_TCGEN05_EACH
#undef KERNELWRIGHT_TCGEN05_LD
#undef KERNELWRIGHT_TCGEN05_ST
#undef KERNELWRIGHT_VALUES_1
#undef KERNELWRIGHT_VALUES_2
#undef KERNELWRIGHT_VALUES_4
#undef KERNELWRIGHT_VALUES_8
#undef KERNELWRIGHT_VALUES_16
#undef KERNELWRIGHT_VALUES_32
#undef KERNELWRIGHT_VALUES_64
#undef KERNELWRIGHT_PLACES_1
#undef KERNELWRIGHT_PLACES_2
#undef KERNELWRIGHT_PLACES_4
#undef KERNELWRIGHT_PLACES_8
#undef KERNELWRIGHT_PLACES_16
#undef KERNELWRIGHT_PLACES_32
#undef KERNELWRIGHT_PLACES_64

// ---- copies: one thread issues them; they complete through tcgen05_commit(), and ahead of the thread's later products
// ----

/// tcgen05.cp.32x128b.warpx4, for scales: copies 32 rows of 16 bytes, given by a matrix descriptor, into 4 columns of
/// lanes 0-31, and again into those of lanes 32-63, 64-95 and 96-127. With kCtaGroup 2, each CTA of the pair copies
/// from its own shared memory.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_cp_32x128b_warpx4(uint32_t address, uint64_t descriptor) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
  else
    asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
}

/// tcgen05.cp.128x256b: copies 128 rows of 32 bytes, each into 8 columns of one lane.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_cp_128x256b(uint32_t address, uint64_t descriptor) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
  else
    asm volatile("tcgen05.cp.cta_group::2.128x256b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
}

/// tcgen05.cp.128x128b: copies 128 rows of 16 bytes, each into 4 columns of one lane.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_cp_128x128b(uint32_t address, uint64_t descriptor) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.cp.cta_group::1.128x128b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
  else
    asm volatile("tcgen05.cp.cta_group::2.128x128b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
}

}  // namespace kernelwright::ptx
