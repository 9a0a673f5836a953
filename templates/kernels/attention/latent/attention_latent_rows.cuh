/// What the kernels of latent attention share: types that follow from the Spec, and the merge of parts.
#pragma once

#include "spec.h"

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/attention_item.cuh"
#include "policy/mask.cuh"
#include "policy/merge_parts.cuh"
#include "policy/score_mod.cuh"
#include "tile/kv_buffer.cuh"

// Behind the others: the order in which namespaces appear is the order of variables in a binary.
#include "kernels/attention/attention_defaults.cuh"

namespace kernelwright {
namespace {

static_assert(spec::kPackGqa, "rows are the queries x heads of one KV head");

using Mask = SpecMask<spec::kKvStarts>;
using Bound = tile::RowBound<Mask::hides_low>;
template <int kRows>
using ItemOf =
    SpecItem<policy::WorkItem<spec::kQLayout, spec::kKvLayout, spec::kCacheLength, true, spec::kGroup, kRows>>;
using WorkItem = ItemOf<spec::kBlockM>;

/// Merges the parts of the rows of a CTA, all of which have been written. `warp` is one of kWarps that share the rows.
template <int kWarps>
__device__ __forceinline__ void merge_rows(const contract::AttentionParams& params, const WorkItem& item, int warp,
                                           int lane) {
  const int64_t rows = WorkItem::partial_rows(params);
#pragma unroll 1
  for (int row = warp; row < item.num_rows; row += kWarps) {
    const int64_t from = item.partial_row(params, row);
    const policy::MergedRow<spec::kHeadDimV> merged(params.partial_o + from * spec::kHeadDimV,
                                                    params.partial_lse + from, rows, params.num_splits, lane);
    merged.store<spec::kOutDType>(params.o, item.offset(params.o_strides, row), lane);
    if (spec::kLse && lane == 0) params.lse[item.lse_index(params, row)] = merged.log2_sum * policy::kLn2;
  }
}

}  // namespace
}  // namespace kernelwright
