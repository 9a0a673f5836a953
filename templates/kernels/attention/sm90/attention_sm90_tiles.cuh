/// Declarations that the warps of attention_sm90 share, beyond attention_mapped.cuh: the Spec's constants, places in
/// shared memory, and the items that a cluster walks.
#pragma once

#include "spec.h"

#include "contract/attention_sm90.h"
#include "contract/words.h"
#include "kernels/attention/attention_mapped.cuh"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/phased_barrier.cuh"
#include "pipeline/tma_producer_pipeline.cuh"
#include "policy/attention_item.cuh"
#include "policy/item_walk.cuh"
#include "policy/row_scales.cuh"

namespace kernelwright {
namespace {

using contract::HopperAttentionParams;
/// What a launch passes.
using KernelParams = policy::Either<spec::kRopeWidth != 0, contract::HopperRotaryParams, HopperAttentionParams>::type;

enum : bool {  // not variables, which would be in every binary
  // fp8 products.
  kNarrow = tile::kBytesOf<spec::kQDType> == 1,
  // Products that read V as [depth][keys]. Others read [keys][depth].
  kKeysInside = kNarrow || spec::kVColumns,
  // V lies otherwise in memory, and is transposed on the way.
  kTransposesV = kNarrow && !spec::kVColumns,
  // A bf16 query becomes two terms of fp8. Their products read K as it is stored.
  kSplitsQ = kConvertsKv && spec::kQDType == DType::kBf16,
  // Whether warps make operands of what TMA brings: of K and V, or of V alone.
  kRestagesKv = kConvertsKv || kTransposesV,
  kRestagesKeys = kConvertsKv && !kSplitsQ,
  kRestagesOnlyV = kRestagesKv && !kRestagesKeys,
  kKeyScales = scales_differ_by_key(spec::kScales),
  // fp8 products with V add to the output in the tensor cores, for runs of spec::kPvPromote tiles.
  kInRuns = kNarrow && spec::kPvPromote > 1,
  kKeepsHalves = kInRuns && contract::halves_in_shared(spec::kMathWarpgroups),
};

/// The type of products.
__device__ constexpr DType computed() { return policy::computed<spec::kQDType, spec::kKvDType>(); }

constexpr int kMathWarps = spec::kMathWarpgroups * 4, kMathThreads = kMathWarps * 32, kNumThreads = kMathThreads + 128;
// The launch gives each thread the same number of registers. The warpgroups deal them out anew: loading takes few,
// gathering, converting and counting of hidden keys a few more.
constexpr int kLaunchRegisters = 65536 / kNumThreads / 8 * 8;
constexpr int kLoadRegisters = spec::kMathWarpgroups == 1                   ? 56
                               : spec::kMathWarpgroups == 3                 ? 32
                               : kGathersKv || kHidesInTiles || kRestagesKv ? 40
                                                                            : 24;
constexpr int kMathRegisters = spec::kMathWarpgroups == 3                                                   ? 160
                               : spec::kMathWarpgroups == 2 && (kGathersKv || kHidesInTiles || kRestagesKv) ? 232
                                                                                                            : 240;
static_assert(spec::kMathWarpgroups * kMathRegisters + kLoadRegisters <= (spec::kMathWarpgroups + 1) * kLaunchRegisters,
              "the last warpgroup to ask would wait for ever");
enum : int { kOutputColumns = spec::kHeadDimV + (kNarrow ? int{contract::kSumRows} : 0) };  // of P V
static_assert(spec::kBlockM == 64 * spec::kMathWarpgroups, "a warpgroup has 64 rows");
static_assert(!spec::kPackGqa || spec::kBlockM % spec::kGroup == 0, "a box of Q holds all heads of its tokens");

// The CTAs of a cluster take neighbouring query tiles, and each loads a share of every key tile for all of them.
constexpr int kCluster = spec::kClusterM;
static_assert(spec::kMulticast == kCluster, "each load serves the whole cluster");
static_assert(kCluster == 1 || !kRestagesKv, "warps make operands of what their own CTA loads");
enum : bool {
  kOthersClean = kGathersKv || kRestagesKv,  // no math warp writes zeros to V
  kMathCleansFirst = kCleansFirst && !kOthersClean,
};
static_assert(spec::kBlockN % (contract::kSwizzleRows * kCluster) == 0,
              "a share of a tile begins where the swizzle's pattern does");

enum : int {
  kSlabsPlain = contract::slabs_of(spec::kHeadDimQk - spec::kRopeWidth, kElementBytes, spec::kSwizzleBytes),
  kSlabsRope = contract::slabs_of(spec::kRopeWidth, kElementBytes, spec::kSwizzleBytes)
};
constexpr int kSlabsQk = kSlabsPlain + kSlabsRope;
static_assert(spec::kRopeWidth == 0 || (kElementBytes == 2 && !kRestagesKv && !kGathersKv),
              "TMA brings a rotary part of 16 bits, and products of the plain part go on with it");
constexpr uint32_t kQuerySlabBytes = spec::kBlockM * kRowBytes;
__device__ constexpr contract::HopperShape shape() {
  return {spec::kBlockM,
          spec::kBlockN,
          spec::kHeadDimQk,
          spec::kHeadDimV,
          spec::kQStages,
          spec::kNumKvStages,
          spec::kNumQkStages,
          kSharedRing,
          kGathersKv,
          spec::kNumMmaStages,
          spec::kSwizzleBytes,
          kElementBytes,
          tile::kBytesOf<spec::kKvDType>,
          spec::kVColumns ? contract::column_slab_bytes(spec::kBlockN, spec::kPageSize) : 0,
          spec::kRopeWidth,
          kKeepsHalves,
          kSplitsQ};
}
__device__ constexpr contract::HopperRawRing raw_ring() { return contract::hopper_raw_ring(shape()); }
constexpr contract::HopperLayout kLayout = contract::hopper_layout(shape());
constexpr contract::HopperBarriers kBarriers = contract::hopper_barriers(shape());

/// The rings of K and V, in the form that pipeline/kv_rings.cuh needs.
struct Tiles {
  static constexpr int element_bytes = kElementBytes;
  static constexpr int k_rows_per_cta = spec::kBlockN;
  static constexpr int v_cols_per_cta = kKeysInside ? kOutputColumns : kSlabsV * kSlabColumns;
  static constexpr int BK0 = shape().key_row() / kElementBytes / spec::kNumQkStages;
  static constexpr int BK1 = kKeysInside ? shape().keys_row() / kElementBytes : kStageKeys;
  static constexpr int num_kv_stages = spec::kNumKvStages, num_qk_stages = spec::kNumQkStages;
  static constexpr int num_mma_stages = kValueStages;
  static constexpr bool shared_ring = kSharedRing;
  static constexpr pipeline::KvOrder order = pipeline::KvOrder::kKeysAhead;
  static constexpr int cluster = kCluster;
};
static_assert(pipeline::KvBytes<Tiles>::k_slot == kLayout.key_slot &&
                  pipeline::KvBytes<Tiles>::v_slot == kLayout.value_slot,
              "slots where the contract has them");
using Producer = pipeline::KvProducer<Tiles>;
using Consumer = pipeline::KvConsumerPipeline<Tiles, pipeline::WarpRelease<kCluster>>;
using QueryRing = pipeline::StagedPipeline<spec::kQStages>;

/// The ring of tiles that TMA brings where warps make operands of them, in the order of their use: K and V in turn, or
/// V.
struct RawTiles : Tiles {
  enum : int {
    element_bytes = 1,
    num_kv_stages = raw_ring().slots,
    v_cols_per_cta = kSlabsV * kSlabColumns,
    BK0 = kRestagesKeys ? kSlabsQk * kSlabColumns : int{v_cols_per_cta},
    BK1 = raw_ring().keys,
    k_rows_per_cta = BK1
  };
  enum : bool { shared_ring = true };
};
using RawRing = pipeline::StagedPipeline<kRestagesKv ? raw_ring().slots : spec::kQStages>;
using RawProducer = pipeline::KvProducer<RawTiles>;
/// A tile that a CTA loads for itself alone, or a part of one.
struct OwnTile : OwnBoxes {
  __device__ static int first_row() { return 0; }
  __device__ static int row_in_slot() { return 0; }
  __device__ static int first_column() { return 0; }
  template <int kPart, class Ring>
  __device__ __forceinline__ static pipeline::TileTarget target(Ring& ring) {
    return ring.template get_tile<kPart>(true);
  }
};
/// A raw tile of K or V, or a part of one: its slabs have the columns of q's, of kKvDType.
struct RawTile : OwnTile {
  enum : int { kRows = kRestagesKv ? int{raw_ring().keys} : spec::kBlockN, kSlabs = kSlabsV };
  enum : int { kParts = spec::kBlockN / kRows };
  enum : uint32_t { row_bytes = kTransposesV ? kRowBytes : kRowBytes / 2, kSlabBytes = kRows * row_bytes };
};
static_assert(!kRestagesKv || (spec::kNumQkStages == 1 && kValueStages == 1), "operands are made whole");
// Values may come together with the keys of their tile, and not one tile late. Warps then have more time to make
// operands of them. Values that are converted gain 1 to 4 % by it. Two warpgroups with whole raw tiles that are
// transposed lose 1 to 2 %, because their keys come later (H200).
enum : bool { kValuesAtOnce = kSplitsQ || (kTransposesV && (spec::kMathWarpgroups == 3 || RawTile::kParts > 1)) };
static_assert(!kNarrow || !kSharedRing, "slots of V have rows of ones, and those of K have none");
static_assert(!kSplitsQ || !kSharedRing, "TMA fills the slots of K, and warps those of V");

/// K of bytes, an operand as TMA brings it.
struct StoredKeys : OwnTile {
  enum : int { kRows = spec::kBlockN };
  enum : uint32_t {
    row_bytes = contract::slab_width(shape().key_swizzle()),
    kSlabBytes = kRows * row_bytes,
    kSlabs = shape().key_row() / row_bytes
  };
};
struct StoredKeyMap {
  const contract::TensorMap& map;
};
__device__ __forceinline__ SlabSource slab_source(const StoredKeyMap& keys, int slab, int head) {
  return {&keys.map, slab * static_cast<int>(StoredKeys::row_bytes), head};
}

/// K as an operand, and raw V. Operands, Raw: the rings of either.
template <class Operands, class Raw>
class KeysAndRawValues {
  Operands operands_;
  Raw raw_;

 public:
  __device__ __forceinline__ KeysAndRawValues(uint32_t barriers, uint32_t keys, uint32_t raw_barriers, uint32_t raw)
      : operands_(barriers, keys, keys), raw_(raw_barriers, raw, raw) {}
  __device__ __forceinline__ auto k() { return operands_.k(); }
  __device__ __forceinline__ auto v() { return raw_.v(); }
  __device__ __forceinline__ void drain() {}  // CTAs of clusters do so
};
/// What the loading thread loads of a tile, and the rings that it fills.
using LoadedKeys = policy::Either<kRestagesKeys, RawTile, policy::Either<kSplitsQ, StoredKeys, KeyShares>::type>::type;
enum : int { kLoadedKeySlabs = kSplitsQ ? int{StoredKeys::kSlabs} : kSlabsQk };
using LoadedValues = policy::Either<kRestagesKv, RawTile, ValueShares>::type;
using LoadRings = policy::Either<kRestagesOnlyV, KeysAndRawValues<Producer, RawProducer>,
                                 policy::Either<kRestagesKeys, RawProducer, Producer>::type>::type;

using ItemRing = pipeline::PipelineState<spec::kQStages + 2>;  // slots of records; gatherers wait for its laps

using ClusterItem = ItemOf<spec::kBlockM * kCluster>;  // an item of the walk: the query tiles of all its CTAs
using Rows = policy::RowMap<spec::kPackGqa, spec::kGroup>;

/// Shared memory, with the layout of the contract.
struct Shared {
  uint32_t base;
  __device__ uint32_t queries(uint32_t slot) const { return base + kLayout.queries + slot * kLayout.query_slot; }
  __device__ uint32_t keys() const { return base + kLayout.keys; }
  __device__ uint32_t values() const { return base + kLayout.values; }
  __device__ uint32_t raw() const { return base + raw_ring().tiles; }
  /// Of a math thread, among them.
  __device__ uint32_t halves(uint32_t thread) const { return base + kLayout.halves + thread * 8; }
  __device__ uint32_t query_barriers() const { return base + kLayout.barriers + kBarriers.query_full * 8; }
  __device__ uint32_t kv_barriers() const { return base + kLayout.barriers + kBarriers.key_full * 8; }
  __device__ uint32_t raw_barriers() const { return base + raw_ring().full; }
  __device__ uint32_t item(uint32_t slot) const { return base + kLayout.items + slot * contract::kItemBytes; }
  __device__ uint32_t gather(uint32_t slot) const { return base + kLayout.gathers + slot * contract::kGatherBytes; }
  /// A barrier outside of the rings: the loading thread has told the gathering or converting warps of an item.
  __device__ pipeline::PhasedBarrier<1> gather_posted(uint32_t slot) const {
    return {base + kLayout.barriers + (kBarriers.gather_posted + slot) * contract::kBarrierBytes};
  }
};

/// The CTA's own query tile of an item. Behind the last rows of a sequence there may be none. The CTA then takes part
/// in its cluster's loads, and stores nothing.
template <int kRows>
__device__ __forceinline__ WorkItem own_tile(const contract::AttentionParams& params, const ItemOf<kRows>& item) {
  if constexpr (kRows == spec::kBlockM) {
    return item;
  } else {
    policy::TileCoord coord = item.coord;
    coord.m_block = coord.m_block * kCluster + static_cast<int>(share_rank());
    return WorkItem(params, coord);
  }
}

/// The key tiles of `item`, all that the cluster's CTAs see. Which of them need no mask depends on this CTA's rows,
/// `work`'s.
__device__ __forceinline__ policy::ItemTiles own_tiles_of(const contract::AttentionParams& params,
                                                          const ClusterItem& item, const WorkItem& work) {
  policy::ItemTiles tiles = tiles_of(params, item);
  if constexpr (kCluster > 1) find_own_full_tiles(params, work, tiles);
  return tiles;
}

using Walks = policy::Walks<spec::kScheduler, spec::kQLayout, Rows, spec::kBlockM, kCluster>;
template <class Walk>
__device__ __forceinline__ Walk walk_of(const HopperAttentionParams& params) {
  return {params, spec::kPackGqa ? params.attention.kv_heads : params.attention.q_heads};
}

}  // namespace
}  // namespace kernelwright
