/// The products of latent attention on tcgen05: 64 query rows of one CTA. tcgen05.mma.ws folds their accumulators over
/// all lanes of tensor memory. Row r is lane r with the first half of an accumulator's columns, and lane 64 + r with
/// the second half. Both operands lie in shared memory, in slabs of 128 bytes (contract/shared_slab.h). One thread
/// issues the products.
#pragma once

#include "contract/shared_slab.h"
#include "contract/words.h"
#include "mma/sm100.cuh"
#include "ptx/tcgen05_mma.cuh"

namespace kernelwright::mma {

constexpr int kFoldedRows = 64;      // of A, and keys of a tile
constexpr int kLatentColumns = 256;  // of values, in one instruction

template <DType kType>
__device__ constexpr uint32_t latent_instruction(uint32_t n, bool b_mn_major) {
  ptx::InstructionDescriptor descriptor{};
  descriptor.kind = Operand<kType>::kind;
  descriptor.a = descriptor.b = Operand<kType>::element;
  descriptor.m = kFoldedRows, descriptor.n = n;
  descriptor.b_mn_major = b_mn_major;
  return descriptor.bits();
}

/// A K-major operand of 64 rows, one slab: queries, keys or probabilities.
constexpr contract::SharedSlab kLatentSlab{128, 128, 16, kFoldedRows, false};
__device__ __forceinline__ uint64_t latent_slab(uint32_t address) {
  return swizzled_descriptor<128>(address, kLatentSlab.leading_bytes(), kLatentSlab.stride_bytes());
}

/// scores (+)= Q K^T over the 64 columns of a slab. Unless `accumulates`, the scores are overwritten.
template <DType kType>
__device__ __forceinline__ void issue_latent_scores(uint32_t scores, uint32_t queries, uint32_t keys,
                                                    bool accumulates) {
  constexpr uint32_t kInstruction = latent_instruction<kType>(kFoldedRows, false);
  const uint64_t a = latent_slab(queries), b = latent_slab(keys);
#pragma unroll
  for (int step = 0; step < kLatentSlab.steps(); ++step)
    ptx::tcgen05_mma_ws_ss_f16(scores, a + kLatentSlab.step_offset(step) / 16, b + kLatentSlab.step_offset(step) / 16,
                               kInstruction, step > 0 || accumulates);
}

/// output (+)= P V for kLatentColumns columns of V, whose first slab is at `values`. `probabilities` is one slab.
template <DType kType>
__device__ __forceinline__ void issue_latent_values(uint32_t output, uint32_t probabilities, uint32_t values,
                                                    bool accumulates) {
  constexpr uint32_t kInstruction = latent_instruction<kType>(kLatentColumns, true);
  constexpr contract::SharedSlab kV{kFoldedRows * 2, 128, 16, kLatentColumns, true};
  const uint64_t a = latent_slab(probabilities);
  const uint64_t b = swizzled_descriptor<128>(values, kV.leading_bytes(), kV.stride_bytes());
#pragma unroll
  for (int step = 0; step < kV.steps(); ++step)
    ptx::tcgen05_mma_ws_ss_f16(output, a + kLatentSlab.step_offset(step) / 16, b + kV.step_offset(step) / 16,
                               kInstruction, step > 0 || accumulates);
}

}  // namespace kernelwright::mma
