/// Tiles of gemm_portable: constants of its Spec, and where a thread's sums are in the whole.
#pragma once

#include "spec.h"

#include "contract/gemm_portable.h"
#include "contract/words.h"
#include "kernels/gemm/gemm_defaults.cuh"
#include "policy/group_table.cuh"
#include "policy/tile_raster.cuh"
#include "tile/element.cuh"
#include "tile/operand_slab.cuh"

namespace kernelwright {
namespace {

using contract::GemmPortableParams;
using EntryParams = EntryOf<GemmPortableParams>;

constexpr int kThreads = spec::kNumWarps * 32;
constexpr int kRowWarps = contract::gemm_portable_row_warps(spec::kBlockM), kColumnWarps = spec::kNumWarps / kRowWarps;
constexpr int kWarpRows = spec::kBlockM / kRowWarps, kWarpColumns = spec::kBlockN / kColumnWarps;
constexpr int kRowTiles = kWarpRows / 16, kColumnTiles = kWarpColumns / 8;
static_assert(kRowTiles * 16 * kRowWarps == spec::kBlockM && kColumnTiles % 2 == 0 &&
                  kColumnTiles * 8 * kColumnWarps == spec::kBlockN,
              "whole fragments for each warp");

constexpr int kElementBytes = tile::kBytesOf<spec::kADType>;
static_assert(kElementBytes == tile::kBytesOf<spec::kBDType>, "mma.sync has operands of one width");
constexpr int kSlabDepth = spec::kSlabBytes / kElementBytes;  // elements of k in a slot
constexpr int kSteps = spec::kSlabBytes / 32;                 // products of 32 bytes of k in a slab

constexpr bool kAAlongK = spec::kLayout == OperandLayout::kNt || spec::kLayout == OperandLayout::kNn;
constexpr bool kBAlongK = spec::kLayout == OperandLayout::kNt || spec::kLayout == OperandLayout::kTt;
using ASlab =
    tile::OperandSlab<spec::kBlockM, kAAlongK, kElementBytes, kThreads, spec::kSlabBytes, spec::kSwizzleBytes>;
using BSlab =
    tile::OperandSlab<spec::kBlockN, kBAlongK, kElementBytes, kThreads, spec::kSlabBytes, spec::kSwizzleBytes>;

constexpr contract::GemmPortableLayout kLayout =
    contract::gemm_portable_layout(spec::kBlockM, spec::kBlockN, spec::kStages, spec::kSlabBytes, spec::kMostGroups);
static_assert(kLayout.b == static_cast<int>(spec::kStages * ASlab::bytes) &&
                  kLayout.groups - kLayout.b == static_cast<int>(spec::kStages * BSlab::bytes),
              "the host counts the same");

/// A thread's sums. Of row tile m and column tile n, it has rows lane / 4 and 8 more, columns 2 (lane % 4) and one
/// more.
using Sums = float[kRowTiles][kColumnTiles][4];
constexpr int kRowsOfThread = 2 * kRowTiles;

constexpr bool kGrouped = kManyB && !kBatched, kMasked = spec::kGroups == GroupKind::kMasked;
using Groups = policy::GroupTable<spec::kGroups, spec::kBounds, spec::kMostGroups, spec::kBlockM, spec::kPointers>;

/// A tile of d: where it begins, and where the rows end that it may write.
struct Tile {
  int row, column, row_end;
  int group, scale_row;  // with groups: whose b it is; the first row of a's scales of blocks
  int first_k, depth;    // of kind k: the first row of a and b, and how many the group has
};

/// The tiles of d, and the one that `index` is.
class Tiles {
 public:
  __device__ __forceinline__ explicit Tiles(const GemmPortableParams& params)
      : rows_((params.m + spec::kBlockM - 1) / spec::kBlockM),
        columns_((params.n + spec::kBlockN - 1) / spec::kBlockN),
        m_(params.m),
        turned_(params.launch.bands_of_n),
        bands_(params.launch.bands),
        raster_{turned_ ? columns_ : rows_, turned_ ? rows_ : columns_, bands_.band} {}
  __device__ __forceinline__ int count() const { return raster_.count(); }
  __device__ __forceinline__ Tile at(int index) const {
    const policy::TileRaster::Tile at = raster_.at(index, bands_);
    return {
        (turned_ ? at.column : at.row) * spec::kBlockM, (turned_ ? at.row : at.column) * spec::kBlockN, m_, 0, 0, 0, 0};
  }

 private:
  const int rows_, columns_, m_;
  const bool turned_;
  const contract::TileBands bands_;
  const policy::TileRaster raster_;
};

/// The same of a batch, whose groups have as many tiles each. Tiles of a group follow each other.
class BatchedTiles {
 public:
  __device__ __forceinline__ explicit BatchedTiles(const EntryParams& params)
      : group_(params), of_group_(group_.count()), count_(of_group_ * batch_of(params).count) {}
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ Tile at(int index) const {
    const int group = index / of_group_;
    Tile tile = group_.at(index - group * of_group_);
    tile.group = group;
    tile.scale_row = tile.row;
    return tile;
  }

 private:
  const Tiles group_;
  const int of_group_, count_;
};

/// The same of groups of kind k, each of which has a slice of k.
class SlicedTiles : public BatchedTiles {
 public:
  /// The table of groups must have been made, and the CTA synchronised.
  __device__ __forceinline__ SlicedTiles(const EntryParams& params, uint32_t table)
      : BatchedTiles(params), groups_(table, params.groups) {}
  __device__ __forceinline__ int count() const { return groups_.tiles() > 0 ? BatchedTiles::count() : 0; }
  __device__ __forceinline__ Tile at(int index) const {
    Tile tile = BatchedTiles::at(index);
    const typename Groups::Rows rows = groups_.rows_of(tile.group);
    tile.first_k = rows.first, tile.depth = rows.end - rows.first;
    return tile;
  }

 private:
  const Groups groups_;
};

/// The same of groups with bounds. Tiles of a group follow each other, and are walked in bands as those of a whole GEMM
/// are.
class GroupedTiles {
 public:
  /// The table of groups must have been made, and the CTA synchronised.
  __device__ __forceinline__ GroupedTiles(const GemmPortableParams& params, uint32_t table)
      : groups_(table, params.groups),
        columns_((params.n + spec::kBlockN - 1) / spec::kBlockN),
        band_(params.launch.bands.band),
        turned_(params.launch.bands_of_n),
        count_(groups_.tiles() * columns_) {}
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ Tile at(int index) const {
    const typename Groups::Item item = groups_.find(index, columns_);
    const policy::TileRaster raster{turned_ ? columns_ : item.tiles, turned_ ? item.tiles : columns_, band_};
    const policy::TileRaster::Tile at = raster.at(item.within);
    const int within = (turned_ ? at.column : at.row) * spec::kBlockM;
    return {item.first + within,
            (turned_ ? at.row : at.column) * spec::kBlockN,
            item.end,
            item.group,
            kMasked ? within : item.first + within,
            0,
            0};
  }

 private:
  const Groups groups_;
  const int columns_, band_;
  const bool turned_;
  const int count_;
};

constexpr bool kGathers = spec::kGather;  // rows of a lie where the launch says
static_assert(!kGathers || kAAlongK, "rows of a are copied");
/// The row of a that is row `row` of d; -1: it is of zeros.
__device__ __forceinline__ int source_row(const GemmPortableParams& params, int row) {
  if constexpr (!kGathers) return row;
  const int source = ptx::ld_global_settled_s32(ptx::opaque(params.groups.gather) + row);
  return static_cast<uint32_t>(source) < static_cast<uint32_t>(params.groups.source_rows) ? source : -1;
}

/// Where a thread's sums lie in d. Its operands, if it is in a group, are behind those of the groups before.
struct Place {
  int row, column;        // of the thread's first sum
  int row_end, to_scale;  // rows of d end there; from a row of d to that of its scales of blocks
  int group;

  __device__ __forceinline__ Place(const Tile& tile, int warp, int lane)
      : row(tile.row + warp % kRowWarps * kWarpRows + lane / 4),
        column(tile.column + warp / kRowWarps * kWarpColumns + lane % 4 * 2),
        row_end(tile.row_end),
        to_scale(tile.scale_row - tile.row),
        group(tile.group) {}
  __device__ __forceinline__ static constexpr int rows_to(int r) { return r / 2 * 16 + r % 2 * 8; }
  __device__ __forceinline__ int row_of(int r) const { return row + rows_to(r); }
  __device__ __forceinline__ int column_of(int tile) const { return column + tile * 8; }
};

}  // namespace
}  // namespace kernelwright
