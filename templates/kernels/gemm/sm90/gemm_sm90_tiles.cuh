/// Tiles of gemm_sm90: constants of its Spec, and the work that every role derives from the launch.
#pragma once

#include "spec.h"

#include "contract/gemm_params.h"
#include "contract/shared_slab.h"
#include "contract/words.h"
#include "kernels/gemm/gemm_defaults.cuh"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/tile_pipeline.cuh"
#include "policy/group_table.cuh"
#include "policy/tile_raster.cuh"
#include "policy/turns.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "tile/element.cuh"

namespace kernelwright {
namespace {

using contract::GemmParams;
using EntryParams = EntryOf<GemmParams>;

constexpr int kLoadThreads = 128, kMathWarps = 4 * spec::kMathWarpgroups, kThreads = kLoadThreads + 32 * kMathWarps;
constexpr bool kPingPong = spec::kRoles == Roles::kPingPong;
constexpr int kTileWarpgroups = kPingPong ? 1 : spec::kMathWarpgroups;  // that share a tile
constexpr int kWaves = spec::kBlockM / 64 / kTileWarpgroups;            // a warpgroup's products of 64 rows
static_assert(kWaves * 64 * kTileWarpgroups == spec::kBlockM, "whole products for each warpgroup");
// Types of the tile's operands: with swap_ab, its rows are those of the problem's b.
constexpr DType kRowsDType = spec::kSwapAb ? spec::kBDType : spec::kADType;
constexpr DType kColumnsDType = spec::kSwapAb ? spec::kADType : spec::kBDType;
constexpr int kElementBytes = tile::kBytesOf<spec::kADType>;
static_assert(kElementBytes == tile::kBytesOf<spec::kBDType>, "wgmma has operands of one width");
// Whether operands have m or n innermost: first the problem's operands, then the tile's.
constexpr bool kLeftMnMajor = spec::kLayout == OperandLayout::kTn || spec::kLayout == OperandLayout::kTt;
constexpr bool kRightMnMajor = spec::kLayout == OperandLayout::kNn || spec::kLayout == OperandLayout::kTn;
constexpr bool kAMnMajor = spec::kSwapAb ? kRightMnMajor : kLeftMnMajor;
constexpr bool kBMnMajor = spec::kSwapAb ? kLeftMnMajor : kRightMnMajor;
static_assert(kElementBytes == 2 || (!kAMnMajor && !kBMnMajor), "wgmma has fp8 with k innermost");
// A slot's tiles.
constexpr contract::SharedSlab kASlab{spec::kSlabBytes, spec::kSwizzleBytes, 8 * kElementBytes, spec::kBlockM,
                                      kAMnMajor};
constexpr contract::SharedSlab kBSlab{spec::kSlabBytes, spec::kSwizzleBytes, 8 * kElementBytes, spec::kBlockN,
                                      kBMnMajor};
static_assert(kASlab.parts() * kASlab.part_bytes() == kASlab.total_bytes() &&
                  kBSlab.parts() * kBSlab.part_bytes() == kBSlab.total_bytes(),
              "whole strips of k, whole boxes of rows and columns");
constexpr int kSlabDepth = kASlab.depth();  // elements of k in a slot's tile
constexpr int kCluster = spec::kClusterM;
constexpr int kParts = spec::kSplitK;  // parts of k
static_assert(kParts == 1 || (kCluster == 1 && !kPingPong), "CTAs of a cluster share a tile or its columns");
constexpr bool kTakesTurns =
    kParts > 1 && spec::kSplitMode == SplitMode::kTurnstile;  // else parts are a cluster's CTAs
constexpr int kTileCtas = kTakesTurns ? 1 : kParts;           // that share a tile at one time
static_assert(spec::kBlockN % (contract::kSwizzleRows * kCluster) == 0,
              "equal shares of B, whole patterns of the swizzle");
constexpr uint32_t kABytes = kASlab.total_bytes(), kBBytes = kBSlab.total_bytes();
// A CTA of a cluster loads this many bytes of each part of a slab of B.
constexpr uint32_t kBShareBytes = kBSlab.part_bytes() / kCluster;
static_assert(kBShareBytes % kBSlab.pattern_bytes() == 0, "whole patterns of the swizzle");

constexpr bool kBlockScales = spec::kScales == ScaleKind::kPerBlock;        // of 128 elements of a row, of 128 x 128
constexpr int kScaledRows = spec::kSwapAb ? spec::kBlockN : spec::kBlockM;  // that have scales of their own
constexpr uint32_t kScalePitch = contract::gemm_scale_bytes(kScaledRows, kManyB && !kBatched);
static_assert(!kBlockScales || (spec::kPromotion == 1 && kElementBytes == 1 && kSlabDepth == 128),
              "a slab has a scale");

constexpr bool kGrouped = kManyB && !kBatched, kMasked = spec::kGroups == GroupKind::kMasked;
constexpr bool kGathers = spec::kGather;  // rows of the problem's a lie where the launch says
// Whether threads copy an operand of the problem: those rows, or matrices b that lie where the launch says.
constexpr bool kCopies = kGathers || spec::kPointers;
// Operands of the tile that come through tensor maps.
enum : bool {
  kMapsRows = spec::kSwapAb ? !spec::kPointers : !kGathers,
  kMapsColumns = spec::kSwapAb ? !kGathers : !spec::kPointers
};
static_assert(!kManyB || (kParts == 1 && !kLeftMnMajor), "a CTA walks many tiles; rows of a have k innermost");
static_assert(!kSlicesK || (kParts == 1 && kCluster == 1 && !kPingPong && !spec::kSwapAb && kAMnMajor && kBMnMajor),
              "the warpgroups of a CTA clear the end of a slice, whose rows lie one behind the other");
// Tiles that a CTA takes one behind the other, side by side. Gates and ups of 128 columns have half of the results that
// share a scale: gemm_sm90_store.cuh.
constexpr int kHalves =
    spec::kQuantizes && spec::kGated && !spec::kSwapAb && spec::kBlockN == contract::kGemmScaledColumns ? 2 : 1;
using Groups = policy::GroupTable<spec::kGroups, spec::kBounds, spec::kMostGroups,
                                  spec::kSwapAb ? spec::kBlockN : spec::kBlockM * kCluster, spec::kPointers>;

constexpr contract::GemmLayout kLayout = contract::gemm_layout(
    spec::kBlockM, spec::kBlockN, spec::kStages, spec::kKGroup, spec::kMathWarpgroups, spec::kStoreStages,
    kBlockScales ? kScalePitch : 0, kTakesTurns, spec::kSlabBytes, spec::kMostGroups);

// Scales that TMA brings. With groups, they are bytes besides: their number depends on the tile.
using Payload = pipeline::ScaledTilePayload<kABytes, kBBytes, kBlockScales && !kGrouped ? kScaledRows : 0, kScalePitch,
                                            spec::kStages>;
using Input = pipeline::InputTilePipeline<Payload, spec::kStages, spec::kKGroup, (kCluster > 1)>;
using Release = pipeline::WarpRelease<kCluster>;

// A launch can give two warpgroups as many registers as a thread can name. With more warpgroups, those that multiply
// take registers from the loading one.
constexpr bool kMovesRegisters = spec::kMathWarpgroups > 1;
constexpr bool kCopiesBoth = kGathers && spec::kPointers;
constexpr int kLoadRegisters = kCopiesBoth ? 72 : kCopies ? 56 : spec::kMathWarpgroups == 2 ? 40 : 32;
constexpr int kMathRegisters = spec::kMathWarpgroups == 2 ? (kCopiesBoth ? 216
                                                             : kCopies   ? 224
                                                                         : 232)
                                                          : (kCopiesBoth ? 144
                                                             : kCopies   ? 152
                                                                         : 160);

/// A range of slabs of k.
struct Part {
  int begin, end;
};

/// Slabs that have some of `depth` elements of k.
__device__ __forceinline__ int slabs_of(int depth) { return (depth + kSlabDepth - 1) / kSlabDepth; }

/// A CTA's tile: where it begins, and where the rows and columns end that it may write.
struct Tile {
  int row, column;
  int row_end, column_end;
  int group;           // with groups: whose b it is
  int scale_row;       // with groups: the first row of scales of the problem's a; in a batch, that of the group
  int first_k, depth;  // of kind k: the first row of a and b, and how many the group has

  /// Scales of single rows are copied from a multiple of 16 bytes on: what lies ahead of the tile's first one.
  __device__ __forceinline__ int scale_shift() const {
    return kGrouped && !kMasked && !kGathers ? scale_row % contract::kGemmScaleShift : 0;
  }
};

/// The tile behind tile `index` of a CTA that takes every `step`-th item: the item's other half, or the next item.
__device__ __forceinline__ int tile_after(int index, int step) {
  if (kHalves > 1 && index % kHalves == 0) return index + 1;
  return index + 1 + (step - 1) * kHalves;
}

/// The work of the launch. Every role derives the same. Parts that take turns are items, and a CTA has one item. All
/// parts of a tile follow each other.
struct Work {
  policy::TileRaster raster;  // its rows are rows of clusters
  contract::TileBands bands;
  int slabs;  // of k
  int first, step;
  int turn;  // the CTA's part, where parts take turns
  bool turned;

  __device__ __forceinline__ Work(const GemmParams& params, int item) {
    const int rows = (params.m + spec::kBlockM * kCluster - 1) / (spec::kBlockM * kCluster);
    const int columns = (params.n + spec::kBlockN * kHalves - 1) / (spec::kBlockN * kHalves);
    turned = params.launch.bands_of_n;
    bands = params.launch.bands;
    raster = {turned ? columns : rows, turned ? rows : columns, bands.band};
    slabs = (params.k + kSlabDepth - 1) / kSlabDepth;
    first = kTakesTurns ? item / kParts : static_cast<int>(blockIdx.x) / (kCluster * kTileCtas) * kHalves;
    step = kTakesTurns ? raster.count() : static_cast<int>(gridDim.x) / (kCluster * kTileCtas);
    turn = kTakesTurns ? item % kParts : 0;
    m_ = params.m, n_ = params.n;
  }
  __device__ __forceinline__ int count() const { return raster.count() * kHalves; }
  /// The CTA's next tile.
  __device__ __forceinline__ int after(int index) const { return tile_after(index, step); }
  /// The CTA's slabs: whole groups, except at the last part's end.
  __device__ __forceinline__ Part part() const {
    if constexpr (kParts == 1) return {0, slabs};
    const int groups = (slabs + spec::kKGroup - 1) / spec::kKGroup;
    const int part = kTakesTurns ? turn : static_cast<int>(ptx::cluster_ctarank());
    return {groups * part / kParts * spec::kKGroup, min(slabs, groups * (part + 1) / kParts * spec::kKGroup)};
  }
  /// This CTA's tile, of the cluster's tile `index`.
  __device__ __forceinline__ Tile at(int index, int rank) const {
    const policy::TileRaster::Tile tile = raster.at(index / kHalves, bands);
    const int row = (turned ? tile.column : tile.row) * kCluster + rank;
    const int column = (turned ? tile.row : tile.column) * kHalves + index % kHalves;
    return {row * spec::kBlockM, column * spec::kBlockN, m_, n_, 0, 0, 0, 0};
  }

 private:
  int m_, n_;
};

/// The same of a batch, whose groups have as many tiles each. Tiles of a group follow each other, and are walked in
/// bands as those of a whole GEMM are.
struct BatchedWork : Work {
  __device__ __forceinline__ BatchedWork(const EntryParams& params, int item)
      : Work(params, item),
        of_group_(Work::count()),
        count_(of_group_ * batch_of(params).count),
        rows_(spec::kSwapAb ? params.n : params.m) {}
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ Tile at(int index, int rank) const {
    const int group = index / of_group_;
    Tile tile = Work::at(index - group * of_group_, rank);
    tile.group = group;
    tile.scale_row = group * rows_;
    return tile;
  }

 private:
  int of_group_, count_;  // tiles: of a group, of all
  int rows_;              // of a group
};

/// The same of groups of kind k, each of which has a slice of k. kWarp: as below.
template <bool kWarp>
struct SlicedWork : BatchedWork {
  /// The table of groups must have been made, and the CTA synchronised. `base`: the shared memory.
  __device__ __forceinline__ SlicedWork(const EntryParams& params, uint32_t base)
      : BatchedWork(params, 0), groups_(base + kLayout.groups, params.groups), last_(batch_of(params).count - 1) {
    fits_ = uniform(groups_.tiles()) > 0;
  }
  __device__ __forceinline__ int count() const { return fits_ ? BatchedWork::count() : 0; }
  /// `index` may be past the end: then the tile is any.
  __device__ __forceinline__ Tile at(int index, int rank) const {
    Tile tile = BatchedWork::at(index, rank);
    const typename Groups::Rows rows = groups_.rows_of(min(tile.group, last_));
    tile.first_k = uniform(rows.first), tile.depth = uniform(rows.end - rows.first);
    return tile;
  }

 private:
  __device__ __forceinline__ static int uniform(int word) {
    if constexpr (kWarp) return ptx::uniform(word);
    return word;
  }

  const Groups groups_;
  const int last_;
  bool fits_;
};

/// The same of groups with bounds. Tiles of a group follow each other, and are walked in bands as those of a whole GEMM
/// are.
///
/// kWarp: a whole warp has it, and its lanes call alike. The compiler does not know that words of shared memory are the
/// same in all lanes. A shuffle tells it, and so keeps slots and descriptors in uniform registers: without that, a loop
/// over slabs of fp8 has 150 more instructions that move them.
template <bool kWarp>
class GroupedWork {
 public:
  int slabs, first, step;
  static constexpr int turn = 0;

  /// The table of groups must have been made, and the CTA synchronised. `base`: the shared memory.
  __device__ __forceinline__ GroupedWork(const GemmParams& params, uint32_t base)
      : slabs((params.k + kSlabDepth - 1) / kSlabDepth),
        first(static_cast<int>(blockIdx.x) / kCluster * kHalves),
        step(static_cast<int>(gridDim.x) / kCluster),
        groups_(base + kLayout.groups, params.groups),
        band_(params.launch.bands.band),
        turned_(params.launch.bands_of_n),
        others_(spec::kSwapAb ? params.m : params.n),
        tiles_of_others_((others_ + kOtherTile - 1) / kOtherTile),
        count_(uniform(groups_.tiles()) * tiles_of_others_) {
    // As many CTAs, or clusters, as finish in the same round. Idle SMs leave their share of the power budget to the
    // busy ones.
    const int rounds = (count_ + step - 1) / step;
    step = rounds > 0 ? (count_ + rounds - 1) / rounds : 1;
    if (first >= step * kHalves) count_ = 0;
  }
  __device__ __forceinline__ int count() const { return count_ * kHalves; }
  __device__ __forceinline__ int after(int index) const { return tile_after(index, step); }
  __device__ __forceinline__ Part part() const { return {0, slabs}; }
  /// `index` may be past the end: then the tile is any.
  __device__ __forceinline__ Tile at(int index, int rank) const {
    typename Groups::Item item = kWarp ? held_item(index / kHalves) : groups_.find(index / kHalves, tiles_of_others_);
    for (int* const word : {&item.group, &item.first, &item.end, &item.tiles, &item.within}) *word = uniform(*word);
    item.tiles = max(item.tiles, 1);
    const int rows = spec::kSwapAb ? tiles_of_others_ : item.tiles;
    const int columns = spec::kSwapAb ? item.tiles : tiles_of_others_;
    const policy::TileRaster raster{turned_ ? columns : rows, turned_ ? rows : columns, band_};
    const policy::TileRaster::Tile tile = raster.at(item.within);
    const int row = ((turned_ ? tile.column : tile.row) * kCluster + rank) * spec::kBlockM;
    const int column = ((turned_ ? tile.row : tile.column) * kHalves + index % kHalves) * spec::kBlockN;
    int within = spec::kSwapAb ? column : row;                        // the tile's first row of the group
    if (kCluster > 1 && within >= item.end - item.first) within = 0;  // a CTA of a cluster that has no rows
    const int scale_row = kMasked ? within : item.first + within;
    if constexpr (spec::kSwapAb)
      return {row, item.first + column, others_, item.end, item.group, scale_row, 0, 0};
    else
      return {item.first + row, column, item.end, others_, item.group, scale_row, 0, 0};
  }

 private:
  // The other side of the tile, whose extent the launch gives: columns of d.
  static constexpr int kOtherTile = spec::kSwapAb ? spec::kBlockM * kCluster : spec::kBlockN * kHalves;
  static constexpr int kPastAll = 1 << 30;  // items: a launch has fewer

  /// Called by a whole warp.
  __device__ __forceinline__ typename Groups::Item held_item(int index) const {
    if (index < from_ || index >= from_ + max(tiles_, 1) * tiles_of_others_) {
      const typename Groups::Item found = groups_.find_by_warp(index, tiles_of_others_);
      group_ = found.group, tiles_ = found.tiles, from_ = index - found.within;
    }
    const typename Groups::Rows rows = groups_.rows_of(group_);
    return {group_, rows.first, rows.end, tiles_, index - from_};
  }
  __device__ __forceinline__ static int uniform(int word) {
    if constexpr (kWarp) return ptx::uniform(word);
    return word;
  }

  const Groups groups_;
  const int band_;
  const bool turned_;
  const int others_, tiles_of_others_;
  int count_;
  // A warp keeps the group that it found last. Its items begin at from_. To search for a group takes hundreds of
  // clocks. What shared memory has of the group is read again, because registers are scarce.
  mutable int group_ = 0, tiles_ = 0, from_ = kPastAll;
};

/// The row of a that is row `row` of d; -1: it is of zeros.
__device__ __forceinline__ int source_row(const GemmParams& params, int row) {
  const int source = ptx::ld_global_settled_s32(ptx::opaque(params.groups.gather) + row);
  return static_cast<uint32_t>(source) < static_cast<uint32_t>(params.groups.source_rows) ? source : -1;
}

template <GroupKind kKind, bool kWarp>
struct WorkOf {
  using Type = GroupedWork<kWarp>;
};
template <bool kWarp>
struct WorkOf<GroupKind::kNone, kWarp> {
  using Type = Work;
};
template <bool kWarp>
struct WorkOf<GroupKind::kBatch, kWarp> {
  using Type = BatchedWork;
};
template <bool kWarp>
struct WorkOf<GroupKind::kK, kWarp> {
  using Type = SlicedWork<kWarp>;
};
using ThreadWork = WorkOf<spec::kGroups, false>::Type;  // of a thread that works alone
using WarpWork = WorkOf<spec::kGroups, true>::Type;

/// What a CTA reads at the kernel's start comes from a launch ahead, and the CTA waits for it there.
constexpr bool kWaitsAtStart = kTakesTurns || kHasBounds;

// Products that are added to the sums slab by slab.
constexpr bool kPromotes = spec::kPromotion > 0;
constexpr int kProductColumns = contract::gemm_product_columns(spec::kBlockM, spec::kBlockN, spec::kMathWarpgroups,
                                                               kPingPong, spec::kMmaInFlight, spec::kPromotion);
static_assert(kProductColumns > 0, "registers for the sums and, beside them, products");

using Sums = float[kWaves][spec::kBlockN / 2];  // of a thread: accumulators of wgmma, 64 rows each
using Products = float[kProductColumns / 2];

__device__ __forceinline__ int rank_in_cluster() { return kCluster > 1 ? static_cast<int>(ptx::cluster_ctarank()) : 0; }

}  // namespace
}  // namespace kernelwright
