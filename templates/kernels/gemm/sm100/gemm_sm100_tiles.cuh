/// Tiles of gemm_sm100: constants of its Spec, the ranks of a cluster, and the work that every role derives from the
/// launch.
#pragma once

#include "spec.h"

#include "contract/gemm_launch.h"
#include "contract/gemm_sm100.h"
#include "contract/words.h"
#include "kernels/gemm/gemm_options.cuh"
#include "mma/sm100_slab.cuh"
#include "pipeline/output_tile_pipeline.cuh"
#include "pipeline/phased_barrier.cuh"
#include "pipeline/tile_pipeline.cuh"
#include "policy/either.cuh"
#include "policy/group_atoms.cuh"
#include "policy/group_table.cuh"
#include "policy/tile_raster.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/launch.cuh"
#include "tile/element.cuh"

// Behind the others, so that kernels without groups are the same binaries as before there were any.
#include "kernels/gemm/gemm_defaults.cuh"

namespace kernelwright {
namespace {

using contract::BlackwellGemmParams;

// With groups: rows of the problem's a and d belong to groups, and each group has a matrix b of its own.
enum : bool {
  kGrouped = kHasBounds,
  kMasked = static_cast<GroupKind>(spec::kGroups) == GroupKind::kMasked,
  kGathersRows = spec::kGather,             // rows of the problem's a lie where the launch says
  kManyOfRows = kGrouped && spec::kSwapAb,  // operands of the tile that have a matrix for each group
  kManyOfColumns = kGrouped && !spec::kSwapAb
};
/// What the entry takes: of groups more, of a quantised result also the place of it, and what the kernel measures.
using UnscaledParams = policy::Either<kGrouped, contract::BlackwellGemmGroupedParams, BlackwellGemmParams>::type;
using ScaledParams = policy::Either<spec::kQuantizes, contract::GemmWithBlocks<UnscaledParams>, UnscaledParams>::type;
using EntryParams = policy::Either<kHasStatistics, contract::GemmWithStatistics<ScaledParams>, ScaledParams>::type;
/// Whether the result is quantised with f32 scales.
enum : bool { kMakesF32Scales = spec::kQuantizes && !kMakesBlocks };

// Types of the tile's operands: with swap_ab, its rows are those of the problem's b.
constexpr DType kRowsDType = spec::kSwapAb ? spec::kBDType : spec::kADType;
constexpr DType kColumnsDType = spec::kSwapAb ? spec::kADType : spec::kBDType;
// Whether operands have m or n innermost: first the problem's operands, then the tile's.
constexpr bool kLeftMnMajor = spec::kLayout == OperandLayout::kTn || spec::kLayout == OperandLayout::kTt;
constexpr bool kRightMnMajor = spec::kLayout == OperandLayout::kNn || spec::kLayout == OperandLayout::kTn;
constexpr bool kAMnMajor = spec::kSwapAb ? kRightMnMajor : kLeftMnMajor;
constexpr bool kBMnMajor = spec::kSwapAb ? kLeftMnMajor : kRightMnMajor;

constexpr int kCtas = spec::kCtaGroup;
constexpr bool kPair = kCtas == 2;
constexpr int kClusterM = spec::kClusterM, kClusterN = spec::kClusterN, kClusterSize = kClusterM * kClusterN;
static_assert(kClusterM % kCtas == 0, "CTAs of a pair lie above each other");
constexpr bool kQueued = spec::kScheduler == Scheduler::kQueued;
static_assert(!kQueued || spec::kSplitK == 1, "parts of a tile begin in their order");
constexpr int kParts = spec::kSplitK;  // parts of k
/// Whether what a CTA reads at the kernel's start comes from a launch ahead, for which a thread then waits.
enum : bool { kWaitsAtStart = kParts > 1 || kGrouped };
constexpr bool kPerSlab = spec::kPromotion > 0;  // a slab's products have scales that threads apply
using Product = mma::SlabProduct<kRowsDType, kColumnsDType, spec::kBlockN, kCtas, kAMnMajor, kBMnMajor,
                                 spec::kSlabBytes, spec::kSwizzleBytes>;
constexpr bool kBlockScaled = Product::kScaled;  // the tensor cores apply scales

static_assert(spec::kBlockM == contract::kBlackwellGemmRows, "a lane of tensor memory for each row");
constexpr int kRows = contract::kBlackwellGemmRows, kColumns = spec::kBlockN;
constexpr contract::BlackwellGemmShape kShape{kColumns,
                                              kCtas,
                                              kClusterM,
                                              kClusterN,
                                              spec::kStages,
                                              spec::kKGroup,
                                              spec::kAccumulators,
                                              Product::TypeA::scale_atoms,
                                              spec::kStoreStages,
                                              kMakesF32Scales ? 4 : tile::kBytesOf<stored_dtype()>,
                                              spec::kSwapAb,
                                              kQueued ? spec::kClcDepth : 0,
                                              spec::kSlabBytes};
constexpr contract::BlackwellGemmLayout kLayout = contract::blackwell_gemm_layout(kShape);
constexpr contract::BlackwellGemmBarriers kBarriers = contract::blackwell_gemm_barriers(kShape);
constexpr contract::BlackwellGemmColumns kTensorColumns = contract::blackwell_gemm_columns(kShape);
constexpr contract::BlackwellGemmBoxes kBoxes = contract::blackwell_gemm_boxes(kShape);
static_assert(kTensorColumns.used <= contract::kTensorMemoryColumns, "sums and scales");
constexpr bool kGathers = contract::blackwell_gemm_gathers(kShape);
static_assert(!kGathers || !kPair, "threads of one CTA put scales in their places");
constexpr contract::SharedSlab kASlab = Product::a_slab, kBSlab = Product::b_slab;  // this CTA's slabs in a slot
constexpr int kSlabDepth = kASlab.depth();                                          // elements of k in a slot
static_assert(kASlab.parts() * kASlab.part_bytes() == kASlab.total_bytes() &&
                  kBSlab.parts() * kBSlab.part_bytes() == kBSlab.total_bytes(),
              "whole strips of k, whole boxes of rows and columns");
static_assert(!kBlockScaled || spec::kSlabBytes == contract::kBlackwellGemmSlabBytes,
              "a slab has whole atoms of scales");
static_assert(!kPerSlab || kSlabDepth == 128, "a slab has a scale");
constexpr int kScaleAtoms = kShape.scale_atoms;
static_assert(kGrouped == kAnyGroups, "groups of rows with bounds");
static_assert(!spec::kPointers || (kGrouped && kClusterSize == 1), "threads copy matrices b to their own CTA");
static_assert(!kGrouped || (kParts == 1 && !kQueued && !kBlockScaled && !kLeftMnMajor),
              "a CTA walks many tiles, which it finds by the bounds; rows of a have k innermost");
// Whether roles ask where a group begins, and where its scales do: with block-scaled results. And whether the CTA
// counts atoms of groups for that.
enum : bool { kCountsFromGroups = kGrouped && kMakesBlocks, kCountsAtoms = kCountsFromGroups && !kMasked };
using Groups =
    policy::GroupTable<static_cast<GroupKind>(spec::kGroups), static_cast<GroupBounds>(spec::kBounds),
                       spec::kMostGroups, spec::kSwapAb ? kColumns * kClusterN : kRows * kClusterM, spec::kPointers>;

constexpr uint32_t kABytes = contract::blackwell_gemm_a_bytes(kShape),
                   kBBytes = contract::blackwell_gemm_b_bytes(kShape);
constexpr uint32_t kScaleABytes = contract::blackwell_gemm_scale_a_bytes(kShape);
constexpr uint32_t kScaleBBytes = contract::blackwell_gemm_scale_b_bytes(kShape);
static_assert(kBBytes % kBSlab.pattern_bytes() == 0 && kBoxes.a_rows % 8 == 0 && kBoxes.b_rows % 8 == 0,
              "shares of whole patterns of the swizzle");
using Payload = pipeline::BlockScaledTilePayload<kABytes, kBBytes, kScaleABytes, kScaleBBytes,
                                                 kScaleABytes + (kGathers ? 0 : kScaleBBytes), spec::kStages>;
using Input = pipeline::InputTilePipeline<Payload, spec::kStages, spec::kKGroup, (kClusterSize > 1)>;
using Output = pipeline::OutputTilePipeline<spec::kAccumulators, kColumns, kCtas>;

/// Bytes of a group of slots that threads copy, where matrices b lie where the launch says. TMA brings the others.
enum : uint32_t { kCopiedBytes = spec::kPointers ? (spec::kSwapAb ? kABytes : kBBytes) * spec::kKGroup : 0 };
enum : uint32_t { kCopyThreads = spec::kPointers ? 64 : 0 };  // warps 6 and 7

constexpr uint32_t kMmaWarp = 4, kLoadWarp = 5, kItemWarp = 6;
static_assert(Output::kWarps == kMmaWarp, "warps 0 to 3 reach lanes 0 to 127");

// ---- ranks in a cluster: rows of the tile first, so that CTAs of a pair follow each other ----

__device__ __forceinline__ uint32_t cluster_rank() {
  if constexpr (kClusterSize > 1)
    return ptx::cluster_ctarank();
  else
    return 0;
}
__device__ __forceinline__ uint32_t rank_m(uint32_t rank) { return rank % kClusterM; }
__device__ __forceinline__ uint32_t rank_n(uint32_t rank) { return rank / kClusterM; }
__device__ __forceinline__ uint32_t rank_in_pair(uint32_t rank) { return rank % kCtas; }
__device__ __forceinline__ bool leads(uint32_t rank) { return rank_in_pair(rank) == 0; }

/// The CTAs that share rows of A with CTA `rank` have a bit each. sharers_of_b: those that share columns of B.
__device__ __forceinline__ uint16_t sharers_of_a(uint32_t rank) {
  constexpr uint32_t every = ((1u << kClusterSize) - 1) / ((1u << kClusterM) - 1);
  return static_cast<uint16_t>(every << rank_m(rank));
}
__device__ __forceinline__ uint16_t sharers_of_b(uint32_t rank) {
  constexpr uint32_t every = ((1u << kClusterM) - 1) / ((1u << kCtas) - 1);
  return static_cast<uint16_t>(every << (rank_in_pair(rank) + rank_n(rank) * kClusterM));
}
/// The CTAs that load for CTA `rank` or for the other CTA of its pair.
__device__ __forceinline__ uint16_t loaders_for(uint32_t rank) {
  const uint32_t first = rank - rank_in_pair(rank);
  uint32_t ctas = 0;
#pragma unroll
  for (uint32_t i = 0; i < kCtas; ++i) ctas |= sharers_of_a(first + i) | sharers_of_b(first + i);
  return static_cast<uint16_t>(ctas);
}
// CTAs, or pairs, that a CTA loads for: each releases its slots.
constexpr uint32_t kConsumers = kClusterM / kCtas + kClusterN - 1;

/// Arrives at a barrier in every CTA of `ctas`, once the products and copies that this thread has issued have ended.
struct Commit {
  uint16_t ctas;
  __device__ __forceinline__ void operator()(uint32_t barrier) const {
    if constexpr (kClusterSize > 1)
      ptx::tcgen05_commit_multicast<kCtas>(barrier, ctas);
    else
      ptx::tcgen05_commit(barrier);
  }
};
/// The address of a barrier in the CTA that multiplies for a pair.
__device__ __forceinline__ uint32_t leaders(uint32_t barrier, uint32_t rank) {
  if constexpr (kPair)
    return ptx::mapa(barrier, rank - rank_in_pair(rank));
  else
    return barrier;
}

// The roles of a cluster that read an answer. In every CTA: the loading thread, four storing warps, the thread that
// asks and, in some kernels, a warp that gathers scales. In every CTA, or pair: the multiplying thread.
constexpr uint32_t kItemReaders = kClusterSize * (2 + Output::kWarps + (kGathers ? 1 : 0)) + kClusterSize / kCtas;

/// Shared memory, with the layout of the contract.
struct Shared {
  uint32_t base;
  __device__ Payload payload() const {
    return {{base + kLayout.a, base + kLayout.b}, base + kLayout.scales_a, base + kLayout.scales_b};
  }
  __device__ uint32_t output(uint32_t warp, uint32_t stage) const {
    return base + kLayout.output + (warp * spec::kStoreStages + stage) * contract::kBlackwellGemmStoreSlabBytes;
  }
  __device__ uint32_t item(uint32_t slot) const {
    return base + kLayout.items + slot * static_cast<uint32_t>(ptx::kCancelResponseBytes);
  }
  __device__ uint32_t barrier(int index) const { return base + kLayout.barriers + static_cast<uint32_t>(index) * 8; }
  __device__ uint32_t input() const { return barrier(kBarriers.full); }
  __device__ uint32_t accumulators() const { return barrier(kBarriers.accumulator_full); }

  // Barriers outside of the rings, each with the arrivals that end its phases. contract::BlackwellGemmBarriers says
  // which roles arrive.
  template <uint32_t kArrivals>
  using Barrier = pipeline::PhasedBarrier<kArrivals, (kClusterSize > 1)>;
  __device__ Barrier<1> item_full(uint32_t slot) const {
    return {barrier(kBarriers.item_full + static_cast<int>(slot))};
  }
  __device__ Barrier<kItemReaders> item_empty(uint32_t slot) const {
    return {barrier(kBarriers.item_empty + static_cast<int>(slot))};
  }
  __device__ Barrier<1> item_wanted() const { return {barrier(kBarriers.item_wanted)}; }

  __device__ uint32_t first_item() const { return base + kLayout.first_item; }
  __device__ uint32_t tensor_address() const { return base + kLayout.tensor_address; }
  __device__ uint32_t groups() const { return base + contract::blackwell_gemm_groups_offset(kShape); }
};
static_assert(kBarriers.empty == kBarriers.full + Input::num_group_stages, "a ring's barriers, as it counts them");

/// The launch's groups. Kernels without groups do not call it.
template <class Params>
__device__ __forceinline__ const contract::GemmGroupsParams& groups_of(const Params& params) {
  return params.groups;
}

/// A range of slabs of k.
struct Part {
  int begin, end;
  __device__ int groups() const { return (end - begin + spec::kKGroup - 1) / spec::kKGroup; }
};
/// A CTA's tile: its first row and column, the part of k, and its place in the workspace.
struct WholeItem {
  int row, column;
  Part slabs;
  int part, place;
};
/// With groups: also whose b it is, and where the rows and columns end that it may write.
struct GroupedItem : WholeItem {
  int group, row_end, column_end;
};
/// With scales in atoms: also the group's first row of d, and rows of atoms ahead of the group's.
struct ScaledItem : GroupedItem {
  int first, atom;
};
using AnyGroupedItem = policy::Either<kCountsFromGroups, ScaledItem, GroupedItem>::type;
using Item = policy::Either<kGrouped, AnyGroupedItem, WholeItem>::type;

/// The work of the launch. Every role derives the same. An item is a part of a cluster's tile; all parts of a tile
/// follow each other.
struct Work {
  policy::TileRaster raster;  // its rows are rows of clusters
  int slabs;                  // of k
  int first;                  // the cluster's first item
  bool turned;

  __device__ __forceinline__ Work(const BlackwellGemmParams& params, const Shared&, int first_item)
      : first(first_item) {
    constexpr int kTall = kRows * kClusterM, kWide = kColumns * kClusterN;
    const int rows = (params.m + kTall - 1) / kTall, columns = (params.n + kWide - 1) / kWide;
    turned = params.launch.bands_of_n;
    raster = {turned ? columns : rows, turned ? rows : columns, params.launch.band};
    slabs = (params.k + kSlabDepth - 1) / kSlabDepth;
  }
  __device__ __forceinline__ int count() const { return raster.count() * kParts; }
  /// The slabs of a part: whole groups, except at the last part's end. A part may be empty.
  __device__ __forceinline__ Part slabs_of(int part) const {
    if constexpr (kParts == 1) return {0, slabs};
    const int groups = (slabs + spec::kKGroup - 1) / spec::kKGroup;
    return {groups * part / kParts * spec::kKGroup, min(slabs, groups * (part + 1) / kParts * spec::kKGroup)};
  }
  template <bool kAlone>
  __device__ __forceinline__ Item at(int index, uint32_t rank) const {
    const int number = index / kParts, part = index % kParts;
    const policy::TileRaster::Tile tile = raster.at(number);
    const int row = turned ? tile.column : tile.row, column = turned ? tile.row : tile.column;
    return {(row * kClusterM + static_cast<int>(rank_m(rank))) * kRows,
            (column * kClusterN + static_cast<int>(rank_n(rank))) * kColumns, slabs_of(part), part,
            number * kClusterSize + static_cast<int>(rank)};
  }
};

/// The same of groups. Tiles of a group follow each other, and are walked in bands as those of a whole GEMM are. The
/// table of groups must have been made, and the CTA synchronised. A template, so that kernels without groups have none
/// of its constants.
template <class Table>
struct GroupedWork {
  int first;

  __device__ __forceinline__ GroupedWork(const EntryParams& params, const Shared& shared, int first_item)
      : first(first_item),
        groups_(shared.groups(), groups_of(params)),
        atoms_(shared.groups()),
        slabs_((params.k + kSlabDepth - 1) / kSlabDepth),
        band_(params.launch.band),
        turned_(params.launch.bands_of_n),
        others_(spec::kSwapAb ? params.m : params.n),
        capacity_(groups_of(params).capacity),
        tiles_of_others_((others_ + kOtherTile - 1) / kOtherTile),
        count_(groups_.tiles() * tiles_of_others_) {}
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ Part slabs_of(int) const { return {0, slabs_}; }
  /// kAlone: one thread calls it, else all lanes of a warp. The compiler does not know that words of shared memory are
  /// the same in all lanes: a reduction tells it.
  template <bool kAlone>
  __device__ __forceinline__ Item at(int index, uint32_t rank) const {
    typename Table::Item item;
    if constexpr (kAlone) {
      item = groups_.find(index, tiles_of_others_);
    } else {
      item = groups_.find_by_warp(index, tiles_of_others_);
      for (int* const word : {&item.group, &item.first, &item.end, &item.tiles, &item.within})
        *word = ptx::uniform(*word);
    }
    const int rows = spec::kSwapAb ? tiles_of_others_ : item.tiles;
    const int columns = spec::kSwapAb ? item.tiles : tiles_of_others_;
    const policy::TileRaster raster{turned_ ? columns : rows, turned_ ? rows : columns, band_};
    const policy::TileRaster::Tile tile = raster.at(item.within);
    const int row = ((turned_ ? tile.column : tile.row) * kClusterM + static_cast<int>(rank_m(rank))) * kRows;
    const int column = ((turned_ ? tile.row : tile.column) * kClusterN + static_cast<int>(rank_n(rank))) * kColumns;
    if constexpr (spec::kSwapAb)
      return with_scales<kAlone, Item>({{row, item.first + column, slabs_of(0), 0, 0}, item.group, others_, item.end},
                                       item.first);
    else
      return with_scales<kAlone, Item>({{item.first + row, column, slabs_of(0), 0, 0}, item.group, item.end, others_},
                                       item.first);
  }

 private:
  template <bool kAlone, class AnyItem>
  __device__ __forceinline__ AnyItem with_scales(const GroupedItem& item, int first) const {
    if constexpr (kCountsFromGroups) {
      int atom;
      if constexpr (kMasked)
        atom = item.group * ((capacity_ + contract::kScaleAtomRows - 1) / contract::kScaleAtomRows);
      else
        atom = atoms_.ahead_of(item.group);
      if constexpr (!kAlone) atom = ptx::uniform(atom);
      return {item, first, atom};
    } else {
      return item;
    }
  }

  // The other side of a cluster's tile, whose extent the launch gives: columns of d.
  enum : int { kOtherTile = spec::kSwapAb ? kRows * kClusterM : kColumns * kClusterN };

  const Table groups_;
  const policy::GroupAtoms<spec::kMostGroups> atoms_;
  const int slabs_, band_;
  const bool turned_;
  const int others_, capacity_, tiles_of_others_, count_;
};
using AnyWork = policy::Either<kGrouped, GroupedWork<Groups>, Work>::type;

// Templates, because an item without groups has no such members.
/// Whose matrix b an item multiplies by; without groups 0.
template <class AnyItem>
__device__ __forceinline__ int group_of(const AnyItem& item) {
  if constexpr (kGrouped)
    return item.group;
  else
    return 0;
}
/// Where the rows and columns end that an item may read or write.
template <class AnyItem>
__device__ __forceinline__ int rows_end(const EntryParams& params, const AnyItem& item) {
  if constexpr (kGrouped)
    return item.row_end;
  else
    return params.m;
}
template <class AnyItem>
__device__ __forceinline__ int columns_end(const EntryParams& params, const AnyItem& item) {
  if constexpr (kGrouped)
    return item.column_end;
  else
    return params.n;
}

/// The row of the problem's a, and of its scales, that row `row` of d is made of. -1: none, if the row does not exist
/// or, with gather, is of zeros.
__device__ __forceinline__ int source_row(const EntryParams& params, int row, bool exists) {
  if constexpr (kGathersRows) {
    const contract::GemmGroupsParams& groups = groups_of(params);
    const int source = static_cast<int>(ptx::ld_global_u32_if(ptx::opaque(groups.gather) + row, exists));
    return exists && static_cast<uint32_t>(source) < static_cast<uint32_t>(groups.source_rows) ? source : -1;
  } else {
    return exists ? row : -1;
  }
}

}  // namespace
}  // namespace kernelwright
