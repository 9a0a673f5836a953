/// The descriptors of a tcgen05.mma, as bits (PTX ISA "TensorCore 5th Generation Family Instructions", "Matrix
/// Descriptors" and "Instruction Descriptor"). Both sides compile this file: kernels encode with it, tests check the
/// encoding.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

// ---- instruction descriptor, 32 bits ----

enum class MmaKind : uint32_t { kF16, kTf32, kF8f6f4, kI8, kMxf8f6f4, kMxf4, kMxf4nvf4 };
enum class MmaElement : uint32_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kE2m3, kE3m2, kE2m1, kU8, kS8 };
/// The enumerators have the values of the bits.
enum class MmaOutput : uint32_t { kF16 = 0, kF32 = 1, kS32 = 2 };
enum class MmaScale : uint32_t { kUe4m3 = 0, kUe8m0 = 1 };

constexpr bool is_block_scaled(MmaKind kind) {
  return kind == MmaKind::kMxf8f6f4 || kind == MmaKind::kMxf4 || kind == MmaKind::kMxf4nvf4;
}
/// The code of an element. The same code means different elements for different kinds.
constexpr uint32_t mma_element_code(MmaKind kind, MmaElement element) {
  switch (element) {
    case MmaElement::kF16: return 0;
    case MmaElement::kBf16: return 1;
    case MmaElement::kTf32: return 2;
    case MmaElement::kE4m3: return 0;
    case MmaElement::kE5m2: return 1;
    case MmaElement::kE2m3: return 3;
    case MmaElement::kE3m2: return 4;
    case MmaElement::kE2m1: return kind == MmaKind::kMxf4 || kind == MmaKind::kMxf4nvf4 ? 1 : 5;
    case MmaElement::kU8: return 0;
    case MmaElement::kS8: return 1;
  }
  return 0;
}

/// A dense product. `m` and `n` are the instruction's, so with cta_group::2 those of the pair. Fields that a kind does
/// not have must keep their defaults. bits() does not check this; the emulator does, field by field.
struct InstructionDescriptor {
  MmaKind kind = MmaKind::kF16;
  MmaElement a = MmaElement::kF16, b = MmaElement::kF16;  // 7-9, 10-12
  MmaOutput d = MmaOutput::kF32;                          // 4-5, without block scaling
  uint32_t m = 128, n = 8;                                // 24-28: m / 16; 17-22: n / 8
  bool a_mn_major = false, b_mn_major = false;            // 15, 16: false is K-major
  bool negate_a = false, negate_b = false;                // 13, 14: floats
  bool saturate = false;                                  // 3: integers
  MmaScale scale = MmaScale::kUe8m0;                      // 23, with block scaling
  uint32_t scale_a_id = 0, scale_b_id = 0;                // 29-30, 4-5, block scaling: first byte of a cell
  bool k96 = false;                                       // 31: K = 96 instead of 64 (mxf4, mxf4nvf4, from sm_103a on)

  constexpr uint32_t bits() const {
    const uint32_t common = mma_element_code(kind, a) << 7 | mma_element_code(kind, b) << 10 |
                            uint32_t{negate_a} << 13 | uint32_t{negate_b} << 14 | uint32_t{a_mn_major} << 15 |
                            uint32_t{b_mn_major} << 16 | (n >> 3) << 17 | (m >> 4) << 24;
    if (!is_block_scaled(kind)) return common | uint32_t{saturate} << 3 | static_cast<uint32_t>(d) << 4;
    return common | scale_b_id << 4 | static_cast<uint32_t>(scale) << 23 | scale_a_id << 29 | uint32_t{k96} << 31;
  }
};
/// The same descriptor with other scales: only the scales change from one step of K to the next.
constexpr uint32_t with_scale_ids(uint32_t bits, uint32_t scale_a_id, uint32_t scale_b_id) {
  return (bits & ~(3u << 29 | 3u << 4)) | scale_a_id << 29 | scale_b_id << 4;
}

// ---- matrix descriptor of an operand in shared memory, 64 bits ----

/// The enumerators have the values of the bits. The last one has atoms of 32 bytes: for transposed operands of
/// kind::tf32.
enum class MmaSwizzle : uint32_t { kNone = 0, k128BAtom32B = 1, k128B = 2, k64B = 4, k32B = 6 };
/// For a swizzle of 128, 64 or 32 bytes, or 0 for none (contract/shared_slab.h).
constexpr MmaSwizzle mma_swizzle(int32_t bytes) {
  return bytes == 128  ? MmaSwizzle::k128B
         : bytes == 64 ? MmaSwizzle::k64B
         : bytes == 32 ? MmaSwizzle::k32B
                       : MmaSwizzle::kNone;
}

/// Bits 32-45 are `stride_bytes`, bits 16-29 `leading_bytes`. Their meaning, by layout:
///   K-major     A row holds the swizzle's width of k. `stride_bytes` leads from 8 rows to the next 8.
///               `leading_bytes` is not read while K stays within the width.
///   MN-major    A row holds the swizzle's width of m or n for one k. `leading_bytes` leads to the next width of m or
///               n, `stride_bytes` from 8 k (4 k with atoms of 32 bytes) to the next.
///   no swizzle  The atom is 8 rows of 16 bytes that follow each other.
///               K-major: `leading_bytes` leads to the next 16 bytes of k, `stride_bytes` to the next 8 rows.
///               MN-major: `leading_bytes` leads to the next 8 k, `stride_bytes` to the next 16 bytes of m or n.
struct SharedDescriptor {
  MmaSwizzle swizzle = MmaSwizzle::k128B;  // 61-63
  uint32_t leading_bytes = 0, stride_bytes = 1024;
  uint32_t base_offset = 0;  // 49-51: (address at which the swizzle's pattern begins / 128) % 8, for a pattern that
                             // begins at no multiple of 8 rows

  /// The descriptor of an operand at `address` (bits 0-13: its low 18 bits / 16). Adding x / 16 gives the descriptor of
  /// the operand x bytes further on. With cta_group::2 it means the same place in both CTAs.
  constexpr uint64_t bits(uint32_t address) const {
    constexpr uint64_t kVersion = uint64_t{1} << 46;  // 46-48: 0b001 on sm_100; wgmma's descriptors have 0
    return static_cast<uint64_t>(swizzle) << 61 | uint64_t{base_offset} << 49 | kVersion |
           uint64_t{stride_bytes >> 4} << 32 | uint64_t{leading_bytes >> 4} << 16 | (address & 0x3ffff) >> 4;
  }
};

}  // namespace kernelwright::contract
