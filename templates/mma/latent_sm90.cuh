/// A warpgroup's products of latent attention on wgmma. Keys lie as [slabs][64 keys][128 bytes], swizzled. A slab is a
/// K-major operand of scores. Where it holds values too, it is an MN-major operand of the output.
#pragma once

#include "contract/integers.h"
#include "contract/shared_slab.h"
#include "contract/words.h"
#include "ptx/wgmma.cuh"

namespace kernelwright::mma {

/// The descriptor of a slab as a K-major operand: 64 rows of 64 elements of k.
__device__ __forceinline__ uint64_t slab_descriptor(uint32_t slab) {
  constexpr contract::SharedSlab kSlab{128, 128, 16, 64, false};
  return ptx::wgmma_descriptor<128>(slab, kSlab.leading_bytes(), kSlab.stride_bytes());
}

/// That of the `slab`-th slab behind it.
__device__ __forceinline__ uint64_t slab_behind(uint64_t descriptor, int slab) {
  return ptx::wgmma_descriptor_at(descriptor, slab * (64 * 128 / 16));
}

/// scores += Q K^T over the 64 elements of k of a slab, or = if `accumulate` is 0. Operands are descriptors.
template <DType kType>
__device__ __forceinline__ void multiply_slab(float (&scores)[32], uint64_t queries, uint64_t keys,
                                              uint32_t accumulate) {
  ptx::wgmma_ss_x4<kType, false, 2, 2>(scores, queries, keys, accumulate);
}
/// The same with a slab of Q in registers, the operands of its four steps.
template <DType kType>
__device__ __forceinline__ void multiply_slab(float (&scores)[32], const uint32_t (&queries)[4][4], uint64_t keys,
                                              uint32_t accumulate) {
  ptx::wgmma_rs_x4<kType, false, 2>(scores, queries, keys, accumulate);
}

/// The descriptor of kColumns columns of values: slabs one behind the other, from the one at `values` on.
template <int kColumns>
__device__ __forceinline__ uint64_t values_descriptor(uint32_t values) {
  constexpr contract::SharedSlab kValues{128, 128, 16, kColumns, true};
  return ptx::wgmma_descriptor<128>(values, kValues.leading_bytes(), kValues.stride_bytes());
}
template <int kColumns>
__device__ constexpr int values_step() {
  return contract::SharedSlab{128, 128, 16, kColumns, true}.step_offset(1) / 16;
}

/// output += P V over 64 keys. P comes from registers, or from a slab. Leaves one group in flight.
template <DType kType, int kCount>
__device__ __forceinline__ void issue_values(float (&output)[kCount], const uint32_t (&probabilities)[4][4],
                                             uint32_t values) {
  ptx::wgmma_rs_x4<kType, true, values_step<kCount * 2>()>(output, probabilities, values_descriptor<kCount * 2>(values),
                                                           1);
  ptx::wgmma_commit_group();
}
template <DType kType, int kCount>
__device__ __forceinline__ void issue_values(float (&output)[kCount], uint32_t probabilities, uint32_t values) {
  ptx::wgmma_ss_x4<kType, true, 2, values_step<kCount * 2>()>(output, slab_descriptor(probabilities),
                                                              values_descriptor<kCount * 2>(values), 1);
  ptx::wgmma_commit_group();
}

}  // namespace kernelwright::mma
