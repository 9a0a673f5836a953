/// Tensor memory (PTX ISA 8.6, sm_100a): 128 lanes by 512 columns of 32 bits in each SM, whose addresses are lane << 16
/// | column. Allocation, loads and stores, copies from shared memory, and what orders them; tcgen05_mma.cuh multiplies.
///
/// Asynchronous are loads and stores, until the warp's tcgen05_wait_ld() and tcgen05_wait_st(), and copies and
/// products, until a tcgen05_commit() by the thread that issued them has arrived on its mbarrier. Between threads,
/// whoever hands over tensor memory calls tcgen05_fence_before_thread_sync() ahead of the barrier (a commit implies it)
/// and whoever takes it tcgen05_fence_after_thread_sync() behind.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

// ---- allocation: by one warp of the CTA, or with kCtaGroup 2 by one warp of each CTA of the pair together ----

/// tcgen05.alloc: waits until `columns` (a power of two from 32 to 512) are free, and writes the address of the first
/// to shared memory at `result`. All lanes.
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

/// tcgen05.dealloc of what one alloc gave, before the CTA exits; all that was done with the columns is over.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_dealloc(uint32_t address, uint32_t columns) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
  else
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

/// tcgen05.relinquish_alloc_permit: this CTA allocates no more, so that the next one on the SM may.
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

/// tcgen05.commit: one arrival on the mbarrier of this CTA, or of the CTA that its address names, once all products,
/// copies and shifts that this thread has issued are complete. One thread.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_commit(uint32_t barrier) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
  else
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
}

/// The same on the mbarrier at that offset of every CTA of the cluster that `ctas` has a bit for.
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

/// The warp's loads have written their registers, and its stores their cells.
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

/// The same, and the compiler moves no use of `values`, which a load has under way, ahead of the wait: it takes them to
/// be there from the load on.
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

/// tcgen05.ld.32x32b: values[i] of lane l is column i of tensor-memory lane 32w + l, w the warp's number modulo 4. All
/// lanes of the warp give one address, whose lane is 32w. `values` may be used after tcgen05_wait_ld(values).
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

/// tcgen05.st.32x32b: the other way. The registers are free at once, the cells hold it after tcgen05_wait_st().
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

// ---- copies: one thread; complete through tcgen05_commit(), and ahead of the products that it issues afterwards ----

/// tcgen05.cp.32x128b.warpx4: 32 rows of 16 bytes, by a matrix descriptor, into 4 columns of lanes 0-31 and again of
/// 32-63, 64-95 and 96-127: scales. With kCtaGroup 2 each CTA of the pair copies from shared memory of its own.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_cp_32x128b_warpx4(uint32_t address, uint64_t descriptor) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
  else
    asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
}

/// tcgen05.cp.128x256b: 128 rows of 32 bytes into 8 columns of a lane each.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_cp_128x256b(uint32_t address, uint64_t descriptor) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
  else
    asm volatile("tcgen05.cp.cta_group::2.128x256b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
}

/// tcgen05.cp.128x128b: 128 rows of 16 bytes into 4 columns of a lane each.
template <int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_cp_128x128b(uint32_t address, uint64_t descriptor) {
  if constexpr (kCtaGroup == 1)
    asm volatile("tcgen05.cp.cta_group::1.128x128b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
  else
    asm volatile("tcgen05.cp.cta_group::2.128x128b [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
}

}  // namespace kernelwright::ptx
