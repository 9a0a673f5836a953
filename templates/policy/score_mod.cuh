/// What happens to a score between Q K^T and the softmax. A modifier of the score alone is a branch of
/// ScoreMod::operator(). A modifier that depends on the query head and on the distance from the query's diagonal key to
/// the key is a PlaceMod. policy/scores.cuh has the loop over a thread's scores, which all kernels share: a new
/// modifier needs no device code outside of this file.
#pragma once

#include "contract/attention_params.h"
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

/// What a query head gives to modifiers by place. A kernel makes one for each head of its rows, once in a work item.
/// The compiler drops what the kernel's modifier does not read.
struct PlaceHead {
  float slope;  // ALiBi

  PlaceHead() = default;
  __device__ PlaceHead(const contract::AttentionParams& params, int q_head) : slope(alibi_slope(params, q_head)) {}

  /// The launch's slope or, if the launch gives none, that of the paper's geometric series. For n heads, n a power of
  /// two, the slope is 2^(-8 (head + 1) / n). Heads past the largest power of two take every other slope of the series
  /// for twice as many heads.
  __device__ static float alibi_slope(const contract::AttentionParams& params, int head) {
    if (params.alibi_slopes != nullptr) return params.alibi_slopes[head];
    const int n = 1 << (31 - __clz(params.q_heads));
    const int step = head < n ? 2 * (head + 1) : 2 * (head - n) + 1;
    return ptx::ex2_approx_ftz(static_cast<float>(-step) * (4.f / static_cast<float>(n)));
  }
};

/// A modifier by place, for the scores of one row that a thread has in a key tile. The modifiers are specialisations;
/// this one stands in for the other kinds.
template <ScoreModKind kKind>
struct PlaceMod {
  enum : bool { exists = false };  // not a static member, which would be in every binary
  /// `distance`: the key of the thread's first column, counted from the row's diagonal key.
  __device__ PlaceMod(const PlaceHead&, int /*distance*/) {}
  /// The new score of the key `column` keys behind the thread's first. `scale` multiplies Q K^T.
  __device__ float operator()(float score, float /*scale*/, int /*column*/) const { return score; }
};

/// ALiBi (arXiv:2108.12409): slope[head] * distance is added to each score.
template <>
struct PlaceMod<ScoreModKind::kAlibi> {
  enum : bool { exists = true };
  float slope, start;  // start: the bias at the first column
  /// The distance is an integer, so it is exact however long the sequence is.
  __device__ PlaceMod(const PlaceHead& head, int distance)
      : slope(head.slope), start(head.slope * static_cast<float>(distance)) {}
  __device__ float operator()(float score, float scale, int column) const {
    return fmaf(score, scale, fmaf(slope, static_cast<float>(column), start));
  }
};

}  // namespace kernelwright::policy
