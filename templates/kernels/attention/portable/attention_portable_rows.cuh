/// The rows and tiles of a CTA of attention_portable: types that follow from the Spec, and products of one tile.
/// attention_portable.cu has the loop over tiles.
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
#include "policy/padding_rows.cuh"
#include "policy/score_mod.cuh"
#include "policy/scores.cuh"
#include "policy/softmax.cuh"
#include "policy/warp_columns.cuh"
#include "ptx/launch.cuh"
#include "tile/kv_buffer.cuh"
#include "tile/kv_rows.cuh"
#include "tile/row_tile.cuh"

// Behind the others: the order in which namespaces appear is the order of variables in a binary.
#include "kernels/attention/attention_defaults.cuh"

namespace kernelwright {
namespace {

using contract::AttentionParams;
/// What a launch passes.
using KernelParams =
    policy::Either<spec::kRopeWidth != 0, contract::PortableRotaryParams, contract::AttentionParams>::type;

constexpr int kNumThreads = spec::kNumWarps * 32;
constexpr int kNumWarpsN = spec::kBlockN / spec::kWarpN, kNumWarpsM = spec::kNumWarps / kNumWarpsN;
constexpr int kRowTiles = spec::kBlockM / (kNumWarpsM * 16);
constexpr int kKeySteps = spec::kWarpN / 16;
constexpr int kDepthSteps = spec::kHeadDimQk / 16;
constexpr int kOutputTiles = spec::kHeadDimV / 8;
static_assert(kNumWarpsM * kNumWarpsN == spec::kNumWarps, "warps of a row share its keys evenly");
static_assert(kRowTiles * kNumWarpsM * 16 == spec::kBlockM, "block_m is a multiple of 16 rows a warp");
// Q stays in registers if it takes no more of them than the fragments of one row tile at depth 128.
constexpr bool kQueriesInRegisters = kRowTiles * kDepthSteps * 4 <= 32;

constexpr bool kRegisters = spec::kStaging == Staging::kRegisters;
constexpr tile::KvForm kForm = kRegisters ? tile::KvForm::kRegisterStaged : tile::KvForm::kCpAsync;
using Keys =
    tile::KvBuffer<tile::KeyTrait<spec::kBlockN, spec::kBlockK, spec::kHeadDimQk, spec::kWarpN>, kForm, spec::kKvDType,
                   spec::kQDType, spec::kNumStages, kNumThreads, spec::kSwizzleBytes, spec::kArch>;
using Values = tile::KvBuffer<tile::ValueTrait<spec::kBlockN, spec::kHeadDimV, spec::kWarpN>, kForm, spec::kKvDType,
                              spec::kQDType, spec::kNumStages, kNumThreads, spec::kSwizzleBytes, spec::kArch>;
using Queries = tile::SharedTile<spec::kBlockM, spec::kHeadDimQk, spec::kSwizzleBytes>;
using Output = tile::SharedTile<spec::kBlockM, spec::kHeadDimV, spec::kSwizzleBytes>;  // over Q, once Q is not needed
constexpr contract::AttentionLayout kLayout = contract::prefill_layout(spec::kBlockM, spec::kBlockN, spec::kHeadDimQk,
                                                                       spec::kHeadDimV, Keys::num_slots, kNumWarpsN);
static_assert(Keys::bytes <= kLayout.values - kLayout.keys && Values::bytes <= kLayout.total - kLayout.values,
              "the host counts the same");
using Columns = policy::WarpColumns<kNumWarpsN, kNumWarpsM, spec::kBlockM, spec::kHeadDimV>;
static_assert(kLayout.statistics + Columns::statistics_bytes <= kLayout.partials &&
                  kLayout.partials + Columns::partials_bytes <= kLayout.total,
              "the host counts the same");

using AnyItem =
    policy::WorkItem<spec::kQLayout, spec::kKvLayout, spec::kCacheLength, spec::kPackGqa, spec::kGroup, spec::kBlockM>;
using WorkItem = SpecItem<AnyItem>;
using Mask = SpecMask<spec::kKvStarts>;
using KvRows = tile::KvRows<tile::Storage<spec::kKvDType>, spec::kKvLayout, spec::kPageSize>;
enum : int { kPlainDepth = spec::kHeadDimQk - spec::kRopeWidth };
static_assert(spec::kRopeWidth == 0 || (kPlainDepth % spec::kBlockK == 0 && spec::kRopeWidth % spec::kBlockK == 0 &&
                                        spec::kKvDType == spec::kQDType),
              "a chunk of the depth lies in one tensor, in the type of q");

/// The keys of one sequence and head: in one tensor, or a plain and a rotary part. (Templates, because the order in
/// which classes appear is the order of variables in a binary.)
template <class Rows>
struct WholeKeys {
  Rows rows;
  __device__ __forceinline__ WholeKeys(const AttentionParams& params, const int32_t* pages, const WorkItem& item,
                                       int kv_head)
      : rows(tile::kv_rows<Rows>(params, params.k, params.k_strides, pages, item.coord.batch, item.sequence.kv_start,
                                 kv_head)) {}
  /// Loads a tile of them to stage `stage`. load_rarely_whole(): likewise, without the check of the whole tile.
  template <class Bound>
  __device__ __forceinline__ void load(Keys& keys, int first_key, const Bound& bound, int stage) const {
    keys.load_from_dram(rows, first_key, bound, stage);
  }
  template <class Bound>
  __device__ __forceinline__ void load_rarely_whole(Keys& keys, int first_key, const Bound& bound, int stage) const {
    keys.load_rows(rows, first_key, bound, stage);
  }
};
template <class Rows>
struct KeysInParts {
  using Plain = tile::DepthChunks<0, kPlainDepth / spec::kBlockK>;
  using Rotary = tile::DepthChunks<kPlainDepth / spec::kBlockK, spec::kRopeWidth / spec::kBlockK>;
  Rows plain, rotary;
  __device__ __forceinline__ KeysInParts(const contract::PortableRotaryParams& params, const int32_t* pages,
                                         const WorkItem& item, int kv_head)
      : plain(WholeKeys<Rows>(params, pages, item, kv_head).rows),
        rotary(tile::kv_rows<Rows>(params, params.k_rope, params.k_rope_strides, pages, item.coord.batch,
                                   item.sequence.kv_start, kv_head)) {}
  template <class Bound>
  __device__ __forceinline__ void load(Keys& keys, int first_key, const Bound& bound, int stage) const {
    keys.template load_from_dram<Plain>(plain, first_key, bound, stage);
    keys.template load_from_dram<Rotary>(rotary, first_key, bound, stage);
  }
  template <class Bound>
  __device__ __forceinline__ void load_rarely_whole(Keys& keys, int first_key, const Bound& bound, int stage) const {
    keys.template load_rows<Plain>(plain, first_key, bound, stage);
    keys.template load_rows<Rotary>(rotary, first_key, bound, stage);
  }
};
using ItemKeys = policy::Either<spec::kRopeWidth != 0, KeysInParts<KvRows>, WholeKeys<KvRows>>::type;

/// Copies the rotary part of the CTA's queries behind the plain part, if there is one.
template <class Params>  // dependent: other parameters have no q_rope
__device__ __forceinline__ void load_rotary_queries(const Params& params, const WorkItem& item, uint32_t shared,
                                                    int thread) {
  if constexpr (spec::kRopeWidth != 0)
    tile::RowTile<spec::kBlockM, spec::kRopeWidth, Queries, kNumThreads, 2, kPlainDepth>{shared}.load(
        thread, item.num_rows, item.rows(static_cast<const uint16_t*>(params.q_rope), params.q_rope_strides));
}

using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
using Softmax = policy::OnlineSoftmax<kRowTiles, spec::kRescale>;
using Scores = float[kRowTiles][spec::kWarpN / 8][4];
using Fragment = policy::MmaScores<kRowTiles, spec::kWarpN / 8>;
using PlaceRows = policy::PlaceRows<spec::kScoreMod, spec::kPackGqa, Fragment>;
enum : bool {  // no variables of a binary
  kKeyScales = scales_differ_by_key(spec::kScales),
  kScaled = spec::kScales != ScaleKind::kNone && !kKeyScales
};
using KeyScales = policy::Either<kKeyScales, policy::WarpKeyScales<spec::kWarpN, -1, spec::kKvLayout, spec::kPageSize>,
                                 policy::EqualKeys>::type;
using Exponentials = uint32_t[kRowTiles][kKeySteps][4];  // packed A operands of P V
// Whether rows see different keys. The weight of a key that a row does not see is 0, and 0 times an infinity or a NaN
// is NaN.
constexpr bool kRowsDiffer = spec::kMask != MaskKind::kNone || OpenRow::exists;
using Accumulator = float[kRowTiles][kOutputTiles][4];

/// Key tiles of the item. Where a tensor may hide any key, every tile needs a mask.
__device__ __forceinline__ policy::TileList tiles_of(const Mask& mask, const WorkItem& item) {
  policy::TileList tiles = policy::tile_list<spec::kBlockN>(mask, item.query(0), item.query(item.num_rows - 1));
  if constexpr (OpenRow::exists) tiles.full_end = tiles.full_begin;
  return tiles;
}

/// Row `row` of the tile for policy/open_scores.cuh.
__device__ __forceinline__ OpenRow open_row(const AttentionParams& params, const WorkItem& item, const Mask& mask,
                                            int row) {
  return {params,
          {item.query(row), 0, item.q_head(row), item.coord.batch, item.sequence.q_len, item.sequence.kv_len},
          mask.visible(item.query(row)),
          row < item.num_rows};
}

/// scores = Q K^T for the warp's rows and its keys of `stage`.
__device__ __forceinline__ void multiply_keys(
    Scores& scores, const tile::QueryFragments<Queries, kRowTiles, kQueriesInRegisters>& queries, const Keys& keys,
    int stage) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < spec::kWarpN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[m][n][e] = 0;
  // Fragments are read one ahead: an ldmatrix takes as long as the four MMAs of the fragment before it. If a chunk of
  // the depth is a strip of both tiles, the loop over chunks is not unrolled: half the code, and half the time to
  // compile it.
  constexpr bool kRolled = Keys::num_chunks > 1 && !kQueriesInRegisters && Queries::whole_strips(spec::kBlockK);
  constexpr int kPairs = spec::kWarpN / 16, kSteps = kRolled ? Keys::num_k_tiles : kDepthSteps,
                kFragments = kSteps * kPairs;
  uint32_t query_base = queries.base(), key_base = keys.fragment_base(stage);
#pragma unroll 1
  for (int chunk = 0; chunk < kDepthSteps / kSteps; ++chunk) {
    uint32_t a[2][kRowTiles][4], first[2][2], second[2][2];
    queries.load(a[0], query_base, 0);
    keys.load_from_shared(first[0], second[0], key_base, 0, 0);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const int step = i / kPairs, pair = i % kPairs, next = i + 1;
      if (next < kFragments)
        keys.load_from_shared(first[next % 2], second[next % 2], key_base, next / kPairs, next % kPairs);
      if (pair == kPairs / 2 && step + 1 < kSteps) queries.load(a[(step + 1) % 2], query_base, step + 1);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        mma::multiply_accumulate<spec::kQDType>(scores[m][2 * pair], a[step % 2][m], first[i % 2]);
#pragma unroll
      for (int m = kRowTiles - 1; m >= 0; --m)
        mma::multiply_accumulate<spec::kQDType>(scores[m][2 * pair + 1], a[step % 2][m], second[i % 2]);
    }
    query_base += Queries::strips_bytes(spec::kBlockK);
    key_base += Keys::chunk_bytes;
  }
}

/// output += P V for the warp's rows and its values of `stage`.
__device__ __forceinline__ void multiply_values(Accumulator& output, const Exponentials& exponentials,
                                                const Values& values, int stage) {
  constexpr int kPairs = spec::kHeadDimV / 16, kFragments = kKeySteps * kPairs;
  const uint32_t base = values.fragment_base(stage);
  uint32_t first[2][2], second[2][2];
  values.load_from_shared(first[0], second[0], base, 0, 0);
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    const int step = i / kPairs, pair = i % kPairs, next = i + 1;
    if (next < kFragments)
      values.load_from_shared(first[next % 2], second[next % 2], base, next / kPairs, next % kPairs);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      mma::multiply_accumulate<spec::kQDType>(output[m][2 * pair], exponentials[m][step], first[i % 2]);
#pragma unroll
    for (int m = kRowTiles - 1; m >= 0; --m)
      mma::multiply_accumulate<spec::kQDType>(output[m][2 * pair + 1], exponentials[m][step], second[i % 2]);
  }
}

/// The rows of the CTA that a warp owns, in units of a warp's rows. column_of(): which of the num_warps_n parts of each
/// key tile.
__device__ __forceinline__ int row_group(int warp) { return kNumWarpsN == 1 ? warp : warp % kNumWarpsM; }
__device__ __forceinline__ int column_of(int warp) { return kNumWarpsN == 1 ? 0 : warp / kNumWarpsM; }
/// The first key of a tile whose scores the thread holds.
__device__ __forceinline__ int first_key_of(int thread) {
  return column_of(thread / 32) * spec::kWarpN + thread % 4 * 2;
}

/// Adds infinities and NaNs of V for the rows that see them, because the products had zeros in their place.
/// `first_row`: the thread's first row. Rare, and slow.
__device__ __forceinline__ void add_non_finite_values(Accumulator& output, const AttentionParams& params,
                                                      const WorkItem& item, int first_row, int lane) {
  const Mask mask = item.template mask<Mask>(params);
  const policy::TileList tiles = tiles_of(mask, item);
  const KvRows rows =
      tile::kv_rows<KvRows>(params, params.v, params.v_strides, tile::page_line<KvRows>(params, item.coord.batch),
                            item.coord.batch, item.sequence.kv_start, item.row_map.kv_head());
#pragma unroll 1
  for (int key = tiles.keys.low; key < tiles.keys.high; ++key) {
    if (!tiles.is_partial(key / spec::kBlockN)) continue;  // no element of it was replaced
    const auto place = rows.row(key);
    if (!place.exists) continue;
    bool sees[Softmax::kRows];
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r) {
      const policy::KeyRange range = mask.visible(item.query(first_row + r / 2 * 16 + r % 2 * 8));
      sees[r] = key >= range.low && key < range.high;
      if constexpr (OpenRow::exists)
        sees[r] = open_row(params, item, mask, first_row + r / 2 * 16 + r % 2 * 8)(0, key) != ptx::minus_infinity();
    }
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n) {
      float values[2];
      tile::load_non_finite<spec::kKvDType>(values, place.at + n * 8 + lane % 4 * 2);
#pragma unroll
      for (int r = 0; r < Softmax::kRows; ++r)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (sees[r] && values[e] != 0) output[r / 2][n][r % 2 * 2 + e] += values[e];
    }
  }
}

/// The scales of the warp's keys, from the last tile on.
__device__ __forceinline__ KeyScales key_scales_of(const AttentionParams& params, const WorkItem& item,
                                                   const policy::TileList& tiles, int column, int lane) {
  const int first = (tiles.end - 1) * spec::kBlockN + column * spec::kWarpN;
  return KeyScales(params, item.coord.batch, item.row_map.kv_head(), item.sequence.kv_start, first,
                   static_cast<int>(spec::kBlockN), tiles.keys.low, tiles.keys.high, lane);
}

/// Adds the sinks to the thread's rows, the first of which is row `first` of the tile: ahead of the keys or, where keys
/// have scales, behind the last. A sink counts once: in the warps of the first column.
template <class Add>
__device__ __forceinline__ void for_each_sink(const AttentionParams& params, const WorkItem& item, int column,
                                              int first, const Add& add) {
#pragma unroll
  for (int r = 0; r < Softmax::kRows; ++r) {
    const int row = first + Fragment::row(r);
    if (row < item.num_rows && column == 0) add(r, params.sinks[item.q_head(row)]);
  }
}

}  // namespace
}  // namespace kernelwright
