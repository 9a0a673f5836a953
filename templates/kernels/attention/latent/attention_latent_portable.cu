/// Latent attention on mma.sync, for every architecture: values are the first elements of each key
/// (attention_latent_sm90.cu). cp.async brings a tile of keys once, and both products read it.
///
/// A CTA owns block_m query rows and a part of the keys. In a step, each warp computes the scores of its own eight keys
/// of the tile. The scores meet in shared memory. Each warp then reads all of them, and has the softmax of all rows;
/// the warps do the same arithmetic and get the same numbers. Each multiplies the values of its own columns.
///
/// Keys of 8 bits land as they are. All warps then convert a tile of them to the queries' dtype.
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

constexpr contract::PortableLatentLayout kLayout = contract::portable_latent_layout(
    spec::kBlockM, spec::kBlockN, spec::kHeadDimQk, spec::kNumStages, kConverts ? kKey.bytes : 0);

using Stored = tile::Storage<spec::kQDType>;
using StoredKey = tile::Storage<spec::kKvDType>;
using QueryTile = tile::SharedTile<spec::kBlockM, spec::kHeadDimQk, spec::kSwizzleBytes>;
using KeyTile = tile::SharedTile<spec::kBlockN, spec::kHeadDimQk, spec::kSwizzleBytes>;
using KeyRows = tile::KvRows<StoredKey, spec::kKvLayout, spec::kPageSize>;
using Softmax = policy::OnlineSoftmax<kRowTiles, spec::kRescale>;
using Fragment = policy::MmaScores<kRowTiles, 2 * kKeySteps>;

/// Starts to load key tile `tile` into a slot. Keys that no row sees become zeros: such a key may hold a NaN, and 0 *
/// NaN is NaN.
__device__ __forceinline__ void load_keys(uint32_t slot, const KeyRows& rows, const Bound& bound, int tile,
                                          const policy::TileList& tiles) {
  if (tile < tiles.end) {
    constexpr int kPieces = kConverts ? kKey.bytes / 16 : KeyTile::pieces;
#pragma unroll 4
    for (int load = static_cast<int>(threadIdx.x); load < spec::kBlockN * kPieces; load += kThreads) {
      const int row = load / kPieces, piece = load % kPieces, key = tile * spec::kBlockN + row;
      const auto place = rows.row(bound.nearest(key));
      ptx::cp_async_cg_16(slot + (kConverts ? load * 16 : KeyTile::offset(row, piece)),
                          place.at + piece * (16 / static_cast<int>(sizeof(StoredKey))),
                          bound.holds(key) && place.exists ? 16 : 0);
    }
  }
  ptx::cp_async_commit_group();
}

/// Converts a tile of keys of 8 bits, which have landed at `raw`, to the tile at `to`.
__device__ __forceinline__ void convert_keys(uint32_t to, uint32_t raw) {
  constexpr int kPieces = (kRecords ? spec::kHeadDimV : spec::kHeadDimQk) / 16;  // of a key's codes
#pragma unroll 2
  for (int at = static_cast<int>(threadIdx.x); at < spec::kBlockN * kPieces; at += kThreads) {
    const int row = at / kPieces, piece = at % kPieces;
    const uint32_t key = raw + row * kKey.bytes;
    float scale = 1;
    if constexpr (kRecords)
      scale = ptx::ld_shared_f32(key + kKey.scales + piece * 16 / contract::kLatentScaleBlock * 4);
    ptx::Vector16 elements[2];
    convert_codes(ptx::ld_shared_v4(key + piece * 16), scale, elements);
#pragma unroll
    for (int i = 0; i < 2; ++i) ptx::st_shared_v4(to + KeyTile::offset(row, 2 * piece + i), elements[i]);
  }
  if constexpr (kRecords) {
    constexpr int kRest = (spec::kHeadDimQk - spec::kHeadDimV) / 8;  // pieces behind the latents
    for (int at = static_cast<int>(threadIdx.x); at < spec::kBlockN * kRest; at += kThreads) {
      const int row = at / kRest, piece = at % kRest;
      ptx::st_shared_v4(to + KeyTile::offset(row, spec::kHeadDimV / 8 + piece),
                        ptx::ld_shared_v4(raw + row * kKey.bytes + kKey.rest + piece * 16));
    }
  }
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
                                                const uint32_t (&probabilities)[kRowTiles][kKeySteps][4], uint32_t slot,
                                                int warp, int lane) {
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

/// The CTA's view of its work: rows, keys, and the warp's columns of the output.
class Cta {
  using Output = float[kRowTiles][kWarpColumns / 8][4];

 public:
  __device__ __forceinline__ Cta(const contract::AttentionParams& params, const WorkItem& item)
      : params_(params),
        item_(item),
        mask_(item.mask<Mask>(params)),
        tiles_(policy::tile_list<spec::kBlockN>(mask_, item.query(0), item.query(item.num_rows - 1))),
        bound_{tiles_.keys.low, tiles_.keys.high},
        rows_(tile::kv_rows<KeyRows>(params, params.k, params.k_strides,
                                     tile::page_line<KeyRows>(params, item.coord.batch), item.coord.batch,
                                     item.sequence.kv_start, item.coord.head)),
        shared_(ptx::shared_address(shared_memory())),
        warp_(static_cast<int>(threadIdx.x / 32)),
        lane_(static_cast<int>(threadIdx.x % 32)),
        mod_(score_mod(params)),
        scale_(mod_.template exponent_scale<kTensorScale>(params.exponent_scale)) {
    tiles_.take_part(item.coord.split, params.num_splits);
  }

  __device__ __forceinline__ void run() {
    const tile::RowTile<spec::kBlockM, spec::kHeadDimQk, QueryTile, kThreads> queries{shared_ + kLayout.queries};
    queries.load(threadIdx.x, item_.num_rows, item_.rows(static_cast<const Stored*>(params_.q), params_.q_strides));
#pragma unroll 1
    for (int ahead = 0; ahead < spec::kNumStages - 1; ++ahead) load(ahead);
    if (merges() && threadIdx.x == 0) last_arrival().open();  // while the first keys are in flight
    add_sinks();
    if (mod_.changes_queries()) {
      ptx::cp_async_wait_group<0>();
      __syncthreads();
      queries.take_sign(threadIdx.x, mod_.scale);
    }
#pragma unroll 1
    for (int i = 0; i < tiles_.end - tiles_.begin; ++i) step(i);
    ptx::cp_async_wait_group<0>();
    if constexpr (spec::kArch >= 90) ptx::griddepcontrol_launch_dependents();  // attention_combine may begin

    softmax_.finish();
#pragma unroll
    for (int r = 0; r < Softmax::kRows; ++r)
      if (row_of(r) < item_.num_rows) store(r);
    if (!merges()) return;
    __syncthreads();  // this part is written
    if (!__syncthreads_or(threadIdx.x == 0 && last_arrival().arrive(params_.num_splits))) return;
    merge_rows<spec::kNumWarps>(params_, item_, warp_, lane_);
  }

 private:
  __device__ static unsigned char* shared_memory() {
    extern __shared__ __align__(1024) unsigned char memory[];
    return memory;
  }
  __device__ bool merges() const { return spec::kMerge == Merge::kInKernel && params_.num_splits > 1; }
  __device__ policy::LastArrival last_arrival() const {
    return policy::LastArrival(params_.merge_counters + ptx::opaque(blockIdx.x) / params_.num_splits);
  }
  __device__ int row_of(int r) const { return r / 2 * 16 + r % 2 * 8 + lane_ / 4; }
  /// Where the part's tile number i lands, and where its keys are read.
  __device__ uint32_t landing(int i) const {
    if constexpr (kConverts) return shared_ + kLayout.raw + i % (spec::kNumStages - 1) * kLayout.raw_slot;
    return shared_ + kLayout.keys + i % spec::kNumStages * kLayout.slot;
  }
  __device__ uint32_t slot(int i) const { return kConverts ? shared_ + kLayout.keys : landing(i); }
  __device__ __forceinline__ void load(int i) const { load_keys(landing(i), rows_, bound_, tiles_.begin + i, tiles_); }

  __device__ __forceinline__ void add_sinks() {
    if constexpr (spec::kSinks) {
      if (item_.coord.split > 0) return;
#pragma unroll
      for (int r = 0; r < Softmax::kRows; ++r)
        if (row_of(r) < item_.num_rows)
          softmax_.add_sink(r, params_.sinks[item_.q_head(row_of(r))], scale_, lane_ % 4 == 0);
    }
  }

  __device__ __forceinline__ void step(int i) {
    ptx::cp_async_wait_group<spec::kNumStages - 2>();
    __syncthreads();  // the tile has landed, and all warps have read the one before
    if constexpr (kConverts) {
      convert_keys(slot(i), landing(i));
      __syncthreads();  // the slot in which the tile landed is free
    }
    load(i + spec::kNumStages - 1);
    float* const scores =
        reinterpret_cast<float*>(shared_memory() + kLayout.scores) + i % 2 * (spec::kBlockM * kLayout.score_stride);
    multiply_keys(shared_ + kLayout.queries, slot(i), scores, warp_, lane_);
    __syncthreads();
    float own[kRowTiles][2 * kKeySteps][4];
    read_scores(own, scores, lane_);
    const Fragment fragment{own};
    policy::modify(fragment, mod_, [] { return 0; });
    if (const int tile = tiles_.begin + i; tiles_.is_partial(tile))
      policy::hide_keys<Mask::hides>(fragment, tile * spec::kBlockN + lane_ % 4 * 2,
                                     [&](int r) { return mask_.visible(item_.query(row_of(r))); });
    uint32_t probabilities[kRowTiles][kKeySteps][4];
    softmax_.template update<spec::kQDType>(own, probabilities, output_, scale_);
    multiply_values(output_, probabilities, slot(i), warp_, lane_);
  }

  /// Stores the warp's columns of the thread's row r.
  __device__ __forceinline__ void store(int r) const {
    const int row = row_of(r), column = warp_ * kWarpColumns + lane_ % 4 * 2;
    const float inverse = output_factor(params_, softmax_.inverse(r)), log2_sum = softmax_.log2_sum(r, scale_);
    const int64_t partial = item_.partial_row(params_, row) + item_.coord.split * WorkItem::partial_rows(params_);
    const int64_t offset = item_.offset(params_.o_strides, row) + column;
#pragma unroll
    for (int n = 0; n < kWarpColumns / 8; ++n) {
      const float low = output_[r / 2][n][r % 2 * 2] * inverse, high = output_[r / 2][n][r % 2 * 2 + 1] * inverse;
      if (params_.num_splits > 1)
        *reinterpret_cast<float2*>(params_.partial_o + partial * spec::kHeadDimV + column + n * 8) =
            make_float2(low, high);
      else
        tile::store_pair<spec::kOutDType>(params_.o, offset + n * 8, low, high);
    }
    if (warp_ > 0 || lane_ % 4 > 0) return;
    if (params_.num_splits > 1)
      params_.partial_lse[partial] = log2_sum;
    else if (spec::kLse)
      params_.lse[item_.lse_index(params_, row)] = log2_sum * policy::kLn2;
  }

  const contract::AttentionParams& params_;
  const WorkItem& item_;
  const Mask mask_;
  policy::TileList tiles_;
  const Bound bound_;
  const KeyRows rows_;
  const uint32_t shared_;
  const int warp_, lane_;
  const ScoreMod mod_;
  const float scale_;
  Softmax softmax_;
  Output output_ = {};
};

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::spec::kNumWarps * 32, kernelwright::spec::kMinCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::AttentionParams params) {
  using namespace kernelwright;
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_wait();
  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
      params, blockIdx.x * spec::kNumWarps + threadIdx.x / 32, gridDim.x * spec::kNumWarps, threadIdx.x % 32);
  const WorkItem item(params, blockIdx.x);
  if (item.num_rows > 0) Cta(params, item).run();
}
