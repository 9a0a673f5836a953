/// Declarations that the warps of attention_sm100 share, beyond attention_mapped.cuh. They are the Spec's constants,
/// places in shared memory and in tensor memory, the rings of K and V, and the CTA's work.
#pragma once

#include "spec.h"

#include "contract/attention_sm100.h"
#include "contract/words.h"
#include "kernels/attention/attention_mapped.cuh"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/phased_barrier.cuh"
#include "pipeline/tma_producer_pipeline.cuh"
#include "policy/attention_item.cuh"
#include "policy/item_tiles.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"
#include "ptx/tcgen05.cuh"

namespace kernelwright {
namespace {

using contract::BlackwellAttentionParams;

constexpr int kTileRows = contract::kQueryTileRows,
              kWarpRows = 32;  // a warp reaches a quarter of tensor memory's lanes
constexpr int kRoleWarps = 4;  // of a warpgroup
constexpr bool kTwoQueryTiles = spec::kNumQ == 2;
constexpr int kCtas = spec::kCtaGroup;  // CTAs that share each product
constexpr bool kPair = kCtas == 2;
static_assert(!kPair || kTwoQueryTiles, "a pair has two query tiles in each CTA");
static_assert((spec::kNumQ == 1 || spec::kNumQ == 2) && spec::kBlockM == spec::kNumQ * kTileRows, "query tiles of 128");
static_assert(!spec::kPackGqa || kTileRows % spec::kGroup == 0, "a box of Q holds all heads of its tokens");

// Whether a CTA goes on with other items after its own: attention_sm100_walk.cuh.
constexpr bool kQueued = spec::kScheduler == Scheduler::kQueued;

// The launch gives each thread 128 registers. The warpgroups deal them out anew, one count for a whole warpgroup: 512
// in all.
constexpr int kSoftmaxRegisters = 192, kCorrectionRegisters = 64, kOtherRegisters = 64;
static_assert(2 * kSoftmaxRegisters + kCorrectionRegisters + kOtherRegisters <= 4 * 128, "the pool of the CTA");

constexpr bool kNarrow = kElementBytes == 1;
constexpr bool kTokenScales = scales_differ_by_key(spec::kScales);  // of keys and values: policy/key_scales.cuh
constexpr int kKeyStep = 32 / kElementBytes;                        // keys that a product takes at a time
static_assert(kStageKeys % kKeyStep == 0, "whole steps of the product with V");
constexpr uint32_t kQuerySlabBytes = kTileRows * kRowBytes;
// The keys of an item may be cut into parts, one for each CTA. Either the parts are the CTAs of a cluster, or the
// launch says how many there are, and they meet in the workspace.
constexpr int kClusterParts = spec::kClusterN;
constexpr bool kPartsInMemory = spec::kSplitKeys;
static_assert(kClusterParts == 1 || (!kPartsInMemory && !kTwoQueryTiles),
              "one way to cut keys; a query tile a cluster");
static_assert((!kPair && !kQueued) || (kClusterParts == 1 && !kPartsInMemory), "a pair and a queue take all keys");
constexpr contract::BlackwellShape kShape{spec::kNumQ,        spec::kBlockN,
                                          spec::kHeadDimQk,   spec::kHeadDimV,
                                          spec::kNumKvStages, spec::kNumQkStages,
                                          kSharedRing,        kCtas,
                                          kGathersKv,         kQueued,
                                          kClusterParts,      kElementBytes,
                                          spec::kRopeWidth,   kTokenScales,
                                          kValueStages,       spec::kSwizzleBytes,
                                          kPartsInMemory};
constexpr int kSlabsPlain = contract::plain_slabs(kShape), kSlabsQk = contract::qk_slabs(kShape);
static_assert(!kPair || (!kGathersKv && !kQueued), "a pair's CTAs take items together, from tensor maps");
static_assert(!kGathersKv || (spec::kRopeWidth == 0 && !kTokenScales), "threads copy k and v alone");
constexpr contract::BlackwellLayout kLayout = contract::blackwell_layout(kShape);
constexpr contract::BlackwellBarriers kBarriers = contract::blackwell_barriers(kShape);
constexpr contract::BlackwellColumns kColumns = contract::blackwell_columns(kShape);
static_assert(kColumns.used <= contract::kTensorColumns, "scores and outputs of two tiles");

// A tile of K or V in this CTA.
constexpr int kCtaKeys = contract::blackwell_keys(kShape);
constexpr int kCtaSlabsV = contract::v_slabs(kShape);

// P of a tile is published in two parts, so that its product with V begins while the last exponentials run.
constexpr int kFirstKeys = spec::kBlockN * 3 / 4 / kKeyStep * kKeyStep;

/// The rings of K and V, in the form that pipeline/kv_rings.cuh needs.
struct Tiles {
  static constexpr int element_bytes = 1;  // columns are counted in bytes
  static constexpr int k_rows_per_cta = kCtaKeys, v_cols_per_cta = kCtaSlabsV * kRowBytes;
  static constexpr int BK0 = kSlabsQk * kRowBytes / spec::kNumQkStages, BK1 = kStageKeys;
  static constexpr int num_kv_stages = spec::kNumKvStages, num_qk_stages = spec::kNumQkStages;
  static constexpr int num_mma_stages = kValueStages;
  static constexpr bool shared_ring = kSharedRing;
  static constexpr pipeline::KvOrder order =
      kTwoQueryTiles ? pipeline::KvOrder::kAlternating : pipeline::KvOrder::kKeysAhead;
  static constexpr int cluster = kCtas;
};

// ---- a pair of CTAs: the first one multiplies for both, and waits on its own barriers for the work of both ----

constexpr uint32_t kLeader = 0;
__device__ __forceinline__ uint32_t cluster_rank() {
  if constexpr (kPair)
    return ptx::cluster_ctarank();
  else
    return kLeader;
}
/// The address of a barrier in the CTA that multiplies and waits on it.
__device__ __forceinline__ uint32_t leaders(uint32_t barrier) {
  if constexpr (kPair)
    return ptx::mapa(barrier, kLeader);
  else
    return barrier;
}
/// Arrives on that barrier of each CTA once the issued products have ended.
__device__ __forceinline__ void commit(uint32_t barrier) {
  if constexpr (kPair)
    ptx::tcgen05_commit_multicast<kCtas>(barrier, (1 << kCtas) - 1);
  else
    ptx::tcgen05_commit(barrier);
}
template <uint32_t kArrivals>
__device__ __forceinline__ void commit(const pipeline::PhasedBarrier<kArrivals, kPair>& barrier) {
  commit(barrier.address);
}

/// Releases a slot once the products that read it have ended: tcgen05.commit arrives then. If a thread arrived right
/// after it issued them, TMA could overwrite a tile that is still being read.
struct CommitRelease {
  __device__ __forceinline__ void operator()(uint32_t empty) const { commit(empty); }
};
static_assert(pipeline::KvBytes<Tiles>::k_slot == kLayout.key_slot &&
                  pipeline::KvBytes<Tiles>::v_slot == kLayout.value_slot,
              "slots where the contract has them");
using Producer = pipeline::KvProducer<Tiles>;
using Consumer = pipeline::KvConsumerPipeline<Tiles, CommitRelease>;

/// Shared memory, with the layout of the contract.
struct Shared {
  uint32_t base;
  __device__ uint32_t queries(int tile) const {
    return base + kLayout.queries + static_cast<uint32_t>(tile) * kLayout.query_slot;
  }
  __device__ uint32_t keys() const { return base + kLayout.keys; }
  __device__ uint32_t values() const { return base + kLayout.values; }
  __device__ uint32_t factor(int tile, int row) const {
    return base + kLayout.factors + static_cast<uint32_t>(tile * kTileRows + row) * 4;
  }
  /// Where two accumulators are merged: the address of the maximum (0) or the sum (1) of a row of one of them.
  __device__ uint32_t statistic(int tile, int which, int row) const {
    return base + kLayout.statistics + static_cast<uint32_t>((tile * 2 + which) * kTileRows + row) * 4;
  }
  /// The address of a number of key `key` of the tile in a slot. The numbers of neighbours are neighbours.
  __device__ uint32_t key_number(int slot, contract::KeyNumber which, int key) const {
    const int row = slot * contract::kKeyNumbers + which;
    return base + kLayout.key_scales + static_cast<uint32_t>(row * spec::kBlockN + key) * 4;
  }
  __device__ uint32_t gather_rows() const { return base + kLayout.gather_rows; }
  __device__ uint32_t item(uint32_t slot) const {
    return base + kLayout.items + slot * static_cast<uint32_t>(ptx::kCancelResponseBytes);
  }
  /// The address of a row's statistics that the other CTAs of the cluster read: maximum (0), in powers of two, and sum
  /// (1).
  __device__ uint32_t published(int which, int row) const {
    return base + kLayout.published + static_cast<uint32_t>(which * kTileRows + row) * 4;
  }
  __device__ uint32_t arrived_last() const { return base + kLayout.arrived_last; }
  __device__ uint32_t tensor_address() const { return base + kLayout.tensor_address; }
  __device__ uint32_t barrier(int index) const {
    return base + kLayout.barriers + static_cast<uint32_t>(index) * contract::kBarrierBytes;
  }
  __device__ uint32_t kv_barriers() const { return barrier(kBarriers.key_full); }

  // Barriers, each with the arrivals that end its phases. contract::BlackwellBarriers says which roles arrive.
  template <uint32_t kArrivals>
  using Barrier = pipeline::PhasedBarrier<kArrivals, kPair>;
  __device__ Barrier<1> query_full(int tile) const { return {barrier(kBarriers.query_full + tile)}; }
  __device__ Barrier<1> score_full(int tile) const { return {barrier(kBarriers.score_full + tile)}; }
  __device__ Barrier<kCtas * 2 * kRoleWarps> probability_ready(int tile) const {
    return {barrier(kBarriers.probability_ready + tile)};
  }
  __device__ Barrier<kCtas * kRoleWarps> probability_rest(int tile) const {
    return {barrier(kBarriers.probability_rest + tile)};
  }
  __device__ Barrier<kRoleWarps> factor_full(int tile) const { return {barrier(kBarriers.factor_full + tile)}; }
  __device__ Barrier<1> output_full(int tile) const { return {barrier(kBarriers.output_full + tile)}; }
  __device__ Barrier<1> values_landed() const { return {barrier(kBarriers.values_landed)}; }
  __device__ Barrier<kCtas> values_clean() const { return {barrier(kBarriers.values_clean)}; }
  __device__ Barrier<1> scale_full(int slot) const { return {barrier(kBarriers.scale_full + slot)}; }
  __device__ Barrier<(kTwoQueryTiles ? 2 : 1) * kRoleWarps> scale_empty(int slot) const {
    return {barrier(kBarriers.scale_empty + slot)};
  }
  __device__ Barrier<(kTwoQueryTiles ? 1 : 2) * kRoleWarps> query_empty(int tile) const {
    return {barrier(kBarriers.query_empty + tile)};
  }
  __device__ Barrier<1> item_full(uint32_t slot) const {
    return {barrier(kBarriers.item_full + static_cast<int>(slot))};
  }
  __device__ Barrier<contract::kBlackwellThreads / 32> item_empty(uint32_t slot) const {
    return {barrier(kBarriers.item_empty + static_cast<int>(slot))};
  }
};

/// Tensor memory: addresses of a tile's first column, lane 0.
struct Tensor {
  uint32_t base;
  __device__ uint32_t scores(int tile) const { return base + (tile == 0 ? kColumns.scores[0] : kColumns.scores[1]); }
  __device__ uint32_t probabilities(int tile) const { return scores(tile); }  // over the scores
  __device__ uint32_t output(int tile) const { return base + (tile == 0 ? kColumns.outputs[0] : kColumns.outputs[1]); }
  /// The lanes that warp `warp` of a warpgroup reaches.
  __device__ static uint32_t lanes(int warp) { return static_cast<uint32_t>(warp * kWarpRows) << 16; }
};

/// An item of the CTA; every role derives it for itself. All roles walk the same key tiles, from the last to the first,
/// so that tiles with a mask come first. With split keys they walk the tiles of this CTA's part, maybe none.
///
/// A pair walks the tiles that the rows of either CTA see. Behind the last rows of a sequence the second CTA may have
/// no rows; it still takes part.
struct Work {
  WorkItem item;
  policy::ItemTiles tiles;

  /// Each role makes it anew, from an opaque index (for_each_item()). Otherwise the compiler would keep common values
  /// in registers of roles that have few.
  __device__ __forceinline__ Work(const contract::AttentionParams& params, uint32_t block)
      : item(params, kPair ? own(of_all(params, block)) : policy::TileCoord(params, heads(params), block)),
        tiles(tiles_of_all(params, block, item)) {
    if constexpr (kPair) find_own_full_tiles(params, item, tiles);
    if constexpr (kClusterParts > 1)
      tiles.list.take_part(item.coord.split, kClusterParts);
    else if constexpr (kPartsInMemory)
      tiles.list.take_part(item.coord.split, params.num_splits);
  }

  /// Whether no row of the item sees a key, in any part.
  __device__ bool unseen() const { return tiles.list.keys.high <= tiles.list.keys.low; }

  /// Keys of the last tile that are the sequence's. The result is all keys of a tile where the keys behind them are
  /// zeros. TMA fills with zeros past the end of a tensor, but inside a tensor any bytes may follow. Gathering warps
  /// fill with zeros in every case.
  __device__ int last_keys(const contract::AttentionParams& params) const {
    if (kGathersKv) return spec::kBlockN;
    if (!kPaged && spec::kKvLayout == KvLayoutKind::kPadded && params.kv_lengths == nullptr) return spec::kBlockN;
    return min(spec::kBlockN, item.sequence.kv_len - tiles.origin - (tiles.list.end - 1) * spec::kBlockN);
  }
  /// Keys of the first tile that are before the sequence's start, and whose values must be cleaned.
  __device__ int hidden_keys() const {
    if (!kCleansFirst || tiles.empty()) return 0;
    return policy::hidden_keys<kCleansFirst>(item, tiles.origin + tiles.list.begin * spec::kBlockN);
  }

 private:
  __device__ static int heads(const contract::AttentionParams& params) {
    return spec::kPackGqa ? params.kv_heads : params.q_heads;
  }
  /// The rows of all CTAs of the pair, as one tile.
  __device__ static policy::TileCoord of_all(const contract::AttentionParams& params, unsigned block) {
    return policy::TileCoord(params, heads(params), block / kCtas, params.num_m_blocks / kCtas);
  }
  __device__ static policy::TileCoord own(policy::TileCoord coord) {
    coord.m_block = coord.m_block * kCtas + static_cast<int>(cluster_rank());
    return coord;
  }
  __device__ __forceinline__ static policy::ItemTiles tiles_of_all(const contract::AttentionParams& params,
                                                                   unsigned block, const WorkItem& own) {
    if constexpr (kPair)
      return tiles_of(params, ItemOf<kCtas * spec::kBlockM>(params, of_all(params, block)));
    else
      return tiles_of(params, own);
  }
};

/// There are two accumulators, each with a softmax warpgroup of its own. Two query tiles have one each, and each takes
/// all key tiles. One query tile has both: each takes every other key tile, and they are merged at the end. Returns the
/// steps of accumulator `tile`.
__device__ __forceinline__ int steps_of(int tile, int key_tiles) {
  return kTwoQueryTiles ? key_tiles : (key_tiles + 1 - tile) / 2;
}
/// The key tile of a step; steps are counted in the order of the walk.
__device__ __forceinline__ int key_tile_of(int tile, int step) { return kTwoQueryTiles ? step : 2 * step + tile; }

/// Steps of each accumulator in earlier items. A role counts them, because its barriers have completed a phase for each
/// step. Zeros unless queued.
struct StepsBefore {
  int first = 0, second = 0;
  __device__ int operator[](int tile) const { return tile == 0 ? first : second; }
  __device__ void add(int key_tiles) {
    if constexpr (kQueued) first += steps_of(0, key_tiles), second += steps_of(1, key_tiles);
  }
};

}  // namespace
}  // namespace kernelwright
