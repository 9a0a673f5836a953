/// Hopper's asynchronous matrix multiply of a warpgroup (PTX ISA 8.0, sm_90a): D[64][n] += A[64][16] B[16][n], with f16
/// or bf16 inputs and f32 sums; for fp8, A[64][32] B[32][n]. n is twice the number of registers of D that a thread
/// holds.
///
/// Warp w of the warpgroup holds rows 16w..16w+15 of D. Its lane l holds rows l/4 (registers 4j, 4j+1) and l/4 + 8
/// (4j+2, 4j+3), in columns 8j + 2(l%4) and 8j + 2(l%4) + 1.
///
/// Reading all 32 values of n costs NVRTC 30 ms, two of them 3 ms. So the including file may say which values it needs,
/// by macros ahead of the include: KERNELWRIGHT_WGMMA_N0, and up to N3. Without these macros, the file defines every n.
#pragma once

#include "contract/integers.h"
#include "contract/words.h"

namespace kernelwright::ptx {

// ---- descriptors of operands in shared memory (PTX ISA, "Shared Memory Matrix Layout") ----

/// Bits 63:62 of a descriptor for the swizzle of 0, 32, 64 or 128 bytes.
constexpr uint64_t wgmma_swizzle_bits(int swizzle_bytes) {
  return (swizzle_bytes == 128  ? uint64_t{1}
          : swizzle_bytes == 64 ? uint64_t{2}
          : swizzle_bytes == 32 ? uint64_t{3}
                                : uint64_t{0})
         << 62;
}

/// The descriptor of the operand at `address`. The address may lie some rows of kSwizzleBytes behind the start of an
/// atom: an atom is 8 such rows at a multiple of 8 * kSwizzleBytes. By layout:
///   K-major     A row holds kSwizzleBytes of k. `stride_bytes` leads from 8 rows to the next 8; `leading_bytes` is
///               not read.
///   MN-major    A row holds kSwizzleBytes of m or n for one k. `stride_bytes` leads from 8 k to the next 8,
///               `leading_bytes` to the next kSwizzleBytes of m or n.
///   no swizzle  kSwizzleBytes is 0, and the atom is 8 rows of 16 bytes that follow each other.
///               K-major: `leading_bytes` leads to the next 16 bytes of k, `stride_bytes` to the next 8 rows.
///               MN-major: `leading_bytes` leads to the next 8 k, `stride_bytes` to the next 16 bytes of m or n.
/// A descriptor plus x describes the operand 16 x bytes further on: its low 14 bits count 16 bytes, up to 256 KB.
template <int kSwizzleBytes = 128>
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  return wgmma_swizzle_bits(kSwizzleBytes) | uint64_t{stride_bytes >> 4} << 32 | uint64_t{leading_bytes >> 4} << 16 |
         uint64_t{(address & 0x3ffff) >> 4};
}

/// The descriptor of the operand 16 * `steps` bytes further on, by one 32-bit addition.
__device__ __forceinline__ uint64_t wgmma_descriptor_at(uint64_t descriptor, uint32_t steps) {
  return (descriptor & 0xffffffff00000000) | (static_cast<uint32_t>(descriptor) + steps);
}

// ---- order ----

/// Orders this warpgroup's accesses to registers before the wgmma that follow. The first wgmma of a batch needs it, and
/// so does every wgmma whose A or D registers were touched since.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Ends a group of wgmma.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most kPending groups are in flight. Only then may the registers of the others be touched and the
/// shared memory that they read be overwritten.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving accesses to `registers` across this point: the compiler does not know that a wgmma
/// continues after its asm. No instruction. A statement takes kAtOnce registers, 4 or 16. NVVM's time for it grows
/// faster than its operands, so 4 takes less. But the order of instructions depends on kAtOnce in some kernels.
#define KERNELWRIGHT_PIN4(c, r, i) "+" c(r[i]), "+" c(r[(i) + 1]), "+" c(r[(i) + 2]), "+" c(r[(i) + 3])
template <int kAtOnce = 16, int kCount>
__device__ __forceinline__ void pin_registers(float (&registers)[kCount]) {
  static_assert(kCount % 4 == 0);
#pragma unroll
  for (int i = 0; i + 16 <= kCount && kAtOnce == 16; i += 16)
    asm volatile(""
                 : KERNELWRIGHT_PIN4("f", registers, i), KERNELWRIGHT_PIN4("f", registers, i + 4),
                   KERNELWRIGHT_PIN4("f", registers, i + 8), KERNELWRIGHT_PIN4("f", registers, i + 12)::"memory");
#pragma unroll
  for (int i = kAtOnce == 16 ? kCount / 16 * 16 : 0; i < kCount; i += 4)
    asm volatile("" : KERNELWRIGHT_PIN4("f", registers, i)::"memory");
}
template <int kRows>
__device__ __forceinline__ void pin_registers(uint32_t (&registers)[kRows][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) asm volatile("" : KERNELWRIGHT_PIN4("r", registers[i], 0)::"memory");
}
#undef KERNELWRIGHT_PIN4

// ---- products ----

// Operand lists: placeholders %0 .. and registers d[0] ... Each 8 further columns take four more of both.
#define KERNELWRIGHT_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define KERNELWRIGHT_PLACES_8 "%0, %1, %2, %3"
#define KERNELWRIGHT_PLACES_16 KERNELWRIGHT_PLACES_8 ", %4, %5, %6, %7"
#define KERNELWRIGHT_PLACES_24 KERNELWRIGHT_PLACES_16 ", %8, %9, %10, %11"
#define KERNELWRIGHT_PLACES_32 KERNELWRIGHT_PLACES_24 ", %12, %13, %14, %15"
#define KERNELWRIGHT_PLACES_40 KERNELWRIGHT_PLACES_32 ", %16, %17, %18, %19"
#define KERNELWRIGHT_PLACES_48 KERNELWRIGHT_PLACES_40 ", %20, %21, %22, %23"
#define KERNELWRIGHT_PLACES_56 KERNELWRIGHT_PLACES_48 ", %24, %25, %26, %27"
#define KERNELWRIGHT_PLACES_64 KERNELWRIGHT_PLACES_56 ", %28, %29, %30, %31"
#define KERNELWRIGHT_PLACES_72 KERNELWRIGHT_PLACES_64 ", %32, %33, %34, %35"
#define KERNELWRIGHT_PLACES_80 KERNELWRIGHT_PLACES_72 ", %36, %37, %38, %39"
#define KERNELWRIGHT_PLACES_88 KERNELWRIGHT_PLACES_80 ", %40, %41, %42, %43"
#define KERNELWRIGHT_PLACES_96 KERNELWRIGHT_PLACES_88 ", %44, %45, %46, %47"
#define KERNELWRIGHT_PLACES_104 KERNELWRIGHT_PLACES_96 ", %48, %49, %50, %51"
#define KERNELWRIGHT_PLACES_112 KERNELWRIGHT_PLACES_104 ", %52, %53, %54, %55"
#define KERNELWRIGHT_PLACES_120 KERNELWRIGHT_PLACES_112 ", %56, %57, %58, %59"
#define KERNELWRIGHT_PLACES_128 KERNELWRIGHT_PLACES_120 ", %60, %61, %62, %63"
#define KERNELWRIGHT_PLACES_136 KERNELWRIGHT_PLACES_128 ", %64, %65, %66, %67"
#define KERNELWRIGHT_PLACES_144 KERNELWRIGHT_PLACES_136 ", %68, %69, %70, %71"
#define KERNELWRIGHT_PLACES_152 KERNELWRIGHT_PLACES_144 ", %72, %73, %74, %75"
#define KERNELWRIGHT_PLACES_160 KERNELWRIGHT_PLACES_152 ", %76, %77, %78, %79"
#define KERNELWRIGHT_PLACES_168 KERNELWRIGHT_PLACES_160 ", %80, %81, %82, %83"
#define KERNELWRIGHT_PLACES_176 KERNELWRIGHT_PLACES_168 ", %84, %85, %86, %87"
#define KERNELWRIGHT_PLACES_184 KERNELWRIGHT_PLACES_176 ", %88, %89, %90, %91"
#define KERNELWRIGHT_PLACES_192 KERNELWRIGHT_PLACES_184 ", %92, %93, %94, %95"
#define KERNELWRIGHT_PLACES_200 KERNELWRIGHT_PLACES_192 ", %96, %97, %98, %99"
#define KERNELWRIGHT_PLACES_208 KERNELWRIGHT_PLACES_200 ", %100, %101, %102, %103"
#define KERNELWRIGHT_PLACES_216 KERNELWRIGHT_PLACES_208 ", %104, %105, %106, %107"
#define KERNELWRIGHT_PLACES_224 KERNELWRIGHT_PLACES_216 ", %108, %109, %110, %111"
#define KERNELWRIGHT_PLACES_232 KERNELWRIGHT_PLACES_224 ", %112, %113, %114, %115"
#define KERNELWRIGHT_PLACES_240 KERNELWRIGHT_PLACES_232 ", %116, %117, %118, %119"
#define KERNELWRIGHT_PLACES_248 KERNELWRIGHT_PLACES_240 ", %120, %121, %122, %123"
#define KERNELWRIGHT_PLACES_256 KERNELWRIGHT_PLACES_248 ", %124, %125, %126, %127"
#define KERNELWRIGHT_SUMS_8 KERNELWRIGHT_D4(0)
#define KERNELWRIGHT_SUMS_16 KERNELWRIGHT_SUMS_8, KERNELWRIGHT_D4(4)
#define KERNELWRIGHT_SUMS_24 KERNELWRIGHT_SUMS_16, KERNELWRIGHT_D4(8)
#define KERNELWRIGHT_SUMS_32 KERNELWRIGHT_SUMS_24, KERNELWRIGHT_D4(12)
#define KERNELWRIGHT_SUMS_40 KERNELWRIGHT_SUMS_32, KERNELWRIGHT_D4(16)
#define KERNELWRIGHT_SUMS_48 KERNELWRIGHT_SUMS_40, KERNELWRIGHT_D4(20)
#define KERNELWRIGHT_SUMS_56 KERNELWRIGHT_SUMS_48, KERNELWRIGHT_D4(24)
#define KERNELWRIGHT_SUMS_64 KERNELWRIGHT_SUMS_56, KERNELWRIGHT_D4(28)
#define KERNELWRIGHT_SUMS_72 KERNELWRIGHT_SUMS_64, KERNELWRIGHT_D4(32)
#define KERNELWRIGHT_SUMS_80 KERNELWRIGHT_SUMS_72, KERNELWRIGHT_D4(36)
#define KERNELWRIGHT_SUMS_88 KERNELWRIGHT_SUMS_80, KERNELWRIGHT_D4(40)
#define KERNELWRIGHT_SUMS_96 KERNELWRIGHT_SUMS_88, KERNELWRIGHT_D4(44)
#define KERNELWRIGHT_SUMS_104 KERNELWRIGHT_SUMS_96, KERNELWRIGHT_D4(48)
#define KERNELWRIGHT_SUMS_112 KERNELWRIGHT_SUMS_104, KERNELWRIGHT_D4(52)
#define KERNELWRIGHT_SUMS_120 KERNELWRIGHT_SUMS_112, KERNELWRIGHT_D4(56)
#define KERNELWRIGHT_SUMS_128 KERNELWRIGHT_SUMS_120, KERNELWRIGHT_D4(60)
#define KERNELWRIGHT_SUMS_136 KERNELWRIGHT_SUMS_128, KERNELWRIGHT_D4(64)
#define KERNELWRIGHT_SUMS_144 KERNELWRIGHT_SUMS_136, KERNELWRIGHT_D4(68)
#define KERNELWRIGHT_SUMS_152 KERNELWRIGHT_SUMS_144, KERNELWRIGHT_D4(72)
#define KERNELWRIGHT_SUMS_160 KERNELWRIGHT_SUMS_152, KERNELWRIGHT_D4(76)
#define KERNELWRIGHT_SUMS_168 KERNELWRIGHT_SUMS_160, KERNELWRIGHT_D4(80)
#define KERNELWRIGHT_SUMS_176 KERNELWRIGHT_SUMS_168, KERNELWRIGHT_D4(84)
#define KERNELWRIGHT_SUMS_184 KERNELWRIGHT_SUMS_176, KERNELWRIGHT_D4(88)
#define KERNELWRIGHT_SUMS_192 KERNELWRIGHT_SUMS_184, KERNELWRIGHT_D4(92)
#define KERNELWRIGHT_SUMS_200 KERNELWRIGHT_SUMS_192, KERNELWRIGHT_D4(96)
#define KERNELWRIGHT_SUMS_208 KERNELWRIGHT_SUMS_200, KERNELWRIGHT_D4(100)
#define KERNELWRIGHT_SUMS_216 KERNELWRIGHT_SUMS_208, KERNELWRIGHT_D4(104)
#define KERNELWRIGHT_SUMS_224 KERNELWRIGHT_SUMS_216, KERNELWRIGHT_D4(108)
#define KERNELWRIGHT_SUMS_232 KERNELWRIGHT_SUMS_224, KERNELWRIGHT_D4(112)
#define KERNELWRIGHT_SUMS_240 KERNELWRIGHT_SUMS_232, KERNELWRIGHT_D4(116)
#define KERNELWRIGHT_SUMS_248 KERNELWRIGHT_SUMS_240, KERNELWRIGHT_D4(120)
#define KERNELWRIGHT_SUMS_256 KERNELWRIGHT_SUMS_248, KERNELWRIGHT_D4(124)

// p0 ..: the numbers of the placeholders after those of D.
#define KERNELWRIGHT_WGMMA_LINE(type, n) \
  "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" KERNELWRIGHT_PLACES_##n "}, "
#define KERNELWRIGHT_WGMMA_SS(type, n, p0, p1, p2, p3, p4, p5)                                                      \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #p2                                                               \
               ", 0; " KERNELWRIGHT_WGMMA_LINE(type, n) "%" #p0 ", %" #p1 ", p, %" #p3 ", 1, %" #p4 ", %" #p5 "; }" \
               : KERNELWRIGHT_SUMS_##n                                                                              \
               : "l"(a), "l"(b), "r"(accumulate), "n"(kScaleA), "n"(kAMnMajor ? 1 : 0), "n"(kBMnMajor ? 1 : 0)      \
               : "memory")
#define KERNELWRIGHT_AND(p) ", %" #p
#define KERNELWRIGHT_WGMMA_RS(line, type, more, n, p0, p1, p2, p3, p4, p5, p6, p7)                                   \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #p5 ", 0; " line(type, n) "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3   \
                                                                            "}, %" #p4 ", p, %" #p6 ", 1" more "; }" \
               : KERNELWRIGHT_SUMS_##n                                                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kScaleA),                  \
                 "n"(kBMnMajor ? 1 : 0)                                                                              \
               : "memory")
#define KERNELWRIGHT_WGMMA_SS_X4(type, n, p0, p1, p2, p3, p4, p5, p6)                                               \
  asm volatile(                                                                                                     \
      "{ .reg .pred p, q; .reg .b64 a1, a2, a3, b1, b2, b3; setp.ne.b32 p, %" #p2 ", 0; setp.eq.b32 q, %" #p2       \
      ", %" #p2 "; add.s64 a1, %" #p0 ", %" #p3 "; add.s64 b1, %" #p1 ", %" #p4 "; add.s64 a2, a1, %" #p3           \
      "; add.s64 b2, b1, %" #p4 "; add.s64 a3, a2, %" #p3 "; add.s64 b3, b2, %" #p4 "; " KERNELWRIGHT_WGMMA_LINE(   \
          type,                                                                                                     \
          n) "%" #p0 ", %" #p1 ", p, 1, 1, %" #p5 ", %" #p6                                                         \
             "; " KERNELWRIGHT_WGMMA_LINE(type, n) "a1, b1, q, 1, 1, %" #p5 ", %" #p6 "; " KERNELWRIGHT_WGMMA_LINE( \
                 type, n) "a2, b2, q, 1, 1, %" #p5 ", %" #p6                                                        \
                          "; " KERNELWRIGHT_WGMMA_LINE(type, n) "a3, b3, q, 1, 1, %" #p5 ", %" #p6 "; }"            \
      : KERNELWRIGHT_SUMS_##n                                                                                       \
      : "l"(a), "l"(b), "r"(accumulate), "n"(kStepA), "n"(kStepB), "n"(kAMnMajor ? 1 : 0), "n"(kBMnMajor ? 1 : 0)   \
      : "memory")
#define KERNELWRIGHT_WGMMA_FP8_LINE(types, n) \
  "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32." types " {" KERNELWRIGHT_PLACES_##n "}, "
#define KERNELWRIGHT_WGMMA_FP8_SS(types, n, p0, p1, p2)                                                               \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #p2 ", 0; " KERNELWRIGHT_WGMMA_FP8_LINE(types, n) "%" #p0 ", %" #p1 \
                                                                                                    ", p, 1, 1; }"    \
               : KERNELWRIGHT_SUMS_##n                                                                                \
               : "l"(a), "l"(b), "r"(accumulate)                                                                      \
               : "memory")
#define KERNELWRIGHT_WGMMA_FP8_X4(types, n, p0, p1, p2, p3, p4)                                                       \
  asm volatile(                                                                                                       \
      "{ .reg .pred p, q; .reg .b64 a1, a2, a3, b1, b2, b3; setp.ne.b32 p, %" #p2 ", 0; setp.eq.b32 q, %" #p2         \
      ", %" #p2 "; add.s64 a1, %" #p0 ", %" #p3 "; add.s64 b1, %" #p1 ", %" #p4 "; add.s64 a2, a1, %" #p3             \
      "; add.s64 b2, b1, %" #p4 "; add.s64 a3, a2, %" #p3 "; add.s64 b3, b2, %" #p4 "; " KERNELWRIGHT_WGMMA_FP8_LINE( \
          types,                                                                                                      \
          n) "%" #p0 ", %" #p1                                                                                        \
             ", p, 1, 1; " KERNELWRIGHT_WGMMA_FP8_LINE(types, n) "a1, b1, q, 1, 1; " KERNELWRIGHT_WGMMA_FP8_LINE(     \
                 types, n) "a2, b2, q, 1, 1; " KERNELWRIGHT_WGMMA_FP8_LINE(types, n) "a3, b3, q, 1, 1; }"             \
      : KERNELWRIGHT_SUMS_##n                                                                                         \
      : "l"(a), "l"(b), "r"(accumulate), "n"(kStepA), "n"(kStepB)                                                     \
      : "memory")
#define KERNELWRIGHT_A4(i) "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3])
#define KERNELWRIGHT_WGMMA_RS_X4(type, n, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, \
                                 p17, p18, p19)                                                                      \
  asm volatile("{ .reg .pred p, q; .reg .b64 b1, b2, b3; setp.ne.b32 p, %" #p17 ", 0; setp.eq.b32 q, %" #p17         \
               ", %" #p17 "; add.s64 b1, %" #p16 ", %" #p18 "; add.s64 b2, b1, %" #p18 "; add.s64 b3, b2, %" #p18    \
               "; " KERNELWRIGHT_WGMMA_LINE(                                                                         \
                   type, n) "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p16 ", p, 1, 1, %" #p19                   \
                            "; " KERNELWRIGHT_WGMMA_LINE(                                                            \
                                type, n) "{%" #p4 ", %" #p5 ", %" #p6 ", %" #p7 "}, b1, q, 1, 1, %" #p19             \
                                         "; " KERNELWRIGHT_WGMMA_LINE(                                               \
                                             type, n) "{%" #p8 ", %" #p9 ", %" #p10 ", %" #p11                       \
                                                      "}, b2, q, 1, 1, %" #p19 "; " KERNELWRIGHT_WGMMA_LINE(         \
                                                          type, n) "{%" #p12 ", %" #p13 ", %" #p14 ", %" #p15        \
                                                                   "}, b3, q, 1, 1, %" #p19 "; }"                    \
               : KERNELWRIGHT_SUMS_##n                                                                               \
               : KERNELWRIGHT_A4(0), KERNELWRIGHT_A4(1), KERNELWRIGHT_A4(2), KERNELWRIGHT_A4(3), "l"(b),             \
                 "r"(accumulate), "n"(kStepB), "n"(kBMnMajor ? 1 : 0)                                                \
               : "memory")

/// wgmma_ss: A and B from shared memory, each K-major unless the function says MN-major.
/// wgmma_rs: A from registers, in the layout of D's registers with two elements packed: {4j, 4j+1}, {4j+2, 4j+3} of j
/// and j + 1. They must not change until the group has ended. e4m3: as the bytes of four k in each register; B is
/// K-major. `accumulate` 0: D is overwritten. kScaleA: 1, or -1 to subtract the product. wgmma_fp8: e4m3 and e5m2 in
/// any mix, both K-major. _x4: four products in a row, D += A[i] B[i]; kStepA and kStepB (in units of 16 bytes) lead
/// from one operand to the next. One asm statement holds all four, because a statement with all of D costs NVRTC more
/// than its instructions do.
#define KERNELWRIGHT_WGMMA(n, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18,     \
                           p19)                                                                                        \
  template <DType kDType, bool kBMnMajor, bool kAMnMajor = false, int kScaleA = 1>                                     \
  __device__ __forceinline__ void wgmma_ss(float(&d)[n / 2], uint64_t a, uint64_t b, uint32_t accumulate) {            \
    if constexpr (kDType == DType::kBf16) {                                                                            \
      KERNELWRIGHT_WGMMA_SS("bf16", n, p0, p1, p2, p3, p4, p5);                                                        \
    } else {                                                                                                           \
      static_assert(kDType == DType::kF16, "wgmma of 16-bit types");                                                   \
      KERNELWRIGHT_WGMMA_SS("f16", n, p0, p1, p2, p3, p4, p5);                                                         \
    }                                                                                                                  \
  }                                                                                                                    \
  template <DType kDType, bool kBMnMajor, int kScaleA = 1>                                                             \
  __device__ __forceinline__ void wgmma_rs(float(&d)[n / 2], const uint32_t(&a)[4], uint64_t b, uint32_t accumulate) { \
    if constexpr (kDType == DType::kBf16) {                                                                            \
      KERNELWRIGHT_WGMMA_RS(KERNELWRIGHT_WGMMA_LINE, "bf16", KERNELWRIGHT_AND(p7), n, p0, p1, p2, p3, p4, p5, p6, p7); \
    } else if constexpr (kDType == DType::kE4m3) {                                                                     \
      KERNELWRIGHT_WGMMA_RS(KERNELWRIGHT_WGMMA_FP8_LINE, "e4m3.e4m3", "", n, p0, p1, p2, p3, p4, p5, p6, p7);          \
    } else {                                                                                                           \
      static_assert(kDType == DType::kF16, "wgmma of 16-bit types");                                                   \
      KERNELWRIGHT_WGMMA_RS(KERNELWRIGHT_WGMMA_LINE, "f16", KERNELWRIGHT_AND(p7), n, p0, p1, p2, p3, p4, p5, p6, p7);  \
    }                                                                                                                  \
  }                                                                                                                    \
  template <DType kDType, bool kBMnMajor, int kStepA, int kStepB, bool kAMnMajor = false>                              \
  __device__ __forceinline__ void wgmma_ss_x4(float(&d)[n / 2], uint64_t a, uint64_t b, uint32_t accumulate) {         \
    if constexpr (kDType == DType::kBf16) {                                                                            \
      KERNELWRIGHT_WGMMA_SS_X4("bf16", n, p0, p1, p2, p3, p4, p5, p6);                                                 \
    } else {                                                                                                           \
      static_assert(kDType == DType::kF16, "wgmma of 16-bit types");                                                   \
      KERNELWRIGHT_WGMMA_SS_X4("f16", n, p0, p1, p2, p3, p4, p5, p6);                                                  \
    }                                                                                                                  \
  }                                                                                                                    \
  template <DType kADType, DType kBDType>                                                                              \
  __device__ __forceinline__ void wgmma_fp8_ss(float(&d)[n / 2], uint64_t a, uint64_t b, uint32_t accumulate) {        \
    if constexpr (kADType == DType::kE4m3 && kBDType == DType::kE4m3) {                                                \
      KERNELWRIGHT_WGMMA_FP8_SS("e4m3.e4m3", n, p0, p1, p2);                                                           \
    } else if constexpr (kADType == DType::kE4m3 && kBDType == DType::kE5m2) {                                         \
      KERNELWRIGHT_WGMMA_FP8_SS("e4m3.e5m2", n, p0, p1, p2);                                                           \
    } else if constexpr (kADType == DType::kE5m2 && kBDType == DType::kE4m3) {                                         \
      KERNELWRIGHT_WGMMA_FP8_SS("e5m2.e4m3", n, p0, p1, p2);                                                           \
    } else {                                                                                                           \
      static_assert(kADType == DType::kE5m2 && kBDType == DType::kE5m2, "wgmma of fp8 types");                         \
      KERNELWRIGHT_WGMMA_FP8_SS("e5m2.e5m2", n, p0, p1, p2);                                                           \
    }                                                                                                                  \
  }                                                                                                                    \
  template <DType kADType, DType kBDType, int kStepA, int kStepB>                                                      \
  __device__ __forceinline__ void wgmma_fp8_ss_x4(float(&d)[n / 2], uint64_t a, uint64_t b, uint32_t accumulate) {     \
    if constexpr (kADType == DType::kE4m3 && kBDType == DType::kE4m3) {                                                \
      KERNELWRIGHT_WGMMA_FP8_X4("e4m3.e4m3", n, p0, p1, p2, p3, p4);                                                   \
    } else if constexpr (kADType == DType::kE4m3 && kBDType == DType::kE5m2) {                                         \
      KERNELWRIGHT_WGMMA_FP8_X4("e4m3.e5m2", n, p0, p1, p2, p3, p4);                                                   \
    } else if constexpr (kADType == DType::kE5m2 && kBDType == DType::kE4m3) {                                         \
      KERNELWRIGHT_WGMMA_FP8_X4("e5m2.e4m3", n, p0, p1, p2, p3, p4);                                                   \
    } else {                                                                                                           \
      static_assert(kADType == DType::kE5m2 && kBDType == DType::kE5m2, "wgmma of fp8 types");                         \
      KERNELWRIGHT_WGMMA_FP8_X4("e5m2.e5m2", n, p0, p1, p2, p3, p4);                                                   \
    }                                                                                                                  \
  }                                                                                                                    \
  template <DType kDType, bool kBMnMajor, int kStepB>                                                                  \
  __device__ __forceinline__ void wgmma_rs_x4(float(&d)[n / 2], const uint32_t(*a)[4], uint64_t b,                     \
                                              uint32_t accumulate) {                                                   \
    if constexpr (kDType == DType::kBf16) {                                                                            \
      KERNELWRIGHT_WGMMA_RS_X4("bf16", n, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16,   \
                               p17, p18, p19);                                                                         \
    } else {                                                                                                           \
      static_assert(kDType == DType::kF16, "wgmma of 16-bit types");                                                   \
      KERNELWRIGHT_WGMMA_RS_X4("f16", n, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16,    \
                               p17, p18, p19);                                                                         \
    }                                                                                                                  \
  }

#ifdef KERNELWRIGHT_WGMMA_N0  // an undefined name counts as 0 below
#define KERNELWRIGHT_WGMMA_WANTED(n) \
  (KERNELWRIGHT_WGMMA_N0 == n || KERNELWRIGHT_WGMMA_N1 == n || KERNELWRIGHT_WGMMA_N2 == n || KERNELWRIGHT_WGMMA_N3 == n)
#else
#define KERNELWRIGHT_WGMMA_WANTED(n) 1
#endif
#if KERNELWRIGHT_WGMMA_WANTED(8)
KERNELWRIGHT_WGMMA(8, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(16)
KERNELWRIGHT_WGMMA(16, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(24)
KERNELWRIGHT_WGMMA(24, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(32)
KERNELWRIGHT_WGMMA(32, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(40)
KERNELWRIGHT_WGMMA(40, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(48)
KERNELWRIGHT_WGMMA(48, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(56)
KERNELWRIGHT_WGMMA(56, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(64)
KERNELWRIGHT_WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(72)
KERNELWRIGHT_WGMMA(72, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(80)
KERNELWRIGHT_WGMMA(80, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(88)
KERNELWRIGHT_WGMMA(88, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(96)
KERNELWRIGHT_WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(104)
KERNELWRIGHT_WGMMA(104, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(112)
KERNELWRIGHT_WGMMA(112, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(120)
KERNELWRIGHT_WGMMA(120, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(128)
KERNELWRIGHT_WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(136)
KERNELWRIGHT_WGMMA(136, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(144)
KERNELWRIGHT_WGMMA(144, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(152)
KERNELWRIGHT_WGMMA(152, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(160)
KERNELWRIGHT_WGMMA(160, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(168)
KERNELWRIGHT_WGMMA(168, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(176)
KERNELWRIGHT_WGMMA(176, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(184)
KERNELWRIGHT_WGMMA(184, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(192)
KERNELWRIGHT_WGMMA(192, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(200)
KERNELWRIGHT_WGMMA(200, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118,
                   119)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(208)
KERNELWRIGHT_WGMMA(208, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122,
                   123)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(216)
KERNELWRIGHT_WGMMA(216, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126,
                   127)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(224)
KERNELWRIGHT_WGMMA(224, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130,
                   131)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(232)
KERNELWRIGHT_WGMMA(232, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134,
                   135)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(240)
KERNELWRIGHT_WGMMA(240, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138,
                   139)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(248)
KERNELWRIGHT_WGMMA(248, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142,
                   143)
#endif
#if KERNELWRIGHT_WGMMA_WANTED(256)
KERNELWRIGHT_WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146,
                   147)
#endif
#undef KERNELWRIGHT_WGMMA_WANTED
#undef KERNELWRIGHT_WGMMA
#undef KERNELWRIGHT_AND
#undef KERNELWRIGHT_WGMMA_RS
#undef KERNELWRIGHT_WGMMA_RS_X4
#undef KERNELWRIGHT_A4
#undef KERNELWRIGHT_WGMMA_SS_X4
#undef KERNELWRIGHT_WGMMA_FP8_X4
#undef KERNELWRIGHT_WGMMA_FP8_LINE
#undef KERNELWRIGHT_WGMMA_LINE
#undef KERNELWRIGHT_WGMMA_SS
#undef KERNELWRIGHT_SUMS_256
#undef KERNELWRIGHT_SUMS_248
#undef KERNELWRIGHT_SUMS_240
#undef KERNELWRIGHT_SUMS_232
#undef KERNELWRIGHT_SUMS_224
#undef KERNELWRIGHT_SUMS_216
#undef KERNELWRIGHT_SUMS_208
#undef KERNELWRIGHT_SUMS_200
#undef KERNELWRIGHT_SUMS_192
#undef KERNELWRIGHT_SUMS_184
#undef KERNELWRIGHT_SUMS_176
#undef KERNELWRIGHT_SUMS_168
#undef KERNELWRIGHT_SUMS_160
#undef KERNELWRIGHT_SUMS_152
#undef KERNELWRIGHT_SUMS_144
#undef KERNELWRIGHT_SUMS_136
#undef KERNELWRIGHT_SUMS_128
#undef KERNELWRIGHT_SUMS_120
#undef KERNELWRIGHT_SUMS_112
#undef KERNELWRIGHT_SUMS_104
#undef KERNELWRIGHT_SUMS_96
#undef KERNELWRIGHT_SUMS_88
#undef KERNELWRIGHT_SUMS_80
#undef KERNELWRIGHT_SUMS_72
#undef KERNELWRIGHT_SUMS_64
#undef KERNELWRIGHT_SUMS_56
#undef KERNELWRIGHT_SUMS_48
#undef KERNELWRIGHT_SUMS_40
#undef KERNELWRIGHT_SUMS_32
#undef KERNELWRIGHT_SUMS_24
#undef KERNELWRIGHT_SUMS_16
#undef KERNELWRIGHT_SUMS_8
#undef KERNELWRIGHT_PLACES_256
#undef KERNELWRIGHT_PLACES_248
#undef KERNELWRIGHT_PLACES_240
#undef KERNELWRIGHT_PLACES_232
#undef KERNELWRIGHT_PLACES_224
#undef KERNELWRIGHT_PLACES_216
#undef KERNELWRIGHT_PLACES_208
#undef KERNELWRIGHT_PLACES_200
#undef KERNELWRIGHT_PLACES_192
#undef KERNELWRIGHT_PLACES_184
#undef KERNELWRIGHT_PLACES_176
#undef KERNELWRIGHT_PLACES_168
#undef KERNELWRIGHT_PLACES_160
#undef KERNELWRIGHT_PLACES_152
#undef KERNELWRIGHT_PLACES_144
#undef KERNELWRIGHT_PLACES_136
#undef KERNELWRIGHT_PLACES_128
#undef KERNELWRIGHT_PLACES_120
#undef KERNELWRIGHT_PLACES_112
#undef KERNELWRIGHT_PLACES_104
#undef KERNELWRIGHT_PLACES_96
#undef KERNELWRIGHT_PLACES_88
#undef KERNELWRIGHT_PLACES_80
#undef KERNELWRIGHT_PLACES_72
#undef KERNELWRIGHT_PLACES_64
#undef KERNELWRIGHT_PLACES_56
#undef KERNELWRIGHT_PLACES_48
#undef KERNELWRIGHT_PLACES_40
#undef KERNELWRIGHT_PLACES_32
#undef KERNELWRIGHT_PLACES_24
#undef KERNELWRIGHT_PLACES_16
#undef KERNELWRIGHT_PLACES_8
#undef KERNELWRIGHT_D4

}  // namespace kernelwright::ptx
