/// The work of a launch of gemm_sm100, which every role derives alike. An item is a tile, or a part of k of one. Here
/// are items, and where their rows, matrices and scales lie.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_tiles.cuh"
#include "policy/tile_raster.cuh"

namespace kernelwright {
namespace {

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
/// In a batch, and of kind k: whose matrices, and of kind k also the rows of a and b.
struct BatchItem : WholeItem {
  int group;
};
struct SliceItem : BatchItem {
  int first, end;
};
using StackedItem = policy::Either<kSlicesK, SliceItem, BatchItem>::type;
using Item = policy::Either<kGrouped, AnyGroupedItem, policy::Either<kStacked, StackedItem, WholeItem>::type>::type;

/// The first column of a CTA's tile. `tile`: of the cluster's items. Tile `index` of a CTA is half `index` % kHalves of
/// its item.
__device__ __forceinline__ int first_column(int tile, int index, uint32_t rank) {
  return ((tile * kClusterN + static_cast<int>(rank_n(rank))) * kHalves + index % kHalves) * kColumns;
}

/// The work of the launch. Every role derives the same. An item is a part of a cluster's tile; all parts of a tile
/// follow each other.
struct Work {
  policy::TileRaster raster;  // its rows are rows of clusters
  contract::TileBands bands;
  int slabs;  // of k
  int first;  // the cluster's first item
  bool turned;

  __device__ __forceinline__ Work(const BlackwellGemmParams& params, const Shared&, int first_item)
      : first(first_item) {
    constexpr int kTall = kRows * kClusterM, kWide = kColumns * kClusterN * kHalves;
    const int rows = (params.m + kTall - 1) / kTall, columns = (params.n + kWide - 1) / kWide;
    turned = params.launch.bands_of_n;
    bands = params.launch.bands;
    raster = {turned ? columns : rows, turned ? rows : columns, bands.band};
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
    const int number = index / kHalves / kParts, part = index % kParts;
    const policy::TileRaster::Tile tile = raster.at(number, bands);
    const int row = turned ? tile.column : tile.row, column = turned ? tile.row : tile.column;
    return {(row * kClusterM + static_cast<int>(rank_m(rank))) * kRows, first_column(column, index, rank),
            slabs_of(part), part, number * kClusterSize + static_cast<int>(rank)};
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
        band_(params.launch.bands.band),
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
      item = groups_.find(index / kHalves, tiles_of_others_);
    } else {
      item = groups_.find_by_warp(index / kHalves, tiles_of_others_);
      for (int* const word : {&item.group, &item.first, &item.end, &item.tiles, &item.within})
        *word = ptx::uniform(*word);
    }
    const int rows = spec::kSwapAb ? tiles_of_others_ : item.tiles;
    const int columns = spec::kSwapAb ? item.tiles : tiles_of_others_;
    const policy::TileRaster raster{turned_ ? columns : rows, turned_ ? rows : columns, band_};
    const policy::TileRaster::Tile tile = raster.at(item.within);
    const int row = ((turned_ ? tile.column : tile.row) * kClusterM + static_cast<int>(rank_m(rank))) * kRows;
    const int column = first_column(turned_ ? tile.row : tile.column, index, rank);
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
  enum : int { kOtherTile = spec::kSwapAb ? kRows * kClusterM : kColumns * kClusterN * kHalves };

  const Table groups_;
  const policy::GroupAtoms<spec::kMostGroups> atoms_;
  const int slabs_, band_;
  const bool turned_;
  const int others_, capacity_, tiles_of_others_, count_;
};

/// The same where each group has a matrix d: tiles of a group follow each other, and all groups have as many.
template <class Table>
struct StackedWork {
  int first;

  __device__ __forceinline__ StackedWork(const EntryParams& params, const Shared& shared, int first_item)
      : first(first_item),
        groups_(shared.groups(), groups_of_slices(params)),
        turned_(params.launch.bands_of_n),
        slabs_((params.k + kSlabDepth - 1) / kSlabDepth) {
    constexpr int kTall = kRows * kClusterM, kWide = kColumns * kClusterN * kHalves;
    const int rows = (params.m + kTall - 1) / kTall, columns = (params.n + kWide - 1) / kWide;
    bands_ = params.launch.bands;
    raster_ = {turned_ ? columns : rows, turned_ ? rows : columns, bands_.band};
    count_ = raster_.count() * batch_of(params).count;
    if (kSlicesK && groups_.tiles() == 0) count_ = 0;  // bounds do not fit
  }
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ Part slabs_of(int) const { return {0, slabs_}; }  // of a batch
  template <bool kAlone>
  __device__ __forceinline__ Item at(int index, uint32_t rank) const {
    const int item = index / kHalves, group = item / raster_.count();
    const policy::TileRaster::Tile tile = raster_.at(item - group * raster_.count(), bands_);
    const int row = ((turned_ ? tile.column : tile.row) * kClusterM + static_cast<int>(rank_m(rank))) * kRows;
    const int column = first_column(turned_ ? tile.row : tile.column, index, rank);
    return in_group<kAlone, Item>({{row, column, slabs_of(0), 0, 0}, group});
  }

 private:
  /// Kernels of a batch have no table, and never read it.
  __device__ __forceinline__ static contract::GemmGroupsParams groups_of_slices(const EntryParams& params) {
    if constexpr (kSlicesK)
      return groups_of(params);
    else
      return {};
  }
  template <bool kAlone, class AnyItem>
  __device__ __forceinline__ AnyItem in_group(const BatchItem& item) const {
    if constexpr (kSlicesK) {
      typename Table::Rows rows = groups_.rows_of(item.group);
      if constexpr (!kAlone) rows = {ptx::uniform(rows.first), ptx::uniform(rows.end)};
      AnyItem slice{item, rows.first, rows.end};
      // A group without rows has a slab of zeros, so that its sums are zeros as any others are sums.
      slice.slabs = {0, max(1, (rows.end - rows.first + kSlabDepth - 1) / kSlabDepth)};
      return slice;
    } else {
      return item;
    }
  }

  const Table groups_;
  policy::TileRaster raster_;
  contract::TileBands bands_;
  const bool turned_;
  const int slabs_;
  int count_;
};
using AnyWork =
    policy::Either<kGrouped, GroupedWork<Groups>, policy::Either<kStacked, StackedWork<Groups>, Work>::type>::type;

// Templates, because an item without groups has no such members.
/// An item's group; without groups 0.
template <class AnyItem>
__device__ __forceinline__ int group_of(const AnyItem& item) {
  if constexpr (kAnyGroups)
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

/// Where the scales of a tile's rows (kOfRows) or columns lie: behind `atoms` rows of atoms. `first` is the number of
/// the first row or column in its matrix, or in its group. A template, as group_of().
struct PlaceOfScales {
  int64_t atoms;
  int first;
};
template <bool kOfRows, class AnyItem>
__device__ __forceinline__ PlaceOfScales place_of_scales(const EntryParams& params, const AnyItem& item) {
  const int first = kOfRows ? item.row : item.column;
  if constexpr (!kCountsFromGroups && !kBatched) {
    return {0, first};
  } else if constexpr (kBatched || kOfRows == spec::kSwapAb) {  // of matrices, each with whole rows of atoms
    const int rows = kOfRows ? params.m : params.n;
    return {int64_t{item.group} * ((rows + contract::kScaleAtomRows - 1) / contract::kScaleAtomRows), first};
  } else {
    return {item.atom, first - item.first};
  }
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
