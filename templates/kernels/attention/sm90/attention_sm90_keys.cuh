/// Scales that differ by key in a math warpgroup of attention_sm90 (policy/key_scales.cuh), and those of its queries.
/// Each warp loads the scales of its own tiles.
#pragma once

#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "policy/key_scales.cuh"
#include "policy/scores.cuh"

namespace kernelwright {
namespace {

/// A base class: without such scales it takes no room.
template <bool kExists>
class ItemKeys {
  enum : bool { kQueryScales = kNarrow && spec::kScales == ScaleKind::kPerToken };
  using Keys = policy::WarpKeyScales<spec::kBlockN, -1, spec::kKvLayout, spec::kPageSize>;
  Keys keys_;
  policy::RowScales<2> queries_;  // of the thread's two rows

 protected:
  /// The role is now on `item`. `limits` count keys from the item's origin, as tiles do. `row`: the thread's first row,
  /// and `lane` its lane.
  template <class Limits>
  __device__ __forceinline__ void take_scales_of_keys(const contract::AttentionParams& params,
                                                      const policy::PostedItem& item, const Limits& limits, int row,
                                                      uint32_t lane) {
    const policy::ItemRecord::Rows rows = item.rows();
    const int batch = item.batch(), origin = item.origin(), low = limits.visible(Rows::query(rows.first_row)).low;
    const Rows heads{rows.head};
    int64_t start = 0;
    if constexpr (spec::kKvLayout == KvLayoutKind::kRagged)
      start = policy::RaggedRows(params.kv_offsets, batch, params.kv_tokens).start;
    keys_ = Keys(params, batch, heads.kv_head(), start, origin + (item.walk().end - 1) * spec::kBlockN,
                 static_cast<int>(spec::kBlockN), origin + max(low, 0), origin + rows.kv_len, static_cast<int>(lane));
    if constexpr (kQueryScales) {
      int64_t first = int64_t{batch} * params.q_len;
      if constexpr (spec::kQLayout == QLayout::kRagged) first = policy::ragged_queries(params, batch).start;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = row + r * 8, packed = rows.first_row + at;
        queries_.of[r] = at < item.num_rows()
                             ? params.q_scale[(first + Rows::query(packed)) * params.q_heads + heads.q_head(packed)]
                             : 1;
      }
    }
  }

  /// The scores of the next tile, products so far.
  template <class Scores>
  __device__ __forceinline__ void scale_by_keys(const contract::AttentionParams& params, const Scores& scores) {
    keys_.step(params);
    if constexpr (kQueryScales) policy::multiply_rows(scores, queries_);
    policy::multiply_keys(scores, keys_);
  }
  /// The same scores, modified and masked.
  template <class Scores>
  __device__ __forceinline__ void to_exponents(const Scores& scores, float exponent_scale) const {
    policy::to_exponents(scores, keys_, exponent_scale);
  }
  __device__ __forceinline__ const Keys& keys() const { return keys_; }
};

template <>
class ItemKeys<false> {
 protected:
  template <class Limits>
  __device__ __forceinline__ static void take_scales_of_keys(const contract::AttentionParams&,
                                                             const policy::PostedItem&, const Limits&, int, uint32_t) {}
  template <class Scores>
  __device__ __forceinline__ static void scale_by_keys(const contract::AttentionParams&, const Scores&) {}
  template <class Scores>
  __device__ __forceinline__ static void to_exponents(const Scores&, float) {}
  __device__ __forceinline__ static policy::EqualKeys keys() { return {}; }
};

using KeyScales = ItemKeys<kKeyScales>;

}  // namespace
}  // namespace kernelwright
