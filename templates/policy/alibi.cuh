/// ALiBi (arXiv:2108.12409): slope[head] * (key - the query's diagonal key) is added to each score.
#pragma once

#include "contract/attention_params.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// The slope of a query head: the launch's or, if the launch gives none, the geometric series of the paper. For n
/// heads, n a power of two, the slope is 2^(-8 (head + 1) / n). Heads past the largest power of two take every other
/// slope of the series for twice as many heads.
__device__ inline float alibi_slope(const contract::AttentionParams& params, int head) {
  if (params.alibi_slopes != nullptr) return params.alibi_slopes[head];
  const int n = 1 << (31 - __clz(params.q_heads));
  const int step = head < n ? 2 * (head + 1) : 2 * (head - n) + 1;
  return ptx::ex2_approx_ftz(static_cast<float>(-step) * (4.f / static_cast<float>(n)));
}

/// A thread's rows of a tile, kRows of them: row r lies r / 2 * 16 + r % 2 * 8 rows after the first. Rows of one head
/// need two registers in all; rows of packed heads need two each.
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
  /// The bias of row r at `key`. The distance is an integer, so it is exact however long the sequence is.
  __device__ float at(int r, int key) const {
    return slope(r) * static_cast<float>(key - (kPackGqa ? own_[r] : own_[0] + step(r)));
  }
};

}  // namespace kernelwright::policy
