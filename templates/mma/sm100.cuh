/// The products of attention on tcgen05: 128 rows of each CTA, accumulators in tensor memory, one thread issues. 16-bit
/// operands, f32 sums.
#pragma once

#include "contract/spec_words.h"
#include "ptx/tcgen05_mma.cuh"

namespace kernelwright::mma {

constexpr int kProductRows = 128, kStepK = 16;  // rows of a CTA in an instruction, and its K
constexpr uint32_t kSlabRowBytes = 128,
                   kAtomBytes = 8 * 128;  // a slab has 64 columns; rows that a swizzle pattern takes

template <DType kType>
constexpr ptx::MmaElement kElement = kType == DType::kBf16 ? ptx::MmaElement::kBf16 : ptx::MmaElement::kF16;

template <DType kType, int kCtas>
constexpr uint32_t instruction_of(uint32_t n, bool b_mn_major) {
  ptx::InstructionDescriptor descriptor{};
  descriptor.a = descriptor.b = kElement<kType>;
  descriptor.m = kCtas * kProductRows, descriptor.n = n;
  descriptor.b_mn_major = b_mn_major;
  return descriptor.bits();
}
/// Slabs of 64 columns, rows of 128 bytes; `slab_bytes` from one to the next.
__device__ __forceinline__ uint64_t slab_descriptor(uint32_t address, uint32_t slab_bytes) {
  ptx::SharedDescriptor descriptor{};
  descriptor.stride_bytes = kAtomBytes;
  descriptor.leading_bytes = slab_bytes;
  return descriptor.bits(address);
}

/// S = Q K^T: both K-major in slabs of 64 columns, rows of 128 bytes. kCtas 2: each CTA of the pair has 128 rows of Q
/// and half of the keys in its shared memory, at the same addresses, and gets its rows' scores of all keys.
template <DType kType, int kDepth, int kKeys, int kCtas = 1>
struct ScoreProduct {
  static constexpr int kSlabSteps = 4;                           // k of 16 in a slab
  static constexpr int kSteps = (kDepth + kStepK - 1) / kStepK;  // columns past the depth are zeros
  static constexpr uint32_t kInstruction = instruction_of<kType, kCtas>(kKeys, false);

  /// Slabs [kFirstSlab, kFirstSlab + kSlabs). `queries` is where the tile's first slab begins, `keys` where slab
  /// kFirstSlab of the keys does. Slab 0 overwrites what `scores` holds.
  template <int kFirstSlab, int kSlabs>
  __device__ __forceinline__ static void issue(uint32_t scores, uint32_t queries, uint32_t keys) {
    const uint64_t a = slab_descriptor(queries, 0), b = slab_descriptor(keys, 0);
#pragma unroll
    for (int step = kFirstSlab * kSlabSteps; step < (kFirstSlab + kSlabs) * kSlabSteps && step < kSteps; ++step) {
      const int slab = step / kSlabSteps, column = step % kSlabSteps * 32;
      ptx::tcgen05_mma_ss<ptx::MmaKind::kF16, kCtas>(
          scores, a + (slab * (kProductRows * kSlabRowBytes) + column) / 16,
          b + ((slab - kFirstSlab) * (kKeys / kCtas * kSlabRowBytes) + column) / 16, kInstruction, step > 0);
    }
  }
};

/// O += P V: P in tensor memory, two keys to a column; V [keys][depth] in slabs of 64 columns, read as an MN-major
/// operand. kCtas 2: each CTA of the pair has half of kColumns, of all keys, and gets its rows' outputs of all columns.
template <DType kType, int kDepth, int kKeys, int kCtas = 1>
struct OutputProduct {
  static constexpr int kStep = 16 * kCtas, kColumns = (kDepth + kStep - 1) / kStep * kStep;  // zeros past the depth
  static constexpr uint32_t kInstruction = instruction_of<kType, kCtas>(kColumns, true);

  /// Keys [kFirst, kFirst + kCount) of the tile at `values`; the first step overwrites the output unless it
  /// `accumulates`.
  template <int kFirst, int kCount>
  __device__ __forceinline__ static void issue(uint32_t output, uint32_t probabilities, uint32_t values,
                                               bool accumulates) {
    const uint64_t b = slab_descriptor(values, kKeys * kSlabRowBytes);
#pragma unroll
    for (int key = kFirst; key < kFirst + kCount; key += kStepK)
      ptx::tcgen05_mma_ts<ptx::MmaKind::kF16, kCtas>(output, probabilities + key / 2, b + key * (kSlabRowBytes / 16),
                                                     kInstruction, key > kFirst || accumulates);
  }
};

}  // namespace kernelwright::mma
