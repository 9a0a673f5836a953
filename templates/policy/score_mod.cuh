/// What happens to a score between Q K^T and the softmax.
#pragma once

#include "contract/words.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

/// Turns raw scores into what exp2(score * exponent_scale) takes. Without a modifier there is nothing to do. |scale| *
/// log2(e) is part of the softmax's one FMA. The sign of a scale that is not positive is put into Q, once for all keys,
/// so that the largest score stays the largest exponent.
template <ScoreModKind kKind>
struct ScoreMod {
  static constexpr bool changes_scores = kKind != ScoreModKind::kNone;
  float scale;  // multiplies Q K^T, key scale included
  float cap;    // softcap
  /// `given` is the launch's own number, for kernels that change nothing in between: the number stays in constant
  /// memory.
  template <bool kScaledKeys>
  __device__ float exponent_scale(float given) const {
    if (changes_scores) return kLog2e;
    if (!kScaledKeys) return given;
    return scale == 0 ? kLog2e : fabsf(scale) * kLog2e;
  }
  __device__ bool changes_queries() const { return !changes_scores && !(scale > 0); }
  /// ALiBi. `start` is the row's bias at the thread's first column; `column` is counted from that column.
  __device__ float biased(float score, float slope, float start, int column) const {
    return fmaf(score, scale, fmaf(slope, static_cast<float>(column), start));
  }
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
