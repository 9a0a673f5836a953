/// What the warps of attention_sm90 have in common: the Spec's constants, where things lie in shared memory, and which
/// key tiles an item walks.
#pragma once

#include "spec.h"

#include "contract/hopper_attention.h"
#include "contract/spec_words.h"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/tma_producer_pipeline.cuh"
#include "policy/attention_item.cuh"
#include "policy/item_walk.cuh"
#include "policy/mask.cuh"
#include "ptx/cluster.cuh"

namespace kernelwright {
namespace {

using contract::HopperAttentionParams;

constexpr int kMathWarps = spec::kMathWarpgroups * 4, kMathThreads = kMathWarps * 32, kNumThreads = kMathThreads + 128;
// Whether threads copy K and V row by row: pages in which no box of TMA lies.
constexpr bool kGathersKv = contract::hopper_gathers_kv(spec::kPageSize);
// What the launch gives each thread is dealt anew: loading takes few, gathering a few more.
constexpr int kLaunchRegisters = 65536 / kNumThreads / 8 * 8;
constexpr int kLoadRegisters = spec::kMathWarpgroups == 1 ? 56 : spec::kMathWarpgroups == 3 ? 32 : kGathersKv ? 40 : 24;
constexpr int kMathRegisters = spec::kMathWarpgroups == 3 ? 160 : spec::kMathWarpgroups == 2 && kGathersKv ? 232 : 240;
static_assert(spec::kMathWarpgroups * kMathRegisters + kLoadRegisters <= (spec::kMathWarpgroups + 1) * kLaunchRegisters,
              "the last warpgroup to ask would wait for ever");
static_assert(spec::kBlockM == 64 * spec::kMathWarpgroups, "a warpgroup has 64 rows");
static_assert(!spec::kPackGqa || spec::kBlockM % spec::kGroup == 0, "a box of Q holds all heads of its tokens");

// The CTAs of a cluster take neighbouring query tiles, and each loads a share of every key tile for all of them.
constexpr int kCluster = spec::kClusterM;
static_assert(spec::kMulticast == kCluster, "each load serves the whole cluster");
static_assert(spec::kBlockN % (contract::kSwizzleRows * kCluster) == 0,
              "a share of a tile begins where the swizzle's pattern does");

constexpr uint32_t kRowBytes = 128;  // of a slab: 64 columns of 16 bits
constexpr int kSlabsQk = contract::padded_depth(spec::kHeadDimQk) / contract::kSlabColumns;
constexpr int kSlabsV = contract::padded_depth(spec::kHeadDimV) / contract::kSlabColumns;
constexpr uint32_t kQuerySlabBytes = spec::kBlockM * kRowBytes, kKvSlabBytes = spec::kBlockN * kRowBytes;
constexpr bool kSharedRing = spec::kKvRing == KvRing::kShared;
constexpr contract::HopperLayout kLayout =
    contract::hopper_layout(spec::kBlockM, spec::kBlockN, spec::kHeadDimQk, spec::kHeadDimV, spec::kQStages,
                            spec::kNumKvStages, spec::kNumQkStages, kSharedRing, kGathersKv);
constexpr contract::HopperBarriers kBarriers =
    contract::hopper_barriers(spec::kQStages, spec::kNumKvStages, spec::kNumQkStages, kSharedRing, kGathersKv);

/// The rings of K and V, as pipeline/kv_rings.cuh asks for them.
struct Tiles {
  static constexpr int element_bytes = 2;
  static constexpr int k_rows_per_cta = spec::kBlockN, v_cols_per_cta = kSlabsV * contract::kSlabColumns;
  static constexpr int BK0 = kSlabsQk * contract::kSlabColumns / spec::kNumQkStages, BK1 = spec::kBlockN;
  static constexpr int num_kv_stages = spec::kNumKvStages, num_qk_stages = spec::kNumQkStages;
  static constexpr int num_mma_stages = 1;
  static constexpr bool shared_ring = kSharedRing;
  static constexpr pipeline::KvOrder order = pipeline::KvOrder::kKeysAhead;
  static constexpr int cluster = kCluster;
};
using Producer = pipeline::KvProducer<Tiles>;
using Consumer = pipeline::KvConsumerPipeline<Tiles, pipeline::WarpRelease<kCluster>>;
using QueryRing = pipeline::StagedPipeline<spec::kQStages>;
using ItemRing = pipeline::PipelineState<spec::kQStages + 2>;  // slots of records; its parity is the gatherers'

template <int kRows>
using ItemOf = policy::WorkItem<spec::kQLayout, spec::kKvLayout, spec::kPackGqa, spec::kGroup, kRows>;
using WorkItem = ItemOf<spec::kBlockM>;                // of the CTA
using ClusterItem = ItemOf<spec::kBlockM * kCluster>;  // of the walk: the query tiles of all its CTAs
using Rows = policy::RowMap<spec::kPackGqa, spec::kGroup>;
using Mask = policy::Mask<spec::kMask, spec::kChunk>;

/// Shared memory, as the contract lays it out.
struct Shared {
  uint32_t base;
  __device__ uint32_t queries(uint32_t slot) const { return base + kLayout.queries + slot * kLayout.query_slot; }
  __device__ uint32_t keys() const { return base + kLayout.keys; }
  __device__ uint32_t values() const { return base + kLayout.values; }
  __device__ uint32_t query_barriers() const { return base + kLayout.barriers + kBarriers.query_full * 8; }
  __device__ uint32_t kv_barriers() const { return base + kLayout.barriers + kBarriers.key_full * 8; }
  __device__ uint32_t item(uint32_t slot) const { return base + kLayout.items + slot * contract::kItemBytes; }
  __device__ uint32_t gather(uint32_t slot) const { return base + kLayout.gathers + slot * contract::kGatherBytes; }
  __device__ uint32_t gather_posted(uint32_t slot) const {
    return base + kLayout.barriers + (kBarriers.gather_posted + slot) * contract::kBarrierBytes;
  }
};

/// Key tiles of an item, counted from `origin`: none if a shorter sequence of a ragged batch ends before it, or no key
/// is seen. They are those of all CTAs of a cluster; which of them need no mask is this CTA's own.
struct ItemTiles {
  policy::TileList list;
  int origin;
  __device__ bool empty() const { return list.begin == list.end; }
};

/// Under a window, tiles begin with the first key that the item sees: a window of 128 keys and a few queries are then
/// two tiles of 80 and not three. Where keys come in boxes of a page they begin with a box; under a chunked mask with a
/// chunk, so that chunks can be counted from there; and with key 0 if a box and a chunk do not begin together.
__device__ __forceinline__ ItemTiles tiles_of(const contract::AttentionParams& params, const ClusterItem& work) {
  if (work.num_rows <= 0) return {{{0, 0}, 0, 0, 0, 0}, 0};
  const Mask mask = work.template mask<Mask>(params);
  const int first = work.query(0), last = work.query(work.num_rows - 1);
  int origin = 0;
  if constexpr (Mask::hides_low) {
    constexpr bool kInBoxes = spec::kKvLayout == KvLayoutKind::kPaged && !kGathersKv;
    constexpr int kBox = kInBoxes ? contract::hopper_kv_box_rows(spec::kBlockN / kCluster, spec::kPageSize) : 1;
    constexpr int kChunk = spec::kMask == MaskKind::kChunked ? spec::kChunk : 1, kStep = kChunk > kBox ? kChunk : kBox;
    if constexpr (kStep % kChunk == 0 && kStep % kBox == 0) origin = mask.visible(first).low / kStep * kStep;
  }
  return {policy::tile_list<spec::kBlockN>(mask.counted_from(origin), first, last), origin};
}

__device__ __forceinline__ uint32_t cluster_rank() {
  if constexpr (kCluster > 1)
    return ptx::cluster_ctarank();
  else
    return 0;
}

/// The CTA's own query tile of an item. Behind the last rows of a sequence there may be none: the CTA then takes part
/// in what its cluster loads, and stores nothing.
template <int kRows>
__device__ __forceinline__ WorkItem own_tile(const contract::AttentionParams& params, const ItemOf<kRows>& item) {
  if constexpr (kRows == spec::kBlockM) {
    return item;
  } else {
    policy::TileCoord coord = item.coord;
    coord.m_block = coord.m_block * kCluster + static_cast<int>(cluster_rank());
    return WorkItem(params, coord);
  }
}

/// The key tiles of `item` as this CTA walks them, whose rows are `work`'s.
__device__ __forceinline__ ItemTiles tiles_of(const contract::AttentionParams& params, const ClusterItem& item,
                                              const WorkItem& work) {
  ItemTiles tiles = tiles_of(params, item);
  if constexpr (kCluster > 1) {
    policy::TileList& list = tiles.list;
    if (work.num_rows > 0)
      policy::find_full_tiles<spec::kBlockN>(list, work.template mask<Mask>(params).counted_from(tiles.origin),
                                             work.query(0), work.query(work.num_rows - 1));
    else
      list.full_begin = list.begin, list.full_end = list.end;  // nobody looks at what comes out
  }
  return tiles;
}

using Walks = policy::Walks<spec::kScheduler, spec::kQLayout, Rows, spec::kBlockM, kCluster>;
template <class Walk>
__device__ __forceinline__ Walk walk_of(const HopperAttentionParams& params) {
  return {params, spec::kPackGqa ? params.attention.kv_heads : params.attention.q_heads};
}

}  // namespace
}  // namespace kernelwright
