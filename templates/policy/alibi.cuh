/// ALiBi (arXiv:2108.12409): slope[head] * (key - the query's diagonal key) joins each score.
#pragma once

#include "contract/attention_params.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// The slope of a query head: the launch's or, if it gives none, the geometric series of the paper. For n heads, a
/// power of two, that is 2^(-8 (head + 1) / n); heads past the largest power of two take every other slope of twice as
/// many.
__device__ inline float alibi_slope(const contract::AttentionParams& params, int head) {
  if (params.alibi_slopes != nullptr) return params.alibi_slopes[head];
  const int n = 1 << (31 - __clz(params.q_heads));
  const int step = head < n ? 2 * (head + 1) : 2 * (head - n) + 1;
  return ptx::ex2_approx_ftz(static_cast<float>(-step) * (4.f / static_cast<float>(n)));
}

/// A thread's rows of a tile, kRows of them: row r lies r / 2 * 16 + r % 2 * 8 behind its first. Rows of one head need
/// two registers in all, those of packed heads two each.
template <bool kPackGqa, int kRows>
class AlibiRows {
  static constexpr int kKept = kPackGqa ? kRows : 1;
  float slope_[kKept];
  int own_[kKept];  // diagonal key
  __device__ static constexpr int step(int r) { return r / 2 * 16 + r % 2 * 8; }

 public:
  template <class WorkItemT>
  __device__ AlibiRows(const contract::AttentionParams& params, const WorkItemT& item, int first_row) {
#pragma unroll
    for (int r = 0; r < kKept; ++r) {
      slope_[r] = alibi_slope(params, item.q_head(first_row + step(r)));
      own_[r] = item.query(first_row + step(r)) + item.sequence.kv_len - item.sequence.q_len;
    }
  }
  __device__ float slope(int r) const { return slope_[kPackGqa ? r : 0]; }
  /// The bias of row r at `key`. The distance is a whole number: nothing of it is lost, however long the sequence.
  __device__ float at(int r, int key) const {
    return slope(r) * static_cast<float>(key - (kPackGqa ? own_[r] : own_[0] + step(r)));
  }
};

}  // namespace kernelwright::policy
