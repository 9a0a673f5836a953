/// Blackwell's matrix multiply (PTX ISA 8.6, sm_100a): D[m][n] += A[m][k] B[k][n]. D is in tensor memory, B in shared
/// memory, A in either. One thread issues it for a CTA or a CTA pair. It runs until a tcgen05.commit of that thread
/// arrives. Products that one thread issues are performed in order. contract/tcgen05_descriptor.h has the descriptors.
///
/// `d`, the scales, and `a` if it is a tensor-memory address, are lane << 16 | column. `accumulate` 0: D is
/// overwritten.
#pragma once

#include "contract/integers.h"
#include "contract/tcgen05_descriptor.h"

namespace kernelwright::ptx {

using contract::InstructionDescriptor;
using contract::MmaElement;
using contract::MmaKind;
using contract::MmaOutput;
using contract::MmaScale;
using contract::MmaSwizzle;
using contract::SharedDescriptor;

// The qualifiers must be text, so there is a function for each kind and number of CTAs. A constant chooses among them.
#define KERNELWRIGHT_TCGEN05_MMA(group, kind, a_place, a_constraint)                                                  \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::" group ".kind::" kind " [%0], " a_place \
               ", %2, %3, p; }" ::"r"(d),                                                                             \
               a_constraint(a), "l"(b), "r"(descriptor), "r"(accumulate)                                              \
               : "memory")
#define KERNELWRIGHT_TCGEN05_KINDS(group, a_place, a_constraint)      \
  if constexpr (kKind == MmaKind::kF16)                               \
    KERNELWRIGHT_TCGEN05_MMA(group, "f16", a_place, a_constraint);    \
  else if constexpr (kKind == MmaKind::kTf32)                         \
    KERNELWRIGHT_TCGEN05_MMA(group, "tf32", a_place, a_constraint);   \
  else if constexpr (kKind == MmaKind::kF8f6f4)                       \
    KERNELWRIGHT_TCGEN05_MMA(group, "f8f6f4", a_place, a_constraint); \
  else                                                                \
    KERNELWRIGHT_TCGEN05_MMA(group, "i8", a_place, a_constraint)

/// tcgen05.mma with A and B in shared memory, by their matrix descriptors.
template <MmaKind kKind, int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_mma_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t descriptor,
                                               uint32_t accumulate) {
  static_assert(!contract::is_block_scaled(kKind), "tcgen05_mma_scaled_ss() takes the scales");
  static_assert(kCtaGroup == 1 || kCtaGroup == 2);
  if constexpr (kCtaGroup == 1) {
    KERNELWRIGHT_TCGEN05_KINDS("1", "%1", "l");
  } else {
    KERNELWRIGHT_TCGEN05_KINDS("2", "%1", "l");
  }
}

/// The same with A in tensor memory. A is K-major: a row of A lies in the lane of its row of D, with 16-bit elements
/// two to a column.
template <MmaKind kKind, int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_mma_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t descriptor,
                                               uint32_t accumulate) {
  static_assert(!contract::is_block_scaled(kKind), "tcgen05_mma_scaled_ts() takes the scales");
  static_assert(kCtaGroup == 1 || kCtaGroup == 2);
  if constexpr (kCtaGroup == 1) {
    KERNELWRIGHT_TCGEN05_KINDS("1", "[%1]", "r");
  } else {
    KERNELWRIGHT_TCGEN05_KINDS("2", "[%1]", "r");
  }
}
#undef KERNELWRIGHT_TCGEN05_KINDS
#undef KERNELWRIGHT_TCGEN05_MMA

/// tcgen05.mma.ws of kind::f16 with A and B in shared memory: one CTA, M of 32, 64 or 128, and N of 64, 128 or 256. An
/// accumulator of 64 rows is folded: row r is lane r with the first half of the columns, and lane 64 + r with the rest.
__device__ __forceinline__ void tcgen05_mma_ws_ss_f16(uint32_t d, uint64_t a, uint64_t b, uint32_t descriptor,
                                                      uint32_t accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.ws.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d),
      "l"(a), "l"(b), "r"(descriptor), "r"(accumulate)
      : "memory");
}

#define KERNELWRIGHT_TCGEN05_SCALED(group, kind, a_place, a_constraint)                                               \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; tcgen05.mma.cta_group::" group ".kind::" kind " [%0], " a_place \
               ", %2, %3, [%4], [%5], p; }" ::"r"(d),                                                                 \
               a_constraint(a), "l"(b), "r"(descriptor), "r"(scale_a), "r"(scale_b), "r"(accumulate)                  \
               : "memory")
// scale_vec, because .block16 and .block32 need PTX ISA 8.8.
#define KERNELWRIGHT_TCGEN05_SCALED_KINDS(group, a_place, a_constraint)                              \
  if constexpr (kKind == MmaKind::kMxf8f6f4)                                                         \
    KERNELWRIGHT_TCGEN05_SCALED(group, "mxf8f6f4.block_scale.scale_vec::1X", a_place, a_constraint); \
  else if constexpr (kKind == MmaKind::kMxf4)                                                        \
    KERNELWRIGHT_TCGEN05_SCALED(group, "mxf4.block_scale.scale_vec::2X", a_place, a_constraint);     \
  else if constexpr (kScaleBlock == 32)                                                              \
    KERNELWRIGHT_TCGEN05_SCALED(group, "mxf4nvf4.block_scale.scale_vec::2X", a_place, a_constraint); \
  else                                                                                               \
    KERNELWRIGHT_TCGEN05_SCALED(group, "mxf4nvf4.block_scale.scale_vec::4X", a_place, a_constraint)

/// D += (A scale_a) (B scale_b), with one scale for kScaleBlock elements of k. Scale j of row r of A (or column r of B)
/// is byte id + j of a cell. The cell is at lane r % 32 and column r / 32 from the address on, in all four quarters of
/// the lanes.
template <MmaKind kKind, int kScaleBlock, int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_mma_scaled_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t descriptor,
                                                      uint32_t scale_a, uint32_t scale_b, uint32_t accumulate) {
  static_assert(contract::is_block_scaled(kKind), "tcgen05_mma_ss() is the one without scales");
  static_assert(kScaleBlock == 32 || (kScaleBlock == 16 && kKind == MmaKind::kMxf4nvf4));
  if constexpr (kCtaGroup == 1) {
    KERNELWRIGHT_TCGEN05_SCALED_KINDS("1", "%1", "l");
  } else {
    KERNELWRIGHT_TCGEN05_SCALED_KINDS("2", "%1", "l");
  }
}
template <MmaKind kKind, int kScaleBlock, int kCtaGroup = 1>
__device__ __forceinline__ void tcgen05_mma_scaled_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t descriptor,
                                                      uint32_t scale_a, uint32_t scale_b, uint32_t accumulate) {
  static_assert(contract::is_block_scaled(kKind), "tcgen05_mma_ts() is the one without scales");
  static_assert(kScaleBlock == 32 || (kScaleBlock == 16 && kKind == MmaKind::kMxf4nvf4));
  if constexpr (kCtaGroup == 1) {
    KERNELWRIGHT_TCGEN05_SCALED_KINDS("1", "[%1]", "r");
  } else {
    KERNELWRIGHT_TCGEN05_SCALED_KINDS("2", "[%1]", "r");
  }
}
#undef KERNELWRIGHT_TCGEN05_SCALED_KINDS
#undef KERNELWRIGHT_TCGEN05_SCALED

}  // namespace kernelwright::ptx
