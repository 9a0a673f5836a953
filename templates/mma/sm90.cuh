/// A warpgroup's products of attention on wgmma: 64 rows, both accumulators in registers.
#pragma once

#include "contract/shared_slab.h"
#include "contract/words.h"
#include "ptx/wgmma.cuh"
#include "tile/element.cuh"

namespace kernelwright::mma {

/// One product of 32 bytes of k, and four of them whose operands are evenly spaced: fp8 has instructions of its own.
template <DType kType, int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount], uint64_t a, uint64_t b, uint32_t accumulate) {
  if constexpr (tile::kBytesOf<kType> == 1)
    ptx::wgmma_fp8_ss<kType, kType>(sums, a, b, accumulate);
  else
    ptx::wgmma_ss<kType, false>(sums, a, b, accumulate);
}
template <DType kType, int kStepA, int kStepB, int kCount>
__device__ __forceinline__ void multiply_four(float (&sums)[kCount], uint64_t a, uint64_t b, uint32_t accumulate) {
  if constexpr (tile::kBytesOf<kType> == 1)
    ptx::wgmma_fp8_ss_x4<kType, kType, kStepA, kStepB>(sums, a, b, accumulate);
  else
    ptx::wgmma_ss_x4<kType, false, kStepA, kStepB>(sums, a, b, accumulate);
}

/// scores = Q K^T: both operands K-major in slabs (contract/shared_slab.h). `queries` is the address of the warpgroup's
/// first row in the first slab of a tile of kQueryRows. K arrives in kStages shares of its slabs; this call multiplies
/// share kStage. `keys` is where this share of a tile of kKeys begins. The last share leaves one group in flight. Fewer
/// `scores` are those of keys from kFirstKey on.
template <DType kType, int kDepth, int kQueryRows, int kKeys, int kSwizzleBytes, int kStage = 0, int kStages = 1,
          int kFirstKey = 0, int kCount>
__device__ __forceinline__ void issue_scores(float (&scores)[kCount], uint32_t queries, uint32_t keys) {
  static_assert(kFirstKey % contract::kSwizzleRows == 0 && kFirstKey + kCount * 2 <= kKeys, "keys of the tile");
  constexpr int kBytes = tile::kBytesOf<kType>;
  constexpr int kRowBytes = contract::slabs_of(kDepth, kBytes, kSwizzleBytes) * contract::slab_width(kSwizzleBytes);
  constexpr contract::SharedSlab kQ{kRowBytes, kSwizzleBytes, kBytes * 8, kQueryRows, false};
  constexpr contract::SharedSlab kK{kRowBytes / kStages, kSwizzleBytes, kBytes * 8, kKeys, false};
  const uint64_t a = ptx::wgmma_descriptor<kSwizzleBytes>(queries, kQ.leading_bytes(), kQ.stride_bytes());
  constexpr int kSkipped = kFirstKey * contract::slab_width(kSwizzleBytes);  // keys of the tile, row by row of a slab
  const uint64_t b = ptx::wgmma_descriptor<kSwizzleBytes>(keys + kSkipped, kK.leading_bytes(), kK.stride_bytes());
  constexpr int kAllSteps = (kDepth * kBytes + 31) / 32;  // columns past the depth are zeros
  constexpr int kStageSteps = kK.steps(), kFirst = kStage * kStageSteps;
  constexpr int kSteps = kStage + 1 < kStages ? kStageSteps : kAllSteps - kFirst;
  // Four steps can be issued at once if they are evenly spaced: all in one slab, or each in its own slabs. A slab of 64
  // bytes has only two steps. A share whose first step is no multiple of four also goes by single steps.
  constexpr int kAtOnce = kSwizzleBytes == 64 || kFirst % 4 != 0 ? kSteps + 1 : 4;
  constexpr int kQueryStep = kQ.step_offset(1) / 16, kKeyStep = kK.step_offset(1) / 16;
#pragma unroll
  for (int i = 0; i < kSteps / kAtOnce; ++i)
    multiply_four<kType, kQueryStep, kKeyStep>(scores, a + (kFirst / kAtOnce + i) * (kQ.step_offset(kAtOnce) / 16),
                                               b + i * (kK.step_offset(kAtOnce) / 16), kFirst + i > 0);
#pragma unroll
  for (int i = kSteps / kAtOnce * kAtOnce; i < kSteps; ++i)
    multiply<kType>(scores, a + kQ.step_offset(kFirst + i) / 16, b + kK.step_offset(i) / 16, kFirst + i > 0);
  if constexpr (kStage + 1 == kStages) ptx::wgmma_commit_group();
}

/// scores = (high + low) K^T, for queries of two terms of e4m3 and K of kKeyType, 8 bits each. The first kTermBytes of
/// a query's row are the high terms, and as many low ones follow. Low terms come first: the tensor cores cut
/// addends at 2^-13 of the largest one, so a small sum loses less. Leaves one group in flight.
template <DType kKeyType, int kDepth, int kTermBytes, int kQueryRows, int kKeys, int kSwizzleBytes,
          int kKeySwizzleBytes>
__device__ __forceinline__ void issue_term_scores(float (&scores)[kKeys / 2], uint32_t queries, uint32_t keys) {
  constexpr contract::SharedSlab kQ{2 * kTermBytes, kSwizzleBytes, 8, kQueryRows, false};
  constexpr contract::SharedSlab kK{kTermBytes, kKeySwizzleBytes, 8, kKeys, false};
  const uint64_t a = ptx::wgmma_descriptor<kSwizzleBytes>(queries, kQ.leading_bytes(), kQ.stride_bytes());
  const uint64_t b = ptx::wgmma_descriptor<kKeySwizzleBytes>(keys, kK.leading_bytes(), kK.stride_bytes());
  constexpr int kTermSteps = kK.steps(), kSteps = (kDepth + 31) / 32;  // columns past the depth are zeros
  // Four steps at once, as in issue_scores().
  constexpr int kAtOnce =
      kSwizzleBytes == kKeySwizzleBytes && kSwizzleBytes != 64 && kTermSteps % 4 == 0 ? 4 : kSteps + 1;
  constexpr int kQueryStep = kQ.step_offset(1) / 16, kKeyStep = kK.step_offset(1) / 16;
#pragma unroll
  for (int term = 1; term >= 0; --term) {
    const int first = term * kTermSteps;
#pragma unroll
    for (int i = 0; i < kSteps / kAtOnce * kAtOnce; i += kAtOnce)
      ptx::wgmma_fp8_ss_x4<DType::kE4m3, kKeyType, kQueryStep, kKeyStep>(
          scores, a + kQ.step_offset(first + i) / 16, b + kK.step_offset(i) / 16, term == 0 || i > 0);
#pragma unroll
    for (int i = kSteps / kAtOnce * kAtOnce; i < kSteps; ++i)
      ptx::wgmma_fp8_ss<DType::kE4m3, kKeyType>(scores, a + kQ.step_offset(first + i) / 16, b + kK.step_offset(i) / 16,
                                                term == 0 || i > 0);
  }
  ptx::wgmma_commit_group();
}

/// output += P V in fp8, or = P V if `accumulate` is false: kColumns columns of it. V is [kDepth][keys], as
/// attention_sm90_convert.cuh writes it: a K-major operand, with the keys of every 16 in the order of pack(). `values`
/// is its first such row. The caller commits the group.
template <DType kType, int kColumns, int kDepth, int kKeys, int kSwizzleBytes>
__device__ __forceinline__ void multiply_narrow(float (&output)[kColumns / 2],
                                                const uint32_t (&probabilities)[kKeys / 32][4], uint32_t values,
                                                uint32_t accumulate) {
  constexpr int kRowBytes = contract::slabs_of(kKeys, 1, kSwizzleBytes) * contract::slab_width(kSwizzleBytes);
  constexpr contract::SharedSlab kV{kRowBytes, kSwizzleBytes, 8, kDepth, false};
  const uint64_t b = ptx::wgmma_descriptor<kSwizzleBytes>(values, kV.leading_bytes(), kV.stride_bytes());
#pragma unroll
  for (int i = 0; i < kKeys / 32; ++i)
    ptx::wgmma_rs<kType, false>(output, probabilities[i], b + kV.step_offset(i) / 16, i > 0 ? 1 : accumulate);
}
/// The same without sums so far. Leaves one group in flight.
template <DType kType, int kColumns, int kDepth, int kKeys, int kSwizzleBytes>
__device__ __forceinline__ void issue_narrow_output(float (&output)[kColumns / 2],
                                                    const uint32_t (&probabilities)[kKeys / 32][4], uint32_t values) {
  multiply_narrow<kType, kColumns, kDepth, kKeys, kSwizzleBytes>(output, probabilities, values, 0);
  ptx::wgmma_commit_group();
}

/// output += P V, or = P V if `accumulate` is false. P comes from registers; V is [keys][depth] in slabs, read as an
/// MN-major operand, or else [depth][keys], a K-major one. V arrives in kStages shares of its keys; this call
/// multiplies share kStage, whose keys begin at `values`. The last share leaves one group in flight.
template <DType kType, int kDepth, int kKeys, int kSwizzleBytes, int kStage = 0, int kStages = 1, bool kMnMajor = true>
__device__ __forceinline__ void issue_output(float (&output)[kDepth / 2],
                                             const uint32_t (&probabilities)[kKeys / 16][4], uint32_t values,
                                             bool accumulate) {
  static_assert(kKeys % (16 * kStages) == 0, "whole steps in a share");
  constexpr contract::SharedSlab kV{kKeys / kStages * 2, kSwizzleBytes, 16,
                                    kMnMajor ? contract::padded_depth(kDepth, kSwizzleBytes) : kDepth, kMnMajor};
  const uint64_t b = ptx::wgmma_descriptor<kSwizzleBytes>(values, kV.leading_bytes(), kV.stride_bytes());
  constexpr int kSteps = kKeys / 16 / kStages, kFirst = kStage * kSteps;
  constexpr int kStep = kV.step_offset(1) / 16;
  constexpr int kFours = kMnMajor || kSwizzleBytes != 64 ? kSteps / 4 * 4 : 0;  // as in issue_scores()
#pragma unroll
  for (int i = 0; i < kFours; i += 4)
    ptx::wgmma_rs_x4<kType, kMnMajor, kStep>(output, &probabilities[kFirst + i], b + kV.step_offset(i) / 16,
                                             kFirst + i > 0 ? 1 : accumulate);
#pragma unroll
  for (int i = kFours; i < kSteps; ++i)
    ptx::wgmma_rs<kType, kMnMajor>(output, probabilities[kFirst + i], b + kV.step_offset(i) / 16,
                                   kFirst + i > 0 ? 1 : accumulate);
  if constexpr (kStage + 1 == kStages) ptx::wgmma_commit_group();
}

/// An accumulator of 16 columns is an A operand of 16 k, pair by pair. (policy/integer_softmax.cuh packs fp8.)
template <DType kType, int kKeys, int kSteps>
__device__ __forceinline__ void pack(const float (&scores)[kKeys / 2], uint32_t (&probabilities)[kSteps][4]) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i)
    probabilities[i / 4][i % 4] = tile::Element<kType>::pack(scores[i * 2], scores[i * 2 + 1]);
}

}  // namespace kernelwright::mma
