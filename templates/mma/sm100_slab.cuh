/// The products of a GEMM on tcgen05, a slab of k at a time: 128 rows of each CTA and all columns of the tile. With
/// block-scaled formats the issuing thread first copies the slab's scales to tensor memory.
#pragma once

#include "contract/shared_slab.h"
#include "mma/sm100.cuh"
#include "ptx/tcgen05.cuh"

namespace kernelwright::mma {

/// A and B in shared memory, in the slabs of contract/shared_slab.h. kCtas 2: each CTA of the pair has 128 rows of A
/// and half of B's kColumns, at the same addresses.
template <DType kA, DType kB, int kColumns, int kCtas, bool kAMnMajor, bool kBMnMajor, int kSlabBytes,
          int kSwizzleBytes>
struct SlabProduct {
  using TypeA = Operand<kA>;
  using TypeB = Operand<kB>;
  static_assert(TypeA::kind == TypeB::kind, "operands of one kind");
  static_assert((!kAMnMajor && !kBMnMajor) || TypeA::bits == 16, "m or n innermost: 16-bit elements");
  static constexpr ptx::MmaKind kKind = TypeA::kind;
  static constexpr bool kScaled = TypeA::is_block_scaled;
  static constexpr contract::SharedSlab a_slab{kSlabBytes, kSwizzleBytes, TypeA::bits, kProductRows, kAMnMajor};
  static constexpr contract::SharedSlab b_slab{kSlabBytes, kSwizzleBytes, TypeB::bits, kColumns / kCtas, kBMnMajor};
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

  /// Places of a slab's scales: addresses of tensor memory, lane 0.
  struct Scales {
    uint32_t a, b;
    uint32_t first;  // for b's columns: where the tile begins within its atoms, in steps of 32 rows
  };

  /// Copies scales from shared memory, [column atoms][atoms of k][512 bytes] for B, to where the products read them.
  /// The products that read the previous scales there must have been issued by the same thread.
  __device__ __forceinline__ static void copy_scales(const Scales& to, uint32_t a, uint32_t b) {
    ptx::SharedDescriptor rows{};
    rows.swizzle = ptx::MmaSwizzle::kNone;
    rows.stride_bytes = 8 * 16;  // 8 rows of 16 bytes follow each other
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
    const uint64_t rows = swizzled_descriptor<kSwizzleBytes>(a, a_slab.leading_bytes(), a_slab.stride_bytes());
    const uint64_t columns = swizzled_descriptor<kSwizzleBytes>(b, b_slab.leading_bytes(), b_slab.stride_bytes());
#pragma unroll
    for (uint32_t i = 0; i < a_slab.steps(); ++i) {
      const uint64_t left = rows + a_slab.step_offset(i) / 16, right = columns + b_slab.step_offset(i) / 16;
      const uint32_t adds = i > 0 ? 1 : accumulate;
      if constexpr (kScaled) {
        // Four scales of a row are a cell. A step begins at one byte of a cell.
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
