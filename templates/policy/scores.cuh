/// The loops over the scores that a thread holds: they modify scores, hide keys, and ask open scores. All attention
/// kernels share them. A kernel says by a fragment which scores the thread holds:
///   rows         rows of which the thread has scores
///   columns      scores of each row
///   row(r)       the row's place behind the thread's first row
///   column(i)    the key of score i, counted from the key of score 0; the same for all rows
///   at(r, i)     score i of row r
///   any(i)       score i of all, in the order of registers
/// All of them are known at compile time: loops over a fragment are unrolled, and scores stay in registers.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/mask.cuh"
#include "policy/score_mod.cuh"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// Accumulators of mma.sync: kRowTiles tiles of 16 rows, kTiles tiles of 8 keys. A quad of lanes shares a row.
template <int kRowTiles, int kTiles>
struct MmaScores {
  enum : int { rows = 2 * kRowTiles, columns = 2 * kTiles };
  float (&scores)[kRowTiles][kTiles][4];
  __device__ static constexpr int row(int r) { return r / 2 * 16 + r % 2 * 8; }
  __device__ static constexpr int column(int i) { return i / 2 * 8 + i % 2; }
  __device__ __forceinline__ float& at(int r, int i) const { return scores[r / 2][i / 2][r % 2 * 2 + i % 2]; }
  __device__ __forceinline__ float& any(int i) const { return scores[i / 4 / kTiles][i / 4 % kTiles][i % 4]; }
};

/// The accumulator of a wgmma, kCount registers of each thread: a warp has 16 rows, a quad of lanes shares a row.
template <int kCount>
struct WgmmaScores {
  enum : int { rows = 2, columns = kCount / 2 };
  float (&scores)[kCount];
  __device__ static constexpr int row(int r) { return r * 8; }
  __device__ static constexpr int column(int i) { return i / 2 * 8 + i % 2; }
  __device__ __forceinline__ float& at(int r, int i) const { return scores[i / 2 * 4 + r * 2 + i % 2]; }
  __device__ __forceinline__ float& any(int i) const { return scores[i]; }
};

/// A lane of tensor memory: a whole row.
template <int kCount>
struct LaneScores {
  enum : int { rows = 1, columns = kCount };
  float (&scores)[kCount];
  __device__ static constexpr int row(int) { return 0; }
  __device__ static constexpr int column(int i) { return i; }
  __device__ __forceinline__ float& at(int, int i) const { return scores[i]; }
  __device__ __forceinline__ float& any(int i) const { return scores[i]; }
};

/// Modifies every score. rows() is called only for a modifier by place; rows()(r) is then the PlaceMod of row r.
template <ScoreModKind kKind, class Fragment, class Rows>
__device__ __forceinline__ void modify(const Fragment& scores, const ScoreMod<kKind>& mod, const Rows& rows) {
  if constexpr (PlaceMod<kKind>::exists) {
    const auto row_of = rows();
#pragma unroll
    for (int r = 0; r < Fragment::rows; ++r) {
      const PlaceMod<kKind> place = row_of(r);
#pragma unroll
      for (int i = 0; i < Fragment::columns; ++i)
        scores.at(r, i) = place(scores.at(r, i), mod.scale, Fragment::column(i));
    }
  } else if constexpr (ScoreMod<kKind>::changes_scores) {
#pragma unroll
    for (int i = 0; i < Fragment::rows * Fragment::columns; ++i) scores.any(i) = mod(scores.any(i));
  }
}

/// Multiplies the scores of each row by the row's number.
template <class Fragment, class RowScales>
__device__ __forceinline__ void multiply_rows(const Fragment& scores, const RowScales& by) {
#pragma unroll
  for (int r = 0; r < Fragment::rows; ++r)
#pragma unroll
    for (int i = 0; i < Fragment::columns; ++i) scores.at(r, i) *= by.of[r];
}

/// For kernels that leave Q as it is. The scores take the sign of a scale that is not positive; |scale| is part of the
/// exponent.
template <ScoreModKind kKind, class Fragment>
__device__ __forceinline__ void take_sign(const Fragment& scores, const ScoreMod<kKind>& mod) {
  if (mod.changes_queries()) {
    const float sign = mod.scale == 0 ? 0.f : -1.f;
#pragma unroll
    for (int i = 0; i < Fragment::rows * Fragment::columns; ++i) scores.any(i) *= sign;
  }
}

/// Sets the scores of keys that a row does not see to -inf. `key` is that of the thread's first column, counted as in
/// range_of(r), the keys that row r sees. Side::kBefore and Side::kFrom look at one end of the range only.
template <Side kSide, class Fragment, class RangeOf>
__device__ __forceinline__ void hide_keys(const Fragment& scores, int key, const RangeOf& range_of) {
#pragma unroll
  for (int r = 0; r < Fragment::rows; ++r) {
    const KeyRange range = range_of(r);
    const int low = range.low - key, high = range.high - key;
#pragma unroll
    for (int i = 0; i < Fragment::columns; ++i) {
      const int column = Fragment::column(i);
      if ((kSide != Side::kBefore && column >= high) || (kSide != Side::kFrom && column < low))
        scores.at(r, i) = ptx::minus_infinity();
    }
  }
}

/// Asks policy/open_scores.cuh for every score; open_row_of(r) is the OpenRow of row r. It hides what hide_keys() would
/// hide. `key`: of the thread's first column, counted from the first of the sequence.
template <class Fragment, class OpenRowOf>
__device__ __forceinline__ void open_keys(const Fragment& scores, int key, const OpenRowOf& open_row_of) {
#pragma unroll
  for (int r = 0; r < Fragment::rows; ++r) {
    const auto open = open_row_of(r);
#pragma unroll
    for (int i = 0; i < Fragment::columns; ++i) scores.at(r, i) = open(scores.at(r, i), key + Fragment::column(i));
  }
}

/// What a modifier by place needs of a thread's rows in a work item. Rows of one head share the head and count from one
/// diagonal key; rows of packed heads have one of each.
template <ScoreModKind kKind, bool kPackGqa, class Fragment>
class PlaceRows {
  enum : int { kKept = kPackGqa ? int{Fragment::rows} : 1 };
  PlaceHead head_[kKept];
  int own_[kKept];  // diagonal key

 public:
  template <class WorkItemT>
  __device__ PlaceRows(const contract::AttentionParams& params, const WorkItemT& item, int first_row) {
#pragma unroll
    for (int r = 0; r < kKept; ++r) {
      head_[r] = {params, item.q_head(first_row + Fragment::row(r))};
      own_[r] = item.query(first_row + Fragment::row(r)) + item.sequence.kv_len - item.sequence.q_len;
    }
  }
  /// Row r of the tile in which the thread's first column is `key`.
  __device__ PlaceMod<kKind> row(int r, int key) const {
    return {head_[kPackGqa ? r : 0], key - (kPackGqa ? own_[r] : own_[0] + Fragment::row(r))};
  }
};

}  // namespace kernelwright::policy
