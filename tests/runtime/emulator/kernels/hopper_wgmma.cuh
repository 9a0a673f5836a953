/// Hopper's asynchronous matrix multiply of a warpgroup: D[64][n] += A[64][16] B[16][n], bf16 in, f32 out (PTX ISA 8.0,
/// sm_90a). n is twice the number of registers that a thread holds of D.
///
/// Warp w of the warpgroup holds rows 16w..16w+15 of D: its lane l the rows l/4 (registers 4j, 4j+1) and l/4 + 8 (4j+2,
/// 4j+3), in columns 8j + 2(l%4) and one more.
#pragma once

#include "contract/integers.h"

namespace kernelwright::test {

/// Descriptor of an operand in shared memory, swizzle 128B, so that `address` is some rows of 128 bytes into an atom of
/// 8 such rows at a multiple of 1024 (PTX ISA, "Shared Memory Matrix Layout"). K-major: a row holds 64 elements of k;
/// `stride_bytes` leads from 8 rows to the next 8; `leading_bytes` is not read. MN-major: a row holds 64 elements of m
/// or n for one k; `stride_bytes` leads from 8 k to the next 8, `leading_bytes` to the next 64 elements.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  constexpr uint64_t kSwizzle128B = uint64_t{1} << 62;
  return kSwizzle128B | uint64_t{stride_bytes >> 4} << 32 | uint64_t{leading_bytes >> 4} << 16 |
         uint64_t{(address & 0x3ffff) >> 4};
}

/// Orders this warpgroup's accesses to registers before the wgmma that follow; the first one of a batch needs it, and
/// every one whose A or D registers were touched since.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Ends a group of wgmma.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most kPending groups are in flight. Only then may their registers be touched, and what they read of
/// shared memory be overwritten.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving accesses to `registers` across this point: it does not know that a wgmma goes on
/// after its asm. No instruction.
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kRows>
__device__ __forceinline__ void pin_registers(uint32_t (&registers)[kRows][4]) {
#pragma unroll
  for (int i = 0; i < kRows * 4; ++i) asm volatile("" : "+r"(registers[i / 4][i % 4])::"memory");
}

// Operand lists: placeholders %0 .. and registers d[0] ..
#define KERNELWRIGHT_PLACES_0                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KERNELWRIGHT_PLACES_1                                                                            \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KERNELWRIGHT_PLACES_2                                                                            \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define KERNELWRIGHT_PLACES_3                                                                          \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define KERNELWRIGHT_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define KERNELWRIGHT_D16(i) \
  KERNELWRIGHT_D4(i), KERNELWRIGHT_D4((i) + 4), KERNELWRIGHT_D4((i) + 8), KERNELWRIGHT_D4((i) + 12)
#define KERNELWRIGHT_D32(i) KERNELWRIGHT_D16(i), KERNELWRIGHT_D16((i) + 16)

/// wgmma_ss: A (K-major) and B from shared memory. B is K-major, or MN-major where kBMnMajor.
/// wgmma_rs: A from registers, in the layout of D's registers with two bf16 packed: {4j, 4j+1}, {4j+2, 4j+3} of j and
/// j + 1. They must not change until the group has ended.
/// `accumulate` 0: D is overwritten.
#define KERNELWRIGHT_WGMMA(n, places, p0, p1, p2, p3, p4, p5, p6, ...)                                                 \
  template <bool kBMnMajor>                                                                                            \
  __device__ __forceinline__ void wgmma_ss(float(&d)[n / 2], uint64_t a, uint64_t b, uint32_t accumulate) {            \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " p2                                                                  \
                 ", 0; "                                                                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" places "}, " p0 ", " p1                  \
                 ", p, 1, 1, 0, " p3 "; }"                                                                             \
                 : __VA_ARGS__                                                                                         \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(kBMnMajor ? 1 : 0)                                             \
                 : "memory");                                                                                          \
  }                                                                                                                    \
  template <bool kBMnMajor>                                                                                            \
  __device__ __forceinline__ void wgmma_rs(float(&d)[n / 2], const uint32_t(&a)[4], uint64_t b, uint32_t accumulate) { \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " p5                                                                  \
                 ", 0; "                                                                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" places "}, {" p0 ", " p1 ", " p2 ", " p3 \
                 "}, " p4 ", p, 1, 1, " p6 "; }"                                                                       \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kBMnMajor ? 1 : 0)         \
                 : "memory");                                                                                          \
  }

KERNELWRIGHT_WGMMA(64, KERNELWRIGHT_PLACES_0, "%32", "%33", "%34", "%35", "%36", "%37", "%38", KERNELWRIGHT_D32(0))
KERNELWRIGHT_WGMMA(128, KERNELWRIGHT_PLACES_0 ", " KERNELWRIGHT_PLACES_1, "%64", "%65", "%66", "%67", "%68", "%69",
                   "%70", KERNELWRIGHT_D32(0), KERNELWRIGHT_D32(32))
KERNELWRIGHT_WGMMA(192, KERNELWRIGHT_PLACES_0 ", " KERNELWRIGHT_PLACES_1 ", " KERNELWRIGHT_PLACES_2, "%96", "%97",
                   "%98", "%99", "%100", "%101", "%102", KERNELWRIGHT_D32(0), KERNELWRIGHT_D32(32),
                   KERNELWRIGHT_D32(64))
KERNELWRIGHT_WGMMA(256,
                   KERNELWRIGHT_PLACES_0 ", " KERNELWRIGHT_PLACES_1 ", " KERNELWRIGHT_PLACES_2
                                         ", " KERNELWRIGHT_PLACES_3,
                   "%128", "%129", "%130", "%131", "%132", "%133", "%134", KERNELWRIGHT_D32(0), KERNELWRIGHT_D32(32),
                   KERNELWRIGHT_D32(64), KERNELWRIGHT_D32(96))

#undef KERNELWRIGHT_WGMMA
#undef KERNELWRIGHT_D32
#undef KERNELWRIGHT_D16
#undef KERNELWRIGHT_D4
#undef KERNELWRIGHT_PLACES_3
#undef KERNELWRIGHT_PLACES_2
#undef KERNELWRIGHT_PLACES_1
#undef KERNELWRIGHT_PLACES_0

}  // namespace kernelwright::test
