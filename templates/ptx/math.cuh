/// Arithmetic without a C++ spelling: approximations, conversions between storage types, the tensor cores' product.
#pragma once

#include "contract/integers.h"
#include "contract/words.h"

namespace kernelwright::ptx {

/// -infinity, because NVRTC has neither <limits> nor the builtin.
__device__ __forceinline__ float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

/// 2^x, within 2 ulp; subnormal results are 0. ex2(-inf) is +0.
__device__ __forceinline__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// log2(x), absolute error below 2^-22 near 1. lg2(0) is -inf.
__device__ __forceinline__ float lg2_approx_ftz(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x, within 1 ulp.
__device__ __forceinline__ float rcp_approx_ftz(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / sqrt(x), relative error below 2^-22.9.
__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger number. NaN if either is.
__device__ __forceinline__ float max_nan_f32(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

/// Two f32 to packed f16, round to nearest even; `low` in bits 15:0.
__device__ __forceinline__ uint32_t cvt_rn_f16x2_f32(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// Two f32 to packed bf16, round to nearest even; `low` in bits 15:0. sm_80.
__device__ __forceinline__ uint32_t cvt_rn_bf16x2_f32(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// The f16 in the low half of `bits`.
__device__ __forceinline__ float cvt_f32_f16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

/// Packed f16 product.
__device__ __forceinline__ uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/// Packed f16 a * b + c, rounded once.
__device__ __forceinline__ uint32_t fma_rn_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
/// The same for bf16. sm_80.
__device__ __forceinline__ uint32_t fma_rn_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// Two floats to e4m3, `low` in the low byte. Values beyond 448 become 448; NaN stays NaN. sm_89.
__device__ __forceinline__ uint16_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}
/// The same for e5m2; values beyond 57344 become 57344.
__device__ __forceinline__ uint16_t cvt_rn_satfinite_e5m2x2_f32(float low, float high) {
  uint16_t packed;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}
/// Two floats to e2m1, `low` in the low half of the byte. Values beyond 6 become 6. sm_100a, sm_103a, sm_120a.
__device__ __forceinline__ uint32_t cvt_rn_satfinite_e2m1x2_f32(float low, float high) {
  uint32_t packed;
  asm("{ .reg .b8 pair; cvt.rn.satfinite.e2m1x2.f32 pair, %1, %2; cvt.u32.u8 %0, pair; }"
      : "=r"(packed)
      : "f"(high), "f"(low));
  return packed;
}
/// Two e4m3 in the low half of `pair` to packed f16, exact; NaN stays NaN. sm_89.
__device__ __forceinline__ uint32_t cvt_rn_f16x2_e4m3x2(uint16_t pair) {
  uint32_t packed;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(packed) : "h"(pair));
  return packed;
}

/// The same for all four bytes: `low` becomes those of the low half.
__device__ __forceinline__ void cvt_rn_f16x2_e4m3x4(uint32_t bytes, uint32_t& low, uint32_t& high) {
  asm("{ .reg .b16 first, second; mov.b32 {first, second}, %2; "
      "cvt.rn.f16x2.e4m3x2 %0, first; cvt.rn.f16x2.e4m3x2 %1, second; }"
      : "=&r"(low), "=r"(high)
      : "r"(bytes));
}

/// prmt: bytes of {b, a}, selected by the nibbles of `selector`.
__device__ __forceinline__ uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(a), "r"(b), "r"(selector));
  return picked;
}

/// mma.m16n8k16, f32 += f16 f16 (PTX ISA 9.7.14, sm_80). Lane l holds rows l/4 and l/4+8 of A, and of B and C the
/// column(s) given by l/4 and 2(l%4).
__device__ __forceinline__ void mma_m16n8k16_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// As mma_m16n8k16_f16, for bf16.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// mma.m16n8k32, f32 += fp8 fp8 (PTX ISA 9.7.14, sm_89), each e4m3 or e5m2. Bytes lie in the registers as the bytes of
/// m16n8k16 do. Within the tensor cores, sums keep about 14 bits.
template <DType kA, DType kB>
__device__ __forceinline__ void mma_m16n8k32_fp8(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#define KERNELWRIGHT_MMA_FP8(types)                                          \
  asm("mma.sync.aligned.m16n8k32.row.col.f32." types                         \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (kA == DType::kE4m3 && kB == DType::kE4m3)
    KERNELWRIGHT_MMA_FP8("e4m3.e4m3");
  else if constexpr (kA == DType::kE4m3)
    KERNELWRIGHT_MMA_FP8("e4m3.e5m2");
  else if constexpr (kB == DType::kE4m3)
    KERNELWRIGHT_MMA_FP8("e5m2.e4m3");
  else
    KERNELWRIGHT_MMA_FP8("e5m2.e5m2");
#undef KERNELWRIGHT_MMA_FP8
}

}  // namespace kernelwright::ptx
