/// The rows of a CTA of the decode form: types that follow from the Spec, and what a thread does with its rows before
/// and behind the loop over keys. attention_decode.cuh has that loop.
#pragma once

#include "spec.h"

#include "contract/attention_params.h"
#include "contract/attention_portable.h"
#include "contract/words.h"
#include "kernels/attention/attention_open.cuh"
#include "mma/sm80.cuh"
#include "policy/attention_item.cuh"
#include "policy/key_scales.cuh"
#include "policy/mask.cuh"
#include "policy/merge_parts.cuh"
#include "policy/narrow_softmax.cuh"
#include "policy/padding_rows.cuh"
#include "policy/score_mod.cuh"
#include "policy/scores.cuh"
#include "policy/softmax.cuh"
#include "ptx/launch.cuh"
#include "tile/kv_buffer.cuh"
#include "tile/row_tile.cuh"

// Behind the others: the order in which namespaces appear is the order of variables in a binary.
#include "kernels/attention/attention_defaults.cuh"
#include "policy/kv_operands.cuh"

namespace kernelwright {
namespace decode {

constexpr int kNumThreads = spec::kNumWarps * 32;
constexpr int kRowTiles = spec::kBlockM / 16;
constexpr int kWarpKeys = spec::kBlockN / spec::kNumWarps;
constexpr int kKeySteps = kWarpKeys / 16;
constexpr int kDepthSteps = spec::kHeadDimQk / 16;
constexpr int kOutputTiles = spec::kHeadDimV / 8;
constexpr bool kQueriesInRegisters = kRowTiles * kDepthSteps * 4 <= 32;
static_assert(spec::kPackGqa, "rows are the queries x heads of one KV head");

using Queries = tile::SharedTile<spec::kBlockM, spec::kHeadDimQk, spec::kSwizzleBytes>;
using AnyItem =
    policy::WorkItem<spec::kQLayout, spec::kKvLayout, spec::kCacheLength, true, spec::kGroup, spec::kBlockM>;
using WorkItem = SpecItem<AnyItem>;
using Mask = SpecMask<spec::kKvStarts>;
using Bound = tile::RowBound<Mask::hides_low>;
using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
// No variable of a binary. Queries of fp8 are bytes, and their exponentials are those of fp8 products.
enum : bool { kNarrow = spec::kQDType == DType::kE4m3 };
enum : bool { kKeyScales = scales_differ_by_key(spec::kScales) };
enum : int { kSums = kNarrow && spec::kLse && !kKeyScales ? 2 : 1 };  // of each row
using KeyScales = policy::Either<kKeyScales, policy::WarpKeyScales<kWarpKeys, 1, spec::kKvLayout, spec::kPageSize>,
                                 policy::EqualKeys>::type;
using Softmax = policy::Either<kNarrow, policy::NarrowSoftmax<kRowTiles, spec::kLse, spec::kArch, kKeyScales>,
                               policy::OnlineSoftmax<kRowTiles, spec::kRescale>>::type;
using Fragment = policy::MmaScores<kRowTiles, 2 * kKeySteps>;
using PlaceRows = policy::PlaceRows<spec::kScoreMod, true, Fragment>;
using Accumulator = float[kRowTiles][kOutputTiles][4];
// Modifiers, single keys and their scales take scores as they are; else the factors of rows join the softmax's scale.
enum : bool { kFoldsFactors = spec::kScoreMod == ScoreModKind::kNone && !OpenRow::exists && !kKeyScales };
// Queries of fp8 may have scales.
enum : bool { kQueryScales = kNarrow && spec::kScales == ScaleKind::kPerToken };

/// What the warps leave for each other: for each warp and row, the maximum (base 2) and the sums, and the unnormalised
/// output. The first sum divides outputs. The last one is that of the LSE.
struct WarpResults {
  enum : int { kStatistics = 1 + kSums };
  float* statistics;  // [num_warps][1 + sums][block_m]
  float* partials;    // [num_warps][block_m][head_dim.v]
  __device__ float& maximum(int warp, int row) const { return statistics[(warp * kStatistics) * spec::kBlockM + row]; }
  __device__ float& sum(int warp, int row, int which = 0) const {
    return statistics[(warp * kStatistics + 1 + which) * spec::kBlockM + row];
  }
  __device__ float* output(int warp, int row) const {
    return partials + (warp * spec::kBlockM + row) * spec::kHeadDimV;
  }
};

/// Row `row` of the tile for policy/open_scores.cuh.
__device__ __forceinline__ OpenRow open_row(const contract::AttentionParams& params, const WorkItem& item,
                                            const Mask& mask, int row) {
  return {params,
          {item.query(row), 0, item.q_head(row), item.coord.batch, item.sequence.q_len, item.sequence.kv_len},
          mask.visible(item.query(row)),
          row < item.num_rows};
}

/// Calls add(r, logit) for the thread's rows. A sink counts once: in the first part, in the first warp.
template <class RowOf, class Add>
__device__ __forceinline__ void for_each_sink(const contract::AttentionParams& params, const WorkItem& item, int warp,
                                              const RowOf& row_of, const Add& add) {
  if (item.coord.split == 0 && warp == 0) {
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r)
      if (row_of(r) < item.num_rows) add(r, params.sinks[item.q_head(row_of(r))]);
  }
}

/// Adds the sinks to the rows of a thread.
template <class RowOf, class Scales>
__device__ __forceinline__ void add_sinks(Softmax& softmax, const contract::AttentionParams& params,
                                          const WorkItem& item, int warp, int lane, const RowOf& row_of,
                                          const Scales& scales) {
  if constexpr (spec::kSinks && !kKeyScales)
    for_each_sink(params, item, warp, row_of,
                  [&](int r, float logit) { softmax.add_sink(r, logit, scales, lane % 4 == 0); });
}

/// The same behind the last tile, where keys have scales.
template <class RowOf, class Scales>
__device__ __forceinline__ void add_last_sinks(Softmax& softmax, Accumulator& output,
                                               const contract::AttentionParams& params, const WorkItem& item, int warp,
                                               int lane, const RowOf& row_of, const Scales& scales) {
  if constexpr (spec::kSinks && kKeyScales)
    for_each_sink(params, item, warp, row_of,
                  [&](int r, float logit) { softmax.add_last_sink(r, logit, scales, lane % 4 == 0, output); });
}

/// What the softmax multiplies scores by: a float, or one for each row. Scores of keys that have scales are exponents.
template <class Products, class Factors>
__device__ __forceinline__ auto softmax_scales(const Factors& factors, float exponent_scale) {
  const float scale = kKeyScales ? 1 : exponent_scale;
  if constexpr (Products::scales_rows)
    return Products::template scales_of<kFoldsFactors>(factors, scale);
  else
    return scale;
}

/// Writes a row of a warp's output, unnormalised; `e`: its first register of an MMA.
template <class Products>
__device__ __forceinline__ void leave_row(float* row, const float (&output)[kOutputTiles][4], int e, int lane) {
  if constexpr (Products::mixes_columns) {
    policy::store_row_of_bytes(row, output, e, lane);
  } else {
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
      *reinterpret_cast<float2*>(row + n * 8 + lane % 4 * 2) = make_float2(output[n][e], output[n][e + 1]);
  }
}

/// Merges the parts of the item's rows, all of which have been written. Each warp has rows of its own.
__device__ __forceinline__ void merge_rows(const contract::AttentionParams& params, const WorkItem& item,
                                           int64_t partial_rows, int warp, int lane) {
  for (int row = warp; row < item.num_rows; row += spec::kNumWarps) {
    const int64_t from = item.partial_row(params, row);
    const policy::MergedRow<spec::kHeadDimV> merged(params.partial_o + from * spec::kHeadDimV,
                                                    params.partial_lse + from, partial_rows, params.num_splits, lane);
    merged.store<spec::kOutDType>(params.o, item.offset(params.o_strides, row), lane);
    if constexpr (spec::kLse) {
      const float log2_sum = policy::merged_log2_sum<(kSums > 1)>(merged, params.partial_lse + from, partial_rows,
                                                                  params.num_splits, lane);
      if (lane == 0) params.lse[item.lse_index(params, row)] = log2_sum * policy::kLn2;
    }
  }
}

/// Makes Q, which has landed, what fragments are multiplied by.
template <class Stream>
__device__ __forceinline__ void prepare_queries(uint32_t shared, int thread) {
  if constexpr (Stream::Products::scales_rows)
    Stream::Products::template prepare<Queries, kNumThreads>(shared, shared + Stream::query_factors(), thread);
  if constexpr (Stream::Products::narrow) Stream::Products::template prepare<Queries, kNumThreads>(shared, thread);
  if constexpr (Stream::Products::scales_rows || Stream::Products::narrow) __syncthreads();
}

/// What the normalised rows of a thread are multiplied by; nothing where rows are as the launch gives them.
template <class Stream, int kRows, class RowOf>
__device__ __forceinline__ auto query_factors(uint32_t shared, const RowOf& row_of) {
  if constexpr (Stream::Products::scales_rows)
    return Stream::Products::template factors_of<kRows>(shared + Stream::query_factors(), row_of);
  else
    return 0;
}

/// The scales of the queries of a thread's rows, as factors of their scores, where they have some.
template <class RowOf>
__device__ __forceinline__ policy::RowScales<Softmax::kRows> query_scales(const contract::AttentionParams& params,
                                                                          const WorkItem& item, const RowOf& row_of) {
  policy::RowScales<Softmax::kRows> scales;
  if constexpr (!kQueryScales) return scales;
  const int64_t first = spec::kQLayout == QLayout::kRagged ? 0 : int64_t{item.coord.batch} * params.q_len;
#pragma unroll
  for (int r = 0; r < Softmax::kRows; ++r) {
    const int row = row_of(r);
    scales.of[r] =
        row < item.num_rows ? params.q_scale[(first + item.token(row)) * params.q_heads + item.q_head(row)] : 1;
  }
  return scales;
}

/// Hides the scores of keys that a row does not see. `origin`: the key of the thread's first column.
template <class RowOf>
__device__ __forceinline__ void hide_unseen(const contract::AttentionParams& params, const WorkItem& item,
                                            const Mask& mask, const Fragment& fragment, const RowOf& row_of,
                                            int origin) {
  if constexpr (OpenRow::exists)
    policy::open_keys(fragment, origin, [&](int r) { return open_row(params, item, mask, row_of(r)); });
  else
    policy::hide_keys<Mask::hides>(fragment, origin, [&](int r) { return mask.visible(item.query(row_of(r))); });
}

__device__ __forceinline__ void clear(Accumulator& output) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) output[m][n][e] = 0;
}

}  // namespace decode
}  // namespace kernelwright
