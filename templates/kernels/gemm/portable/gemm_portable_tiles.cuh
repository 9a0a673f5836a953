/// Tiles of gemm_portable: constants of its Spec, and where a thread's sums are in the whole.
#pragma once

#include "spec.h"

#include "contract/gemm_portable.h"
#include "contract/words.h"
#include "tile/element.cuh"
#include "tile/operand_slab.cuh"

namespace kernelwright {
namespace {

using contract::GemmPortableParams;

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
    contract::gemm_portable_layout(spec::kBlockM, spec::kBlockN, spec::kStages, spec::kSlabBytes);
static_assert(kLayout.b == static_cast<int>(spec::kStages * ASlab::bytes) &&
                  kLayout.total - kLayout.b == static_cast<int>(spec::kStages * BSlab::bytes),
              "the host counts the same");

/// A thread's sums. Of row tile m and column tile n, it has rows lane / 4 and 8 more, columns 2 (lane % 4) and one
/// more.
using Sums = float[kRowTiles][kColumnTiles][4];
constexpr int kRowsOfThread = 2 * kRowTiles;

/// Where a warp's part of a tile begins in d, and a thread's rows and columns in it.
struct Place {
  int row, column;  // of the thread's first sum

  __device__ __forceinline__ Place(int tile_row, int tile_column, int warp, int lane)
      : row(tile_row * spec::kBlockM + warp % kRowWarps * kWarpRows + lane / 4),
        column(tile_column * spec::kBlockN + warp / kRowWarps * kWarpColumns + lane % 4 * 2) {}
  __device__ __forceinline__ int row_of(int r) const { return row + r / 2 * 16 + r % 2 * 8; }
  __device__ __forceinline__ int column_of(int tile) const { return column + tile * 8; }
};

}  // namespace
}  // namespace kernelwright
