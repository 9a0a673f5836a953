/// A warpgroup's products of attention on wgmma: 64 rows, both accumulators in registers.
#pragma once

#include "contract/spec_words.h"
#include "ptx/wgmma.cuh"
#include "tile/element.cuh"

namespace kernelwright::mma {

constexpr uint32_t kSlabRowBytes = 128, kSlabColumns = 64;  // of 16-bit elements
constexpr uint32_t kAtomBytes = 8 * kSlabRowBytes;          // rows that a swizzle pattern takes

/// scores = Q K^T: both K-major in slabs of 64 columns. `queries` is the address of the warpgroup's first row in the
/// first slab of a tile of kQueryRows. K comes in kStages shares of its slabs, and this is share kStage of the sum:
/// `keys` is where that share of a tile of kKeys begins. The last share leaves one group in flight.
template <DType kType, int kDepth, int kQueryRows, int kKeys, int kStage = 0, int kStages = 1>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2], uint32_t queries, uint32_t keys) {
  const uint64_t a = ptx::wgmma_descriptor(queries, 0, kAtomBytes), b = ptx::wgmma_descriptor(keys, 0, kAtomBytes);
  constexpr int kAllSteps = (kDepth + 15) / 16;  // columns past the depth are zeros
  constexpr int kSlabSteps = 4;                  // k of 16 in a slab of 64 columns
  constexpr int kStageSlabs = (kAllSteps + kSlabSteps - 1) / kSlabSteps / kStages;
  constexpr int kFirstSlab = kStage * kStageSlabs, kFirst = kFirstSlab * kSlabSteps;
  constexpr int kSteps = kStage + 1 < kStages ? kStageSlabs * kSlabSteps : kAllSteps - kFirst;
#pragma unroll
  for (int i = 0; i < kSteps / kSlabSteps; ++i)
    ptx::wgmma_ss_x4<kType, false, 2, 2>(scores, a + (kFirstSlab + i) * (kQueryRows * kSlabRowBytes / 16),
                                         b + i * (kKeys * kSlabRowBytes / 16), kFirst + i > 0);
#pragma unroll
  for (int i = kSteps / kSlabSteps * kSlabSteps; i < kSteps; ++i)
    ptx::wgmma_ss<kType, false>(scores, a + ((kFirstSlab + i / 4) * (kQueryRows * kSlabRowBytes) + i % 4 * 32) / 16,
                                b + (i / 4 * (kKeys * kSlabRowBytes) + i % 4 * 32) / 16, kFirst + i > 0);
  if constexpr (kStage + 1 == kStages) ptx::wgmma_commit_group();
}

/// output += P V, or = P V where `accumulate` is false: P from registers, V [keys][depth] in slabs of 64 columns, read
/// as an MN-major operand. V comes in kStages shares of its keys, and this is share kStage of the sum, whose keys begin
/// at `values`. The last share leaves one group in flight.
template <DType kType, int kDepth, int kKeys, int kStage = 0, int kStages = 1>
__device__ __forceinline__ void issue_output(float (&output)[kDepth / 2],
                                             const uint32_t (&probabilities)[kKeys / 16][4], uint32_t values,
                                             bool accumulate) {
  static_assert(kKeys % (16 * kStages) == 0, "whole steps in a share");
  const uint64_t b = ptx::wgmma_descriptor(values, kKeys / kStages * kSlabRowBytes, kAtomBytes);
  constexpr int kSteps = kKeys / 16 / kStages, kFirst = kStage * kSteps, kStep = 16 * kSlabRowBytes / 16;
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
