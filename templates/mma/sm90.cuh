/// A warpgroup's products of attention on wgmma: 64 rows, both accumulators in registers.
#pragma once

#include "contract/shared_slab.h"
#include "contract/words.h"
#include "ptx/wgmma.cuh"
#include "tile/element.cuh"

namespace kernelwright::mma {

/// scores = Q K^T: both operands K-major in slabs (contract/shared_slab.h). `queries` is the address of the warpgroup's
/// first row in the first slab of a tile of kQueryRows. K arrives in kStages shares of its slabs; this call multiplies
/// share kStage. `keys` is where this share of a tile of kKeys begins. The last share leaves one group in flight.
template <DType kType, int kDepth, int kQueryRows, int kKeys, int kSwizzleBytes, int kStage = 0, int kStages = 1>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2], uint32_t queries, uint32_t keys) {
  constexpr int kRowBytes = contract::padded_depth(kDepth, kSwizzleBytes) * 2;
  constexpr contract::SharedSlab kQ{kRowBytes, kSwizzleBytes, 16, kQueryRows, false};
  constexpr contract::SharedSlab kK{kRowBytes / kStages, kSwizzleBytes, 16, kKeys, false};
  const uint64_t a = ptx::wgmma_descriptor<kSwizzleBytes>(queries, kQ.leading_bytes(), kQ.stride_bytes());
  const uint64_t b = ptx::wgmma_descriptor<kSwizzleBytes>(keys, kK.leading_bytes(), kK.stride_bytes());
  constexpr int kAllSteps = (kDepth + 15) / 16;  // columns past the depth are zeros
  constexpr int kStageSteps = kK.steps(), kFirst = kStage * kStageSteps;
  constexpr int kSteps = kStage + 1 < kStages ? kStageSteps : kAllSteps - kFirst;
  // Four steps can be issued at once if they are evenly spaced: all in one slab, or each in its own slabs. A slab of 64
  // bytes has only two steps. A share whose first step is no multiple of four also goes by single steps.
  constexpr int kAtOnce = kSwizzleBytes == 64 || kFirst % 4 != 0 ? kSteps + 1 : 4;
  constexpr int kQueryStep = kQ.step_offset(1) / 16, kKeyStep = kK.step_offset(1) / 16;
#pragma unroll
  for (int i = 0; i < kSteps / kAtOnce; ++i)
    ptx::wgmma_ss_x4<kType, false, kQueryStep, kKeyStep>(scores,
                                                         a + (kFirst / kAtOnce + i) * (kQ.step_offset(kAtOnce) / 16),
                                                         b + i * (kK.step_offset(kAtOnce) / 16), kFirst + i > 0);
#pragma unroll
  for (int i = kSteps / kAtOnce * kAtOnce; i < kSteps; ++i)
    ptx::wgmma_ss<kType, false>(scores, a + kQ.step_offset(kFirst + i) / 16, b + kK.step_offset(i) / 16,
                                kFirst + i > 0);
  if constexpr (kStage + 1 == kStages) ptx::wgmma_commit_group();
}

/// output += P V, or = P V if `accumulate` is false. P comes from registers; V is [keys][depth] in slabs, read as an
/// MN-major operand. V arrives in kStages shares of its keys; this call multiplies share kStage, whose keys begin at
/// `values`. The last share leaves one group in flight.
template <DType kType, int kDepth, int kKeys, int kSwizzleBytes, int kStage = 0, int kStages = 1>
__device__ __forceinline__ void issue_output(float (&output)[kDepth / 2],
                                             const uint32_t (&probabilities)[kKeys / 16][4], uint32_t values,
                                             bool accumulate) {
  static_assert(kKeys % (16 * kStages) == 0, "whole steps in a share");
  constexpr contract::SharedSlab kV{kKeys / kStages * 2, kSwizzleBytes, 16,
                                    contract::padded_depth(kDepth, kSwizzleBytes), true};
  const uint64_t b = ptx::wgmma_descriptor<kSwizzleBytes>(values, kV.leading_bytes(), kV.stride_bytes());
  constexpr int kSteps = kKeys / 16 / kStages, kFirst = kStage * kSteps;
  constexpr int kStep = kV.step_offset(1) / 16;
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
