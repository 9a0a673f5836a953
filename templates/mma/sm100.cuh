/// The products of attention on tcgen05: 128 rows, accumulators in tensor memory, one thread issues. 16-bit operands,
/// f32 sums.
#pragma once

#include "contract/spec_words.h"
#include "ptx/tcgen05_mma.cuh"

namespace kernelwright::mma {

constexpr int kProductRows = 128, kStepK = 16;  // M of an instruction, and its K
constexpr uint32_t kSlabRowBytes = 128,
                   kAtomBytes = 8 * 128;  // a slab has 64 columns; rows that a swizzle pattern takes

template <DType kType>
constexpr ptx::MmaElement kElement = kType == DType::kBf16 ? ptx::MmaElement::kBf16 : ptx::MmaElement::kF16;

/// S = Q K^T: both K-major in slabs of 64 columns, rows of 128 bytes.
template <DType kType, int kDepth, int kKeys>
struct ScoreProduct {
  static constexpr int kSlabSteps = 4;                           // k of 16 in a slab
  static constexpr int kSteps = (kDepth + kStepK - 1) / kStepK;  // columns past the depth are zeros
  static constexpr uint32_t kInstruction =
      ptx::InstructionDescriptor{.a = kElement<kType>, .b = kElement<kType>, .m = kProductRows, .n = kKeys}.bits();

  /// Slabs [kFirstSlab, kFirstSlab + kSlabs). `queries` is where the tile's first slab begins, `keys` where slab
  /// kFirstSlab of the keys does. Slab 0 overwrites what `scores` holds.
  template <int kFirstSlab, int kSlabs>
  __device__ __forceinline__ static void issue(uint32_t scores, uint32_t queries, uint32_t keys) {
    constexpr ptx::SharedDescriptor kSlab{.stride_bytes = kAtomBytes};
    const uint64_t a = kSlab.bits(queries), b = kSlab.bits(keys);
#pragma unroll
    for (int step = kFirstSlab * kSlabSteps; step < (kFirstSlab + kSlabs) * kSlabSteps && step < kSteps; ++step) {
      const int slab = step / kSlabSteps, column = step % kSlabSteps * 32;
      ptx::tcgen05_mma_ss<ptx::MmaKind::kF16>(scores, a + (slab * (kProductRows * kSlabRowBytes) + column) / 16,
                                              b + ((slab - kFirstSlab) * (kKeys * kSlabRowBytes) + column) / 16,
                                              kInstruction, step > 0);
    }
  }
};

/// O += P V: P in tensor memory, two keys to a column; V [keys][depth] in slabs of 64 columns, read as an MN-major
/// operand.
template <DType kType, int kDepth, int kKeys>
struct OutputProduct {
  static constexpr int kColumns = (kDepth + 15) / 16 * 16;  // columns past the depth are zeros
  static constexpr uint32_t kInstruction =
      ptx::InstructionDescriptor{
          .a = kElement<kType>, .b = kElement<kType>, .m = kProductRows, .n = kColumns, .b_mn_major = true}
          .bits();

  /// Keys [kFirst, kFirst + kCount) of the tile at `values`; the first step overwrites the output unless it
  /// `accumulates`.
  template <int kFirst, int kCount>
  __device__ __forceinline__ static void issue(uint32_t output, uint32_t probabilities, uint32_t values,
                                               bool accumulates) {
    const uint64_t b =
        ptx::SharedDescriptor{.leading_bytes = kKeys * kSlabRowBytes, .stride_bytes = kAtomBytes}.bits(values);
#pragma unroll
    for (int key = kFirst; key < kFirst + kCount; key += kStepK)
      ptx::tcgen05_mma_ts<ptx::MmaKind::kF16>(output, probabilities + key / 2, b + key * (kSlabRowBytes / 16),
                                              kInstruction, key > kFirst || accumulates);
  }
};

}  // namespace kernelwright::mma
