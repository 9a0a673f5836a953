/// Masks and modifiers of single keys in attention_sm90.
#pragma once

#include "kernels/attention/attention_open.cuh"
#include "kernels/attention/sm90/attention_sm90_rows.cuh"
#include "policy/item_record.cuh"
#include "policy/scores.cuh"

namespace kernelwright {
namespace {

/// Changes and hides a thread's scores of key tile `tile` one by one. `row`: the thread's first row of the query tile.
__device__ __forceinline__ void open_scores(const contract::AttentionParams& params, const policy::PostedItem& posted,
                                            const TileMask& limits, int row, int tile, const Fragment& scores) {
  const policy::ItemRecord::Rows item = posted.rows();
  const int rows = posted.num_rows(), batch = posted.batch(), first = posted.origin();
  const int origin = first + tile * spec::kBlockN + static_cast<int>(threadIdx.x % 4 * 2);
  policy::open_keys(scores, origin, [&](int r) {
    const int mine = row + Fragment::row(r), query = Rows::query(item.first_row + mine);
    const policy::KeyRange seen = limits.visible(query);
    return OpenRow(params,
                   {query, 0, Rows{item.head}.q_head(item.first_row + mine), batch, item.kv_len - item.diagonal,
                    first + item.kv_len},
                   {first + seen.low, first + seen.high}, mine < rows);
  });
}

}  // namespace
}  // namespace kernelwright
