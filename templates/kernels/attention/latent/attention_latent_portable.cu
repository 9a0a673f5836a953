/// Latent attention on mma.sync, for every architecture: values are the first elements of each key
/// (attention_latent_sm90.cu). cp.async brings a tile of keys once, and both products read it.
///
/// A CTA owns block_m query rows and a part of the keys. In a step, each warp computes the scores of its own eight keys
/// of the tile. The scores meet in shared memory. Each warp then reads all of them, and has the softmax of all rows; the
/// warps do the same arithmetic and get the same numbers. Each multiplies the values of its own columns.
#include "spec.h"

#include "contract/attention_latent_portable.h"
#include "kernels/attention/latent/attention_latent_rows.cuh"
#include "mma/sm80.cuh"
#include "policy/padding_rows.cuh"
#include "policy/scores.cuh"
#include "policy/softmax.cuh"
#include "ptx/launch.cuh"
#include "tile/kv_rows.cuh"
#include "tile/row_tile.cuh"

namespace kernelwright {
namespace {

enum : int {  // not variables, which would be in every binary
  kThreads = spec::kNumWarps * 32,
  kRowTiles = spec::kBlockM / 16,
  kWarpColumns = spec::kHeadDimV / spec::kNumWarps,
  kKeySteps = spec::kBlockN / 16,
};
static_assert(spec::kBlockN == spec::kNumWarps * contract::kLatentWarpKeys, "each warp has the scores of eight keys");
static_assert(spec::kHeadDimQk % 32 == 0, "a load of fragments has two steps");

constexpr contract::PortableLatentLayout kLayout =
    contract::portable_latent_layout(spec::kBlockM, spec::kBlockN, spec::kHeadDimQk, spec::kNumStages);

using Stored = tile::Storage<spec::kQDType>;
using QueryTile = tile::SharedTile<spec::kBlockM, spec::kHeadDimQk, spec::kSwizzleBytes>;
using KeyTile = tile::SharedTile<spec::kBlockN, spec::kHeadDimQk, spec::kSwizzleBytes>;
using KeyRows = tile::KvRows<Stored, spec::kKvLayout, spec::kPageSize>;
using Softmax = policy::OnlineSoftmax<kRowTiles, spec::kRescale>;
using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
using Fragment = policy::MmaScores<kRowTiles, 2 * kKeySteps>;

/// Starts to load key tile `tile` into a slot. Keys that no row sees become zeros: such a key may hold a NaN, and 0 *
/// NaN is NaN.
__device__ __forceinline__ void load_keys(uint32_t slot, const KeyRows& rows, const Bound& bound, int tile,
                                          const policy::TileList& tiles) {
  if (tile < tiles.end) {
#pragma unroll 4
    for (int load = static_cast<int>(threadIdx.x); load < spec::kBlockN * KeyTile::pieces; load += kThreads) {
      const int row = load / KeyTile::pieces, piece = load % KeyTile::pieces, key = tile * spec::kBlockN + row;
      const auto place = rows.row(bound.nearest(key));
      ptx::cp_async_cg_16(slot + KeyTile::offset(row, piece), place.at + piece * 8,
                          bound.holds(key) && place.exists ? 16 : 0);
    }
  }
  ptx::cp_async_commit_group();
}

/// Scores of the warp's eight keys, to shared memory.
__device__ __forceinline__ void multiply_keys(uint32_t queries, uint32_t slot, float* scores, int warp, int lane) {
  const QueryTile::Fragments rows(lane % 16, lane / 16);
  const KeyTile::Fragments keys(warp * contract::kLatentWarpKeys + lane % 8, lane / 8);
  const uint32_t row_base = rows.base(queries), key_base = keys.base(slot);
  float sums[kRowTiles][4] = {};
#pragma unroll
  for (int step = 0; step < spec::kHeadDimQk / 16; step += 2) {
    uint32_t b[4];  // of two steps
    ptx::ldmatrix_x4(b, keys.piece_address(key_base, 0, 2 * step));
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4];
        ptx::ldmatrix_x4(a, rows.address(row_base, m, step + half));
        mma::multiply_accumulate<spec::kQDType>(sums[m], a, {b[2 * half], b[2 * half + 1]});
      }
  }
  float* const to = scores + warp * contract::kLatentWarpKeys + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      *reinterpret_cast<float2*>(to + (m * 16 + r * 8 + lane / 4) * kLayout.score_stride) =
          make_float2(sums[m][2 * r], sums[m][2 * r + 1]);
}

/// The scores of all rows and keys, as accumulators of a product would hold them.
__device__ __forceinline__ void read_scores(float (&to)[kRowTiles][2 * kKeySteps][4], const float* scores, int lane) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float* const row = scores + (m * 16 + r * 8 + lane / 4) * kLayout.score_stride + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 2 * kKeySteps; ++n) {
        const float2 pair = *reinterpret_cast<const float2*>(row + n * 8);
        to[m][n][2 * r] = pair.x, to[m][n][2 * r + 1] = pair.y;
      }
    }
}

/// output += P V for the warp's columns.
__device__ __forceinline__ void multiply_values(float (&output)[kRowTiles][kWarpColumns / 8][4],
                                                const uint32_t (&probabilities)[kRowTiles][kKeySteps][4],
                                                uint32_t slot, int warp, int lane) {
  static_assert(KeyTile::whole_strips(kWarpColumns), "a warp's columns begin with a strip");
  const KeyTile::Fragments values(lane % 16, lane / 16);
  const uint32_t base = values.base(slot + warp * KeyTile::strips_bytes(kWarpColumns));
#pragma unroll
  for (int step = 0; step < kKeySteps; ++step)
#pragma unroll
    for (int pair = 0; pair < kWarpColumns / 16; ++pair) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, values.address(base, step, pair));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma::multiply_accumulate<spec::kQDType>(output[m][2 * pair], probabilities[m][step], {b[0], b[1]});
        mma::multiply_accumulate<spec::kQDType>(output[m][2 * pair + 1], probabilities[m][step], {b[2], b[3]});
      }
    }
}

__device__ __forceinline__ void attend(const contract::AttentionParams& params) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t shared = ptx::shared_address(memory);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
      params, blockIdx.x * spec::kNumWarps + warp, gridDim.x * spec::kNumWarps, lane);
  const WorkItem item(params, blockIdx.x);
  if (item.num_rows <= 0) return;
  const Mask mask = item.mask<Mask>(params);
  policy::TileList tiles =
      policy::tile_list<spec::kBlockN>(mask, item.query(0), item.query(item.num_rows - 1));
  tiles.take_part(item.coord.split, params.num_splits);

  const tile::RowTile<spec::kBlockM, spec::kHeadDimQk, QueryTile, kThreads> query_tile{shared + kLayout.queries};
  query_tile.load(thread, item.num_rows, item.rows(static_cast<const Stored*>(params.q), params.q_strides));
  const Bound bound{tiles.keys.low, tiles.keys.high};
  const KeyRows rows =
      tile::kv_rows<KeyRows>(params, params.k, params.k_strides, tile::page_line<KeyRows>(params, item.coord.batch),
                             item.coord.batch, item.sequence.kv_start, item.coord.head);
  const auto slot_of = [&](int i) { return shared + kLayout.keys + i % spec::kNumStages * kLayout.slot; };
#pragma unroll 1
  for (int ahead = 0; ahead < spec::kNumStages - 1; ++ahead)
    load_keys(slot_of(ahead), rows, bound, tiles.begin + ahead, tiles);

  const bool merges = spec::kMerge == Merge::kInKernel && params.num_splits > 1;
  const auto last_arrival = [&] {
    return policy::LastArrival(params.merge_counters + ptx::opaque(blockIdx.x) / params.num_splits);
  };
  if (merges && thread == 0) last_arrival().open();  // while the first keys are in flight

  const ScoreMod mod{params.scale, params.softcap};
  const float scale = mod.template exponent_scale<false>(params.exponent_scale);
  const auto row_of = [&](int r) { return r / 2 * 16 + r % 2 * 8 + lane / 4; };
  Softmax softmax;
  if constexpr (spec::kSinks) {
    if (item.coord.split == 0) {
#pragma unroll
      for (int r = 0; r < Softmax::kRows; ++r)
        if (row_of(r) < item.num_rows)
          softmax.add_sink(r, params.sinks[item.q_head(row_of(r))], scale, lane % 4 == 0);
    }
  }
  float output[kRowTiles][kWarpColumns / 8][4] = {};
  if (mod.changes_queries()) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    query_tile.take_sign(thread, mod.scale);
  }

#pragma unroll 1
  for (int i = 0; i < tiles.end - tiles.begin; ++i) {
    ptx::cp_async_wait_group<spec::kNumStages - 2>();
    __syncthreads();  // the tile has landed, and all warps have read the one before
    load_keys(slot_of(i + spec::kNumStages - 1), rows, bound, tiles.begin + i + spec::kNumStages - 1, tiles);
    const int tile = tiles.begin + i;
    float* const scores =
        reinterpret_cast<float*>(memory + kLayout.scores) + i % 2 * (spec::kBlockM * kLayout.score_stride);
    multiply_keys(shared + kLayout.queries, slot_of(i), scores, warp, lane);
    __syncthreads();
    float own[kRowTiles][2 * kKeySteps][4];
    read_scores(own, scores, lane);
    const Fragment fragment{own};
    policy::modify(fragment, mod, [] { return 0; });
    if (tiles.is_partial(tile))
      policy::hide_keys<Mask::hides>(fragment, tile * spec::kBlockN + lane % 4 * 2,
                                     [&](int r) { return mask.visible(item.query(row_of(r))); });
    uint32_t probabilities[kRowTiles][kKeySteps][4];
    softmax.template update<spec::kQDType>(own, probabilities, output, scale);
    multiply_values(output, probabilities, slot_of(i), warp, lane);
  }
  ptx::cp_async_wait_group<0>();
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_launch_dependents();  // attention_combine may begin

  softmax.finish();
  const int64_t partial_rows = WorkItem::partial_rows(params);
  const int column = warp * kWarpColumns + lane % 4 * 2;
#pragma unroll
  for (int r = 0; r < Softmax::kRows; ++r) {
    const int row = row_of(r);
    if (row >= item.num_rows) continue;
    const float inverse = softmax.inverse(r), log2_sum = softmax.log2_sum(r, scale);
    const bool speaks = warp == 0 && lane % 4 == 0;
    const int64_t partial = item.partial_row(params, row) + item.coord.split * partial_rows;
    const int64_t offset = item.offset(params.o_strides, row) + column;
#pragma unroll
    for (int n = 0; n < kWarpColumns / 8; ++n) {
      const float low = output[r / 2][n][r % 2 * 2] * inverse, high = output[r / 2][n][r % 2 * 2 + 1] * inverse;
      if (params.num_splits > 1)
        *reinterpret_cast<float2*>(params.partial_o + partial * spec::kHeadDimV + column + n * 8) =
            make_float2(low, high);
      else
        tile::store_pair<spec::kOutDType>(params.o, offset + n * 8, low, high);
    }
    if (!speaks) continue;
    if (params.num_splits > 1)
      params.partial_lse[partial] = log2_sum;
    else if (spec::kLse)
      params.lse[item.lse_index(params, row)] = log2_sum * policy::kLn2;
  }
  if (!merges) return;

  __syncthreads();  // this part is written
  if (!__syncthreads_or(thread == 0 && last_arrival().arrive(params.num_splits))) return;
  merge_rows<spec::kNumWarps>(params, item, warp, lane);
}

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::spec::kNumWarps * 32, kernelwright::spec::kMinCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::AttentionParams params) {
  if constexpr (kernelwright::spec::kArch >= 90) kernelwright::ptx::griddepcontrol_wait();
  kernelwright::attend(params);
}
