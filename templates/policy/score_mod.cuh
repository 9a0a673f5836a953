/// What happens to a score between Q K^T and the softmax.
#pragma once

#include "contract/spec_words.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

/// Turns raw scores into what exp2(score * exponent_scale) takes. Usually that is nothing: scale * log2(e) rides in the
/// softmax's one FMA. Where the order of scores would change (a scale that is not positive) or a function comes between,
/// scores are finished first.
template <ScoreModKind kKind>
struct ScoreMod {
  float scale;     // of Q K^T, key scale included
  float cap;       // softcap
  __device__ float exponent_scale() const {
    return kKind == ScoreModKind::kNone && scale > 0 ? scale * kLog2e : kLog2e;
  }
  __device__ bool changes_scores() const { return kKind != ScoreModKind::kNone || !(scale > 0); }
  __device__ float operator()(float score) const {
    if constexpr (kKind == ScoreModKind::kSoftcap) {
      // cap * tanh(x / cap) = cap * (1 - 2 / (1 + exp(2 x / cap))): tanh.approx would lose 13 bits of the logit.
      const float exponential = ptx::ex2_approx_ftz(score * (scale / cap * 2 * kLog2e));
      return cap - 2 * cap * ptx::rcp_approx_ftz(1 + exponential);
    } else {
      return score * scale;
    }
  }
};

}  // namespace kernelwright::policy
