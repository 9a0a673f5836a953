/// The decode form of attention: few query rows on mma.sync, written for bandwidth. A kernel is this body and a stream
/// that brings the keys and values: attention_decode_portable.cu, attention_decode_sm90.cu.
///
/// One CTA owns up to block_m rows, the queries x heads of one KV head, and one part of the keys. Its warps share
/// nothing while keys stream. Each warp walks 16 keys (or a multiple) of every tile through a ring of its own. It keeps
/// a softmax and an output of its own, so the loop holds no CTA barrier. The warps' results meet once, at the end, in
/// shared memory. The CTA that finishes last, or attention_combine, merges parts of split keys.
///
/// A Stream is one warp's view of its ring:
///   layout                  contract::DecodeLayout of the CTA
///   Products                policy::KvOperands: the type and the columns of fragments
///   prepare(operands, shared, warp, lane)  static: work without global memory, before the wait for the grids ahead
///   Stream(params, operands, item, tiles, shared, warp, lane)
///   groups_ahead            cp.async groups that prefetch() commits, behind that of Q
///   prefetch()              starts to load the first tiles
///   keys(), values()        KvBuffers to read fragments from
///   stage()                 the slot of the tile that is being read
///   await_keys(tile)        afterwards its keys can be read
///   await_values(tile)      afterwards its values can be read
///   release(tile)           both have been read: starts to load the next tile
///   finish()                waits until nothing is in flight
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
using KeyScales =
    policy::Either<kKeyScales, policy::WarpKeyScales<kWarpKeys, 1, spec::kKvLayout, spec::kPageSize>,
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
    scales.of[r] = row < item.num_rows
                       ? params.q_scale[(first + item.token(row)) * params.q_heads + item.q_head(row)]
                       : 1;
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

template <class Stream, class Operands>
__device__ __forceinline__ void attend(const contract::AttentionParams& params, const Operands& operands) {
  using Products = typename Stream::Products;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const uint32_t shared = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  Stream::prepare(operands, shared, warp, lane);
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_wait();

  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
      params, blockIdx.x * spec::kNumWarps + warp, gridDim.x * spec::kNumWarps, lane);
  const WorkItem item(params, blockIdx.x);
  const policy::TileCoord& coord = item.coord;
  if (item.num_rows <= 0) return;
  const Mask mask = item.mask<Mask>(params);
  policy::TileList tiles = policy::tile_list<spec::kBlockN>(mask, item.query(0), item.query(item.num_rows - 1));
  tiles.take_part(coord.split, params.num_splits);

  using StoredQuery = tile::Storage<spec::kQDType>;
  const tile::RowTile<spec::kBlockM, spec::kHeadDimQk, Queries, kNumThreads, sizeof(StoredQuery)> query_tile{shared};
  query_tile.load(thread, item.num_rows, item.rows(static_cast<const StoredQuery*>(params.q), params.q_strides));
  ptx::cp_async_commit_group();
  Stream stream(params, operands, item, tiles, shared, warp, lane);
  stream.prefetch();

  const bool merges = spec::kMerge == Merge::kInKernel && params.num_splits > 1;
  // Opaque: computed anew at the end, so that it holds no register across the loop.
  const auto last_arrival = [&] {
    return policy::LastArrival(params.merge_counters + ptx::opaque(blockIdx.x) / params.num_splits);
  };
  if (merges && thread == 0) last_arrival().open();  // while the first keys are in flight

  float key_scale = 1, value_scale = 1;
  if constexpr (spec::kScales != ScaleKind::kNone && !kKeyScales) {
    const int index = spec::kScales == ScaleKind::kPerHead ? coord.head : 0;
    key_scale = params.k_scale[index];
    value_scale = params.v_scale[index];
  }
  const ScoreMod score_mod{params.scale * key_scale, params.softcap};
  constexpr bool kScaled = spec::kScales != ScaleKind::kNone && !kKeyScales;
  const float exponent_scale = score_mod.exponent_scale<kScaled>(params.exponent_scale);

  const auto row_of = [&](int r) { return r / 2 * 16 + r % 2 * 8 + lane / 4; };
  Softmax softmax;
  if constexpr (!Products::scales_rows) add_sinks(softmax, params, item, warp, lane, row_of, exponent_scale);
  Accumulator output;
  clear(output);

  const PlaceRows place_rows(params, item, lane / 4);
  tile::QueryFragments<Queries, kRowTiles, kQueriesInRegisters> queries(shared, 0, lane);
  ptx::cp_async_wait_group<Stream::groups_ahead>();
  __syncthreads();  // Q has landed
  prepare_queries<Stream>(shared, thread);
  if (score_mod.changes_queries()) {
    query_tile.take_sign(thread, score_mod.scale);
    __syncthreads();
  }
  queries.load_all();

  const auto factors = query_factors<Stream, Softmax::kRows>(shared, row_of);
  const auto scales = softmax_scales<Products>(factors, exponent_scale);
  if constexpr (Products::scales_rows) add_sinks(softmax, params, item, warp, lane, row_of, scales);
  const auto scales_of_queries = query_scales(params, item, row_of);
  KeyScales key_scales(params, coord.batch, coord.head, item.sequence.kv_start,
                       tiles.begin * spec::kBlockN + warp * kWarpKeys, static_cast<int>(spec::kBlockN), tiles.keys.low,
                       tiles.keys.high, lane);
  const auto& keys = stream.keys();
  const auto& values = stream.values();
  for (int key_tile = tiles.begin; key_tile < tiles.end; ++key_tile) {
    key_scales.step(params);
    stream.await_keys(key_tile);
    const uint32_t query_base = queries.base(), key_base = keys.fragment_base(stream.stage());
    float scores[kRowTiles][2 * kKeySteps][4] = {};
#pragma unroll
    for (int step = 0; step < kDepthSteps; ++step) {
      uint32_t a[kRowTiles][4];
      queries.load(a, query_base, step);
#pragma unroll
      for (int pair = 0; pair < kKeySteps; ++pair) {
        uint32_t first[2], second[2];
        keys.load_from_shared(first, second, key_base, step, pair);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma::multiply_accumulate<Products::computed()>(scores[m][2 * pair], a[m], first);
          mma::multiply_accumulate<Products::computed()>(scores[m][2 * pair + 1], a[m], second);
        }
      }
    }
    const Fragment fragment{scores};
    if constexpr (Products::normalises && !kFoldsFactors) policy::multiply_rows(fragment, factors);
    if constexpr (kQueryScales) policy::multiply_rows(fragment, scales_of_queries);
    policy::multiply_keys(fragment, key_scales);
    policy::modify(fragment, score_mod, [&] {
      return [&, key = key_tile * spec::kBlockN + warp * kWarpKeys + lane % 4 * 2](int r) {
        return place_rows.row(r, key);
      };
    });
    if (OpenRow::exists || tiles.is_partial(key_tile))
      hide_unseen(params, item, mask, fragment, row_of, key_tile * spec::kBlockN + warp * kWarpKeys + lane % 4 * 2);
    policy::to_exponents(fragment, key_scales, exponent_scale);
    uint32_t exponentials[kRowTiles][kKeySteps][4];
    softmax.template update<Products::computed()>(scores, exponentials, output, scales, key_scales);

    stream.await_values(key_tile);
    const uint32_t value_base = values.fragment_base(stream.stage());
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < spec::kHeadDimV / 16; ++pair) {
        uint32_t first[2], second[2];
        values.load_from_shared(first, second, value_base, step, pair);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma::multiply_accumulate<Products::computed()>(output[m][2 * pair], exponentials[m][step], first);
          mma::multiply_accumulate<Products::computed()>(output[m][2 * pair + 1], exponentials[m][step], second);
        }
      }
    }
    stream.release(key_tile);
  }
  stream.finish();
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_launch_dependents();  // attention_combine may begin

  // The warps' results, each relative to a maximum of its own, are written over the rings.
  add_last_sinks(softmax, output, params, item, warp, lane, row_of, scales);
  softmax.finish();
  __syncthreads();  // no warp streams into its ring any more
  const WarpResults results{reinterpret_cast<float*>(shared_memory + Stream::layout.statistics),
                            reinterpret_cast<float*>(shared_memory + Stream::layout.partials)};
#pragma unroll
  for (int r = 0; r < Softmax::kRows; ++r) {
    const int row = row_of(r);
    if (lane % 4 == 0) {
      results.maximum(warp, row) = softmax.base2_maximum(r, scales);
#pragma unroll
      for (int i = 0; i < kSums; ++i) results.sum(warp, row, i) = softmax.total(r, i);
    }
    leave_row<Products>(results.output(warp, row), output[r / 2], r % 2 * 2, lane);
  }
  __syncthreads();

  // Each warp finishes rows of its own, pairs of columns at a time.
  const int64_t partial_rows = WorkItem::partial_rows(params);
  for (int row = warp; row < item.num_rows; row += spec::kNumWarps) {
    float largest = ptx::minus_infinity();
#pragma unroll
    for (int w = 0; w < spec::kNumWarps; ++w) largest = fmaxf(largest, results.maximum(w, row));
    float weight[spec::kNumWarps], sums[kSums] = {};
#pragma unroll
    for (int w = 0; w < spec::kNumWarps; ++w) {
      weight[w] = largest == ptx::minus_infinity() ? 0 : ptx::ex2_approx_ftz(results.maximum(w, row) - largest);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] += weight[w] * results.sum(w, row, i);
    }
    const auto log2_of = [&](float sum) {
      return sum == 0 ? ptx::minus_infinity() : largest + ptx::lg2_approx_ftz(sum);
    };
    const float inverse = sums[0] == 0 ? 0 : value_scale / sums[0];
    const float log2_sum = log2_of(sums[0]);
    const int64_t partial_row = item.partial_row(params, row) + coord.split * partial_rows;
    if (lane == 0) {
      if (params.num_splits > 1) {
        params.partial_lse[partial_row] = log2_sum;
        if constexpr (kSums > 1) params.partial_lse[partial_row + params.num_splits * partial_rows] = log2_of(sums[1]);
      } else if (spec::kLse) {
        params.lse[item.lse_index(params, row)] = (kSums > 1 ? log2_of(sums[kSums - 1]) : log2_sum) * policy::kLn2;
      }
    }
    for (int column = lane * 2; column < spec::kHeadDimV; column += 64) {
      float low = 0, high = 0;
#pragma unroll
      for (int w = 0; w < spec::kNumWarps; ++w) {
        const float2 part = *reinterpret_cast<const float2*>(results.output(w, row) + column);
        low += weight[w] * part.x, high += weight[w] * part.y;
      }
      low *= inverse, high *= inverse;
      if (params.num_splits > 1) {
        *reinterpret_cast<float2*>(params.partial_o + partial_row * spec::kHeadDimV + column) = make_float2(low, high);
      } else {
        tile::store_pair<spec::kOutDType>(params.o, item.offset(params.o_strides, row) + column, low, high);
      }
    }
  }
  if (!merges) return;

  __syncthreads();  // this part is written
  if (!__syncthreads_or(thread == 0 && last_arrival().arrive(params.num_splits))) return;
  merge_rows(params, item, partial_rows, warp, lane);
}

}  // namespace decode
}  // namespace kernelwright
