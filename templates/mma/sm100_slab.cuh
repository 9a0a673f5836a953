/// The products of a GEMM on tcgen05, a slab of k (128 bytes of it, or 64 rows where m or n is innermost) at a time:
/// 128 rows of each CTA, all columns of the tile, and with block-scaled formats the slab's scales, which the issuing
/// thread copies to tensor memory ahead of them.
#pragma once

#include "mma/sm100.cuh"
#include "ptx/tcgen05.cuh"

namespace kernelwright::mma {

/// A and B in shared memory, 128-byte swizzle. K-major: rows of a slab. MN-major: boxes of 64 rows of k by 128 bytes of
/// m or n, one behind the other. kCtas 2: each CTA of the pair has 128 rows of A and half of B's kColumns, at the same
/// addresses.
template <DType kA, DType kB, int kColumns, int kCtas, bool kAMnMajor, bool kBMnMajor>
struct SlabProduct {
  using TypeA = Operand<kA>;
  using TypeB = Operand<kB>;
  static_assert(TypeA::kind == TypeB::kind, "operands of one kind");
  static_assert((!kAMnMajor && !kBMnMajor) || TypeA::bits == 16, "m or n innermost: 16-bit elements");
  static constexpr ptx::MmaKind kKind = TypeA::kind;
  static constexpr bool kScaled = TypeA::is_block_scaled;
  static constexpr uint32_t kBoxBytes = 64 * kSlabRowBytes;
  // Columns of tensor memory: 128 rows of 4 scales take 4.
  static constexpr uint32_t kAtomColumns = 4, kColumnAtoms = (kColumns + 127) / 128, kScaleAtomBytes = 512;

  static constexpr uint32_t instruction() {
    ptx::InstructionDescriptor descriptor{};
    descriptor.kind = kKind;
    descriptor.a = TypeA::element, descriptor.b = TypeB::element;
    descriptor.m = kCtas * kProductRows, descriptor.n = kColumns;
    descriptor.a_mn_major = kAMnMajor, descriptor.b_mn_major = kBMnMajor;
    descriptor.scale = kA == DType::kNvfp4 ? ptx::MmaScale::kUe4m3 : ptx::MmaScale::kUe8m0;
    return descriptor.bits();
  }

  template <bool kMnMajor>
  __device__ __forceinline__ static uint64_t descriptor(uint32_t address) {
    return slab_descriptor(address, kMnMajor ? kBoxBytes : 0);
  }
  /// 32 bytes of k, or 16 rows of it, from one step to the next; in units of 16 bytes.
  template <bool kMnMajor>
  static constexpr uint64_t step() {
    return (kMnMajor ? 16 * kSlabRowBytes : kStepBytes) / 16;
  }

  /// Where a slab's scales are, or are to be: addresses of tensor memory, lane 0.
  struct Scales {
    uint32_t a, b;
    uint32_t first;  // of b's columns: where the tile begins within its atoms, in steps of 32 rows
  };

  /// Scales from shared memory, [column atoms][atoms of k][512 bytes] of B, to where the products find them. What reads
  /// those before them has been issued by the same thread.
  __device__ __forceinline__ static void copy_scales(const Scales& to, uint32_t a, uint32_t b) {
    ptx::SharedDescriptor rows{};
    rows.swizzle = ptx::MmaSwizzle::kNone;
    rows.stride_bytes = 8 * 16;  // 8 rows of 16 bytes behind the other
#pragma unroll
    for (uint32_t atom = 0; atom < TypeA::scale_atoms; ++atom) {
      ptx::tcgen05_cp_32x128b_warpx4<kCtas>(to.a + atom * kAtomColumns, rows.bits(a + atom * kScaleAtomBytes));
#pragma unroll
      for (uint32_t block = 0; block < kColumnAtoms; ++block)
        ptx::tcgen05_cp_32x128b_warpx4<kCtas>(to.b + (atom * kColumnAtoms + block) * kAtomColumns,
                                              rows.bits(b + (block * TypeA::scale_atoms + atom) * kScaleAtomBytes));
    }
  }

  /// `accumulate` 0: the slab's first product overwrites `sums`.
  __device__ __forceinline__ static void issue(uint32_t sums, uint32_t a, uint32_t b, uint32_t accumulate,
                                               const Scales& scales) {
    const uint64_t rows = descriptor<kAMnMajor>(a), columns = descriptor<kBMnMajor>(b);
#pragma unroll
    for (uint32_t i = 0; i < kSlabSteps; ++i) {
      const uint64_t left = rows + i * step<kAMnMajor>(), right = columns + i * step<kBMnMajor>();
      const uint32_t adds = i > 0 ? 1 : accumulate;
      if constexpr (kScaled) {
        // Four scales of a row are a cell: a step begins at one of its bytes.
        const uint32_t byte = i * TypeA::scale_bytes_per_step, atom = byte / 4, id = byte % 4;
        ptx::tcgen05_mma_scaled_ss<kKind, TypeA::scale_block, kCtas>(
            sums, left, right, contract::with_scale_ids(instruction(), id, id), scales.a + atom * kAtomColumns,
            scales.b + atom * kColumnAtoms * kAtomColumns + scales.first, adds);
      } else {
        ptx::tcgen05_mma_ss<kKind, kCtas>(sums, left, right, instruction(), adds);
      }
    }
  }
};

}  // namespace kernelwright::mma
