/// A warpgroup's products of attention on wgmma: 64 rows, both accumulators in registers.
#pragma once

#include "contract/slabs.h"
#include "contract/spec_words.h"
#include "ptx/wgmma.cuh"
#include "tile/element.cuh"

namespace kernelwright::mma {

/// The descriptor of an operand at `address`.
template <int kSwizzleBytes>
__device__ __forceinline__ uint64_t slab_descriptor(uint32_t address, contract::SlabStrides strides) {
  return ptx::wgmma_descriptor<kSwizzleBytes>(address, strides.leading, strides.stride);
}

/// scores = Q K^T: both K-major in slabs (contract/slabs.h). `queries` is the address of the warpgroup's first row in
/// the first slab of a tile of kQueryRows. K comes in kStages shares of its slabs, and this is share kStage of the sum:
/// `keys` is where that share of a tile of kKeys begins. The last share leaves one group in flight.
template <DType kType, int kDepth, int kQueryRows, int kKeys, int kSwizzleBytes, int kStage = 0, int kStages = 1>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2], uint32_t queries, uint32_t keys) {
  const uint64_t a = slab_descriptor<kSwizzleBytes>(queries, contract::k_major_strides(kSwizzleBytes, kQueryRows));
  const uint64_t b = slab_descriptor<kSwizzleBytes>(keys, contract::k_major_strides(kSwizzleBytes, kKeys));
  constexpr int kAllSteps = (kDepth + 15) / 16;  // columns past the depth are zeros
  constexpr int kStageSlabs = contract::slabs_of(kDepth, 2, kSwizzleBytes) / kStages;
  constexpr int kStageSteps = kStageSlabs * contract::slab_bytes(kSwizzleBytes) / contract::kStepBytes;
  constexpr int kFirst = kStage * kStageSteps;
  constexpr int kSteps = kStage + 1 < kStages ? kStageSteps : kAllSteps - kFirst;
  // Four steps at once are evenly spaced: all in one slab, or each in slabs of its own. A slab of 64 bytes has two; and
  // a share that begins within four steps of Q goes by single ones.
  constexpr int kAtOnce = kSwizzleBytes == 64 || kFirst % 4 != 0 ? kSteps + 1 : 4;
  constexpr int kQueryStep = contract::k_major_step(kSwizzleBytes, kQueryRows, 1) / 16;
  constexpr int kKeyStep = contract::k_major_step(kSwizzleBytes, kKeys, 1) / 16;
#pragma unroll
  for (int i = 0; i < kSteps / kAtOnce; ++i)
    ptx::wgmma_ss_x4<kType, false, kQueryStep, kKeyStep>(
        scores, a + (kFirst / kAtOnce + i) * (contract::k_major_step(kSwizzleBytes, kQueryRows, kAtOnce) / 16),
        b + i * (contract::k_major_step(kSwizzleBytes, kKeys, kAtOnce) / 16), kFirst + i > 0);
#pragma unroll
  for (int i = kSteps / kAtOnce * kAtOnce; i < kSteps; ++i)
    ptx::wgmma_ss<kType, false>(scores, a + contract::k_major_step(kSwizzleBytes, kQueryRows, kFirst + i) / 16,
                                b + contract::k_major_step(kSwizzleBytes, kKeys, i) / 16, kFirst + i > 0);
  if constexpr (kStage + 1 == kStages) ptx::wgmma_commit_group();
}

/// output += P V, or = P V where `accumulate` is false: P from registers, V [keys][depth] in slabs, read as an MN-major
/// operand. V comes in kStages shares of its keys, and this is share kStage of the sum, whose keys begin at `values`.
/// The last share leaves one group in flight.
template <DType kType, int kDepth, int kKeys, int kSwizzleBytes, int kStage = 0, int kStages = 1>
__device__ __forceinline__ void issue_output(float (&output)[kDepth / 2],
                                             const uint32_t (&probabilities)[kKeys / 16][4], uint32_t values,
                                             bool accumulate) {
  static_assert(kKeys % (16 * kStages) == 0, "whole steps in a share");
  const uint64_t b = slab_descriptor<kSwizzleBytes>(values, contract::mn_major_strides(kSwizzleBytes, kKeys / kStages));
  constexpr int kSteps = kKeys / 16 / kStages, kFirst = kStage * kSteps;
  constexpr int kStep = contract::slab_bytes(kSwizzleBytes);  // 16 rows, in units of 16 bytes
#pragma unroll
  for (int i = 0; i + 4 <= kSteps; i += 4)
    ptx::wgmma_rs_x4<kType, true, kStep>(output, &probabilities[kFirst + i], b + i * kStep,
                                         kFirst + i > 0 ? 1 : accumulate);
#pragma unroll
  for (int i = kSteps / 4 * 4; i < kSteps; ++i)
    ptx::wgmma_rs<kType, true>(output, probabilities[kFirst + i], b + i * kStep, kFirst + i > 0 ? 1 : accumulate);
  if constexpr (kStage + 1 == kStages) ptx::wgmma_commit_group();
}

/// An accumulator of 16 columns is an A operand of 16 k, pair by pair.
template <DType kType, int kKeys>
__device__ __forceinline__ void pack(const float (&scores)[kKeys / 2], uint32_t (&probabilities)[kKeys / 16][4]) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i)
    probabilities[i / 4][i % 4] = tile::Element<kType>::pack(scores[i * 2], scores[i * 2 + 1]);
}

}  // namespace kernelwright::mma
