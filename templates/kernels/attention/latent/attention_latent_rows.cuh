/// What the kernels of latent attention share: types that follow from the Spec, and the merge of parts.
#pragma once

#include "spec.h"

#include "contract/attention_latent_record.h"
#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/attention_item.cuh"
#include "policy/mask.cuh"
#include "policy/merge_parts.cuh"
#include "policy/score_mod.cuh"
#include "tile/kv_buffer.cuh"
#include "tile/scaled_codes.cuh"

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

enum : bool {  // not variables, which would be in every binary
  kConverts = spec::kKvDType != spec::kQDType,
  kRecords = spec::kScales == ScaleKind::kPerBlock,
  kTensorScale = spec::kScales == ScaleKind::kPerTensor,
};
static_assert(kConverts || spec::kScales == ScaleKind::kNone, "only keys of 8 bits have scales");

constexpr contract::LatentKey kKey = contract::latent_key(spec::kHeadDimQk, spec::kHeadDimV, kRecords);

/// The one scale of all keys, which are their own values; 1: there is none.
__device__ __forceinline__ float tensor_scale(const contract::AttentionParams& params) {
  if constexpr (kTensorScale) return params.k_scale[0];
  return 1;
}
using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
__device__ __forceinline__ ScoreMod score_mod(const contract::AttentionParams& params) {
  if constexpr (kTensorScale) return {params.scale * tensor_scale(params), params.softcap};
  return {params.scale, params.softcap};
}
/// What a row's sum of probabilities times keys is multiplied by, given the inverse of the row's sum.
__device__ __forceinline__ float output_factor(const contract::AttentionParams& params, float inverse) {
  if constexpr (kTensorScale) return inverse * tensor_scale(params);
  return inverse;
}

/// Sixteen codes of a key to elements of the queries' dtype. Of records they are multiplied by their scale.
__device__ __forceinline__ void convert_codes(const ptx::Vector16& codes, float scale, ptx::Vector16 (&elements)[2]) {
  if constexpr (kRecords)
    tile::convert_scaled_fp8<spec::kKvDType, spec::kQDType, spec::kArch>(codes, scale, elements);
  else
    tile::convert_fp8<spec::kKvDType, spec::kQDType, spec::kArch>(codes, elements);
}

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
