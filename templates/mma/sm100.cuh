/// Products on tcgen05: 128 rows of each CTA, accumulators in tensor memory, f32 sums. One thread issues them. This
/// file has the products of attention; mma/sm100_slab.cuh has those of a GEMM.
#pragma once

#include "contract/shared_slab.h"
#include "contract/words.h"
#include "ptx/tcgen05_mma.cuh"

namespace kernelwright::mma {

constexpr int kProductRows = 128;  // rows of one CTA in an instruction

/// How elements of a type are multiplied.
template <DType kType>
struct Operand {
  static constexpr int bits = bits_of(kType);
  static constexpr bool is_fp8 = kernelwright::is_fp8(kType);
  static constexpr bool is_fp4 = bits == 4;  // two elements to a byte
  static constexpr bool is_block_scaled = kernelwright::is_block_scaled(kType);
  static_assert(is_fp8 || is_block_scaled || kType == DType::kBf16 || kType == DType::kF16 || kType == DType::kTf32);
  static constexpr ptx::MmaKind kind = kType == DType::kMxfp8   ? ptx::MmaKind::kMxf8f6f4
                                       : kType == DType::kMxfp4 ? ptx::MmaKind::kMxf4
                                       : kType == DType::kNvfp4 ? ptx::MmaKind::kMxf4nvf4
                                       : is_fp8                 ? ptx::MmaKind::kF8f6f4
                                       : kType == DType::kTf32  ? ptx::MmaKind::kTf32
                                                                : ptx::MmaKind::kF16;
  static constexpr ptx::MmaElement element = is_fp4                  ? ptx::MmaElement::kE2m1
                                             : kType == DType::kE5m2 ? ptx::MmaElement::kE5m2
                                             : kType == DType::kTf32 ? ptx::MmaElement::kTf32
                                             : kType == DType::kBf16 ? ptx::MmaElement::kBf16
                                             : kType == DType::kF16  ? ptx::MmaElement::kF16
                                                                     : ptx::MmaElement::kE4m3;
  static constexpr int bytes = bits / 8;                        // for elements of 8 bits or more
  static constexpr int step = contract::kStepBytes * 8 / bits;  // elements of an instruction's K
  static constexpr int scale_block = scale_vector(kType);       // elements of k per scale
  static constexpr int scale_bytes_per_step = is_block_scaled ? step / scale_block : 0;
  static constexpr int scale_atoms = scale_bytes_per_step;  // atoms of 4 scales per row in a slab

  template <int kCtas>
  static constexpr uint32_t instruction(uint32_t n, bool b_mn_major) {
    ptx::InstructionDescriptor descriptor{};
    descriptor.kind = kind;
    descriptor.a = descriptor.b = element;
    descriptor.m = kCtas * kProductRows, descriptor.n = n;
    descriptor.b_mn_major = b_mn_major;
    return descriptor.bits();
  }
};

/// The descriptor of an operand at `address`, with the strides of its contract::SharedSlab.
template <int kSwizzleBytes>
__device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t address, uint32_t leading_bytes,
                                                        uint32_t stride_bytes) {
  ptx::SharedDescriptor descriptor{};
  descriptor.swizzle = contract::mma_swizzle(kSwizzleBytes);
  descriptor.stride_bytes = stride_bytes;
  descriptor.leading_bytes = leading_bytes;
  return descriptor.bits(address);
}

/// S = Q K^T: both operands K-major in slabs. kCtas 2: each CTA of the pair has 128 rows of Q and half of the keys in
/// its shared memory, at the same addresses. It gets its rows' scores of all keys. The last kRope of kDepth columns are
/// rotary: they have their own type, in slabs after the others.
template <DType kType, int kDepth, int kKeys, int kSwizzleBytes, int kCtas = 1, DType kRopeType = DType::kBf16,
          int kRope = 0>
struct ScoreProduct {
  using Type = Operand<kType>;
  using RopeType = Operand<kRopeType>;
  static constexpr int kSteps = (kDepth - kRope + Type::step - 1) / Type::step;  // columns past the depth are zeros
  // Steps come in groups. A group is the steps of one slab, or one step if the step takes several slabs.
  static constexpr int kGroupSlabs = contract::slabs_of_step(kSwizzleBytes);
  static constexpr int kGroupSteps = kGroupSlabs * contract::slab_width(kSwizzleBytes) / contract::kStepBytes;
  static constexpr int kPlainGroups = (kSteps + kGroupSteps - 1) / kGroupSteps;  // before the rotary groups
  static constexpr int kRopeSteps = (kRope + RopeType::step - 1) / RopeType::step;
  static constexpr uint32_t kInstruction = Type::template instruction<kCtas>(kKeys, false);
  static constexpr uint32_t kRopeInstruction = RopeType::template instruction<kCtas>(kKeys, false);

  /// Slabs [kFirstSlab, kFirstSlab + kCount). `queries` is the start of the tile's first slab, `keys` the start of slab
  /// kFirstSlab of the keys. Slab 0 overwrites `scores`.
  template <int kFirstSlab, int kCount>
  __device__ __forceinline__ static void issue(uint32_t scores, uint32_t queries, uint32_t keys) {
    static_assert(kFirstSlab % kGroupSlabs == 0 && kCount % kGroupSlabs == 0, "whole steps");
    constexpr int kKeyRows = kKeys / kCtas, kFirst = kFirstSlab / kGroupSlabs;
    constexpr int kWidth = contract::slab_width(kSwizzleBytes);
    constexpr contract::SharedSlab kQ{(kFirstSlab + kCount) * kWidth, kSwizzleBytes, Type::bits, kProductRows, false};
    constexpr contract::SharedSlab kK{kCount * kWidth, kSwizzleBytes, Type::bits, kKeyRows, false};
    const uint64_t a = swizzled_descriptor<kSwizzleBytes>(queries, kQ.leading_bytes(), kQ.stride_bytes());
    const uint64_t b = swizzled_descriptor<kSwizzleBytes>(keys, kK.leading_bytes(), kK.stride_bytes());
#pragma unroll
    for (int group = kFirst; group < kFirst + kCount / kGroupSlabs; ++group)
#pragma unroll
      for (int i = 0; i < kGroupSteps; ++i) {
        const int step = (group < kPlainGroups ? group : group - kPlainGroups) * kGroupSteps + i;
        const int at = group * kGroupSteps + i;
        const uint64_t query = a + kQ.step_offset(at) / 16;
        const uint64_t key = b + kK.step_offset(at - kFirst * kGroupSteps) / 16;
        if (group >= kPlainGroups) {
          if (step < kRopeSteps) ptx::tcgen05_mma_ss<RopeType::kind, kCtas>(scores, query, key, kRopeInstruction, 1);
        } else if (step < kSteps) {
          ptx::tcgen05_mma_ss<Type::kind, kCtas>(scores, query, key, kInstruction, step > 0);
        }
      }
  }
};

/// O += P V. P is in tensor memory, its keys side by side within the 32 bits of a column. V is [keys][depth] in slabs,
/// read as an MN-major operand. kCtas 2: each CTA of the pair has half of kColumns, for all keys, and gets its rows'
/// outputs of all columns.
template <DType kType, int kDepth, int kKeys, int kSwizzleBytes, int kCtas = 1>
struct OutputProduct {
  using Type = Operand<kType>;
  static constexpr int kStep = 16 * kCtas, kColumns = (kDepth + kStep - 1) / kStep * kStep;  // zeros past the depth
  static constexpr uint32_t kInstruction = Type::template instruction<kCtas>(kColumns, true);

  /// Keys [kFirst, kFirst + kCount) of a tile that arrives in shares of kShareKeys. All of these keys lie in the share
  /// that begins at `values`. Unless `accumulates`, the first step overwrites the output.
  template <int kFirst, int kCount, int kShareKeys = kKeys>
  __device__ __forceinline__ static void issue(uint32_t output, uint32_t probabilities, uint32_t values,
                                               bool accumulates) {
    static_assert(kFirst % Type::step == 0 && kCount % Type::step == 0, "whole steps");
    constexpr int kShareFirst = kFirst / kShareKeys * kShareKeys;
    static_assert(kFirst + kCount <= kShareFirst + kShareKeys, "keys of one share");
    constexpr contract::SharedSlab kV{kShareKeys * Type::bytes, kSwizzleBytes, Type::bits, kColumns, true};
    const uint64_t b = swizzled_descriptor<kSwizzleBytes>(values, kV.leading_bytes(), kV.stride_bytes());
#pragma unroll
    for (int key = kFirst; key < kFirst + kCount; key += Type::step)
      ptx::tcgen05_mma_ts<Type::kind, kCtas>(output, probabilities + key * Type::bytes / 4,
                                             b + kV.step_offset((key - kShareFirst) / Type::step) / 16, kInstruction,
                                             key > kFirst || accumulates);
  }
};

}  // namespace kernelwright::mma
