/// Scores of attention_sm90 that come as two products, each of half of a tile's keys in half of the registers. The
/// parts of P V take turns between these halves (mma::AlternatingPromotion). When the last part multiplies in the
/// second half, the first half is free, and its scores follow at once.
#pragma once

#include "kernels/attention/sm90/attention_sm90_math.cuh"

namespace kernelwright {
namespace {

template <int kHalf>
__device__ __forceinline__ MathWarpgroup::HalfScores& MathWarpgroup::half_scores() {
  return reinterpret_cast<HalfScores&>(scores_[kHalf * (spec::kBlockN / 4)]);
}

/// kBehindParts: the last part of P V multiplies in the second half. It ends here, and is added to the output while the
/// first half of the scores multiplies. Leaves a group of each half in flight.
template <bool kBehindParts>
__device__ __forceinline__ void MathWarpgroup::issue_halves(uint32_t keys) {
  constexpr int kDepth = shape().score_depth(), kKeys = spec::kBlockN;
  mma::issue_scores<computed(), kDepth, spec::kBlockM, kKeys, spec::kSwizzleBytes, 0, 1, 0>(half_scores<0>(),
                                                                                            own_queries(), keys);
  if constexpr (kBehindParts) {
    end_output<1>();
    ptx::wgmma_fence();
  }
  mma::issue_scores<computed(), kDepth, spec::kBlockM, kKeys, spec::kSwizzleBytes, 0, 1, kKeys / 2>(
      half_scores<1>(), own_queries(), keys);
}

/// The half has landed. As end_scores(), where nothing but the sign of the scale changes scores.
template <int kHalf>
__device__ __forceinline__ void MathWarpgroup::end_half_scores() {
  HalfScores& scores = half_scores<kHalf>();
  ptx::pin_registers<kPinnedAtOnce>(scores);
  policy::take_sign(policy::WgmmaScores<spec::kBlockN / 4>{scores}, ScoreMod{score_scale(params_), params_.softcap});
}

/// Exponentials of the first half begin while the second half multiplies.
template <bool kRises, class OnlineSoftmax, class Rescale>
__device__ __forceinline__ void MathWarpgroup::exponentiate_halves(OnlineSoftmax& softmax, const Rescale& rescale) {
  ptx::wgmma_wait_group<1>();
  end_half_scores<0>();
  const auto land_rest = [this] {
    ptx::wgmma_wait_group<0>();
    end_half_scores<1>();
    tiles_.release_whole_k();
  };
  softmax.template exponentiate<kRises, true>(scores_, scale_, probabilities_, keys(), land_rest, rescale);
}

}  // namespace
}  // namespace kernelwright
