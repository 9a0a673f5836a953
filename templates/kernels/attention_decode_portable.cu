/// Attention for few query rows on mma.sync, written for bandwidth: the token_gen form of the KV buffer.
///
/// One CTA owns up to block_m rows, the queries x heads of one KV head, and one part of the keys. Its warps share
/// nothing while keys stream: each walks 16 keys (or a multiple) of every tile through a cp.async ring of its own and
/// keeps a softmax and an output of its own, so that the loop holds no CTA barrier. The warps' results meet once, at
/// the end, in shared memory. Parts of split keys are merged by the CTA that finishes last, or by attention_combine.
#include "spec.h"

#include "contract/attention_layout.h"
#include "contract/attention_params.h"
#include "contract/spec_words.h"
#include "mma/sm80.cuh"
#include "policy/attention_item.cuh"
#include "policy/mask.cuh"
#include "policy/merge_parts.cuh"
#include "policy/score_mod.cuh"
#include "policy/softmax.cuh"
#include "ptx/launch.cuh"
#include "tile/kv_buffer.cuh"
#include "tile/kv_rows.cuh"
#include "tile/row_tile.cuh"

namespace kernelwright {
namespace {

constexpr int kNumThreads = spec::kNumWarps * 32;
constexpr int kRowTiles = spec::kBlockM / 16;
constexpr int kWarpKeys = spec::kBlockN / spec::kNumWarps;
constexpr int kKeySteps = kWarpKeys / 16;
constexpr int kDepthSteps = spec::kHeadDimQk / 16;
constexpr int kOutputTiles = spec::kHeadDimV / 8;
constexpr bool kQueriesInRegisters = kRowTiles * kDepthSteps * 4 <= 32;
static_assert(spec::kPackGqa, "rows are the queries x heads of one KV head");

constexpr tile::KvForm kForm = spec::kRegisterStaged ? tile::KvForm::kRegisterStaged : tile::KvForm::kCpAsync;
using Keys = tile::KvBuffer<tile::KeyTrait<kWarpKeys, spec::kBlockK, spec::kHeadDimQk, kWarpKeys>, kForm,
                            spec::kKvDType, spec::kQDType, spec::kNumStages, 32, spec::kSwizzleBytes, spec::kArch>;
using Values = tile::KvBuffer<tile::ValueTrait<kWarpKeys, spec::kHeadDimV>, kForm, spec::kKvDType, spec::kQDType,
                              spec::kNumStages, 32, spec::kSwizzleBytes, spec::kArch>;
// Beside the accumulators of a wide head no tile can wait in registers: keys are then fetched when their turn comes,
// and values behind Q K^T. Other warps and CTAs hide what that costs.
constexpr bool kLate = spec::kRegisterStaged && spec::kHeadDimQk + spec::kHeadDimV > 256;
using Queries = tile::SharedTile<spec::kBlockM, spec::kHeadDimQk, spec::kSwizzleBytes>;

constexpr contract::DecodeLayout kLayout = contract::decode_layout(spec::kBlockM, spec::kBlockN, spec::kNumWarps,
                                                                   spec::kHeadDimQk, spec::kHeadDimV, Keys::num_slots);
static_assert(Keys::bytes <= kLayout.ring_values && Values::bytes <= kLayout.ring_bytes - kLayout.ring_values,
              "the host counts the same");

using WorkItem = policy::WorkItem<spec::kQLayout, spec::kKvLayout, true, spec::kGroup, spec::kBlockM>;
using Mask = policy::Mask<spec::kMask>;
using KvRows = tile::KvRows<tile::Storage<spec::kKvDType>, spec::kKvLayout, spec::kPageSize>;
using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
using Softmax = policy::OnlineSoftmax<kRowTiles, spec::kRescale>;
using Accumulator = float[kRowTiles][kOutputTiles][4];

/// What the warps leave for each other: per warp and row, the maximum (base 2) and the sum; and the unnormalised
/// output.
struct WarpResults {
  float* statistics;  // [num_warps][2][block_m]
  float* partials;    // [num_warps][block_m][head_dim.v]
  __device__ float& maximum(int warp, int row) const { return statistics[(warp * 2) * spec::kBlockM + row]; }
  __device__ float& sum(int warp, int row) const { return statistics[(warp * 2 + 1) * spec::kBlockM + row]; }
  __device__ float* output(int warp, int row) const {
    return partials + (warp * spec::kBlockM + row) * spec::kHeadDimV;
  }
};

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::kNumThreads, kernelwright::spec::kMinCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::AttentionParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const uint32_t shared = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;

  const WorkItem item(params, blockIdx.x);
  const policy::TileCoord& coord = item.coord;
  if (item.num_rows <= 0) return;
  const Mask mask = item.mask<Mask>(params);
  policy::TileList tiles = policy::tile_list<spec::kBlockN>(mask, item.query(0), item.query(item.num_rows - 1));
  tiles.take_part(coord.split, params.num_splits);

  const tile::RowTile<spec::kBlockM, spec::kHeadDimQk, Queries, kNumThreads> query_tile{shared};
  query_tile.load(thread, item.num_rows, item.rows(static_cast<const uint16_t*>(params.q), params.q_strides));
  ptx::cp_async_commit_group();

  const KvRows key_rows =
      tile::kv_rows<KvRows>(params.k, params.k_strides, params, coord.batch, item.sequence.kv_start, coord.head);
  const KvRows value_rows =
      tile::kv_rows<KvRows>(params.v, params.v_strides, params, coord.batch, item.sequence.kv_start, coord.head);
  const uint32_t ring = shared + kLayout.rings + warp * kLayout.ring_bytes;
  Keys keys(ring, lane);
  Values values(ring + kLayout.ring_values, lane);
  const tile::RowBound<spec::kMask == MaskKind::kSlidingWindow> bound{tiles.keys.low, tiles.keys.high};
  const auto load_tile = [&](int key_tile, int stage) {
    if (key_tile < tiles.end) {
      const int first_key = key_tile * spec::kBlockN + warp * kWarpKeys;
      keys.load_from_dram(key_rows, first_key, bound, stage);
      if constexpr (!kLate) values.load_from_dram(value_rows, first_key, bound, stage);
    }
    ptx::cp_async_commit_group();  // empty groups keep the count of groups equal to that of tiles
  };
  constexpr int kAhead = kLate ? 0 : Keys::num_slots > 1 ? Keys::num_slots - 1 : 1;
#pragma unroll 1
  for (int ahead = 0; ahead < kAhead; ++ahead) load_tile(tiles.begin + ahead, ahead);

  const bool merges = spec::kMerge == Merge::kInKernel && params.num_splits > 1;
  const policy::LastArrival last_arrival(merges ? params.merge_counters + blockIdx.x / params.num_splits : nullptr);
  if (merges && thread == 0) last_arrival.open();  // while the first keys are on their way

  float key_scale = 1, value_scale = 1;
  if constexpr (spec::kScales != ScaleKind::kNone) {
    const int index = spec::kScales == ScaleKind::kPerHead ? coord.head : 0;
    key_scale = params.k_scale[index];
    value_scale = params.v_scale[index];
  }
  const ScoreMod score_mod{params.scale * key_scale, params.softcap};
  const float exponent_scale = score_mod.exponent_scale<spec::kScales != ScaleKind::kNone>(params.exponent_scale);

  const auto row_of = [&](int r) { return r / 2 * 16 + r % 2 * 8 + lane / 4; };
  Softmax softmax;
  if constexpr (spec::kSinks) {
    // The sink counts once: in the first part, in the first warp.
    if (coord.split == 0 && warp == 0) {
#pragma unroll
      for (int r = 0; r < Softmax::kRows; ++r)
        if (row_of(r) < item.num_rows)
          softmax.add_sink(r, params.sinks[item.q_head(row_of(r))], exponent_scale, lane % 4 == 0);
    }
  }
  Accumulator output;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) output[m][n][e] = 0;

  tile::QueryFragments<Queries, kRowTiles, kQueriesInRegisters> queries(shared, 0, lane);
  ptx::cp_async_wait_group<kAhead>();
  __syncthreads();  // Q has landed
  if (score_mod.changes_queries()) {
    query_tile.take_sign(thread, score_mod.scale);
    __syncthreads();
  }
  queries.load_all();

  int stage = 0;
  for (int key_tile = tiles.begin; key_tile < tiles.end; ++key_tile) {
    if constexpr (kForm == tile::KvForm::kCpAsync) {
      load_tile(key_tile + kAhead, stage == 0 ? Keys::num_slots - 1 : stage - 1);
      ptx::cp_async_wait_group<kAhead>();
    } else {
      if constexpr (kLate) load_tile(key_tile, 0);
      keys.copy_to_shared();
      if constexpr (kLate) {
        values.load_from_dram(value_rows, key_tile * spec::kBlockN + warp * kWarpKeys, bound, 0);
      } else {
        values.copy_to_shared();
        load_tile(key_tile + 1, 0);
      }
    }
    __syncwarp();  // the warp's keys have landed

    float scores[kRowTiles][2 * kKeySteps][4] = {};
    const uint32_t query_base = queries.base(), key_base = keys.fragment_base(stage);
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
          mma::multiply_accumulate<spec::kQDType>(scores[m][2 * pair], a[m], first);
          mma::multiply_accumulate<spec::kQDType>(scores[m][2 * pair + 1], a[m], second);
        }
      }
    }
    if constexpr (ScoreMod::changes_scores) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < 2 * kKeySteps; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) scores[m][n][e] = score_mod(scores[m][n][e]);
    }
    if (tiles.is_partial(key_tile)) {
      const int origin = key_tile * spec::kBlockN + warp * kWarpKeys + lane % 4 * 2;
#pragma unroll
      for (int r = 0; r < Softmax::kRows; ++r) {
        const policy::KeyRange range = mask.visible(item.query(row_of(r)));
        policy::hide_keys<spec::kMask == MaskKind::kSlidingWindow>(scores[r / 2], r % 2, range.low - origin,
                                                                   range.high - origin);
      }
    }
    uint32_t exponentials[kRowTiles][kKeySteps][4];
    softmax.template update<spec::kQDType>(scores, exponentials, output, exponent_scale);

    if constexpr (kLate) {
      values.copy_to_shared();
      __syncwarp();  // the warp's values have landed
    }
    const uint32_t value_base = values.fragment_base(stage);
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < spec::kHeadDimV / 16; ++pair) {
        uint32_t first[2], second[2];
        values.load_from_shared(first, second, value_base, step, pair);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma::multiply_accumulate<spec::kQDType>(output[m][2 * pair], exponentials[m][step], first);
          mma::multiply_accumulate<spec::kQDType>(output[m][2 * pair + 1], exponentials[m][step], second);
        }
      }
    }
    __syncwarp();  // no lane reads the slot that is loaded next
    stage = stage == Keys::num_slots - 1 ? 0 : stage + 1;
  }
  ptx::cp_async_wait_group<0>();
  if constexpr (spec::kArch >= 90 && spec::kMerge == Merge::kCombine)
    ptx::griddepcontrol_launch_dependents();  // attention_combine may come to its wait

  // The warps' results, each relative to a maximum of its own, over the rings.
  softmax.finish();
  __syncthreads();  // no warp streams into its ring any more
  const WarpResults results{reinterpret_cast<float*>(shared_memory + kLayout.statistics),
                            reinterpret_cast<float*>(shared_memory + kLayout.partials)};
#pragma unroll
  for (int r = 0; r < Softmax::kRows; ++r) {
    const int row = row_of(r);
    if (lane % 4 == 0) {
      results.maximum(warp, row) =
          softmax.maximum[r] == ptx::minus_infinity() ? ptx::minus_infinity() : softmax.maximum[r] * exponent_scale;
      results.sum(warp, row) = softmax.sum[r];
    }
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
      *reinterpret_cast<float2*>(results.output(warp, row) + n * 8 + lane % 4 * 2) =
          make_float2(output[r / 2][n][r % 2 * 2], output[r / 2][n][r % 2 * 2 + 1]);
  }
  __syncthreads();

  // Each warp finishes rows of its own, pairs of columns at a time.
  const int64_t token_rows = spec::kQLayout == QLayout::kRagged ? params.q_offsets[params.batch]
                                                                : static_cast<int64_t>(params.batch) * params.q_len;
  const int64_t partial_rows = token_rows * params.q_heads;  // of each part
  const auto first_partial_row = [&](int row) {
    const int64_t padded_start =
        spec::kQLayout == QLayout::kPadded ? static_cast<int64_t>(coord.batch) * params.q_len : 0;
    return (padded_start + item.token(row)) * params.q_heads + item.q_head(row);
  };
  for (int row = warp; row < item.num_rows; row += spec::kNumWarps) {
    float largest = ptx::minus_infinity();
#pragma unroll
    for (int w = 0; w < spec::kNumWarps; ++w) largest = fmaxf(largest, results.maximum(w, row));
    float weight[spec::kNumWarps], sum = 0;
#pragma unroll
    for (int w = 0; w < spec::kNumWarps; ++w) {
      weight[w] = largest == ptx::minus_infinity() ? 0 : ptx::ex2_approx_ftz(results.maximum(w, row) - largest);
      sum += weight[w] * results.sum(w, row);
    }
    const float inverse = sum == 0 ? 0 : value_scale / sum;
    const float log2_sum = sum == 0 ? ptx::minus_infinity() : largest + ptx::lg2_approx_ftz(sum);
    const int64_t partial_row = first_partial_row(row) + coord.split * partial_rows;
    if (lane == 0) {
      if (params.num_splits > 1) {
        params.partial_lse[partial_row] = log2_sum;
      } else if (spec::kLse) {
        params.lse[item.lse_index(params, row)] = log2_sum * policy::kLn2;
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
  if (!__syncthreads_or(thread == 0 && last_arrival.arrive(params.num_splits))) return;
  for (int row = warp; row < item.num_rows; row += spec::kNumWarps) {
    const int64_t from = first_partial_row(row);
    const policy::MergedRow<spec::kHeadDimV> merged(params.partial_o + from * spec::kHeadDimV,
                                                    params.partial_lse + from, partial_rows, params.num_splits, lane);
    merged.store<spec::kOutDType>(params.o, item.offset(params.o_strides, row), lane);
    if (spec::kLse && lane == 0) params.lse[item.lse_index(params, row)] = merged.log2_sum * policy::kLn2;
  }
}
