/// Tiles of gemm_sm90: constants of its Spec, and the work that every role derives from the launch.
#pragma once

#include "spec.h"

#include "contract/gemm_params.h"
#include "contract/shared_slab.h"
#include "contract/words.h"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/tile_pipeline.cuh"
#include "policy/tile_raster.cuh"
#include "policy/turns.cuh"
#include "ptx/cluster.cuh"
#include "tile/element.cuh"

namespace kernelwright {
namespace {

using contract::GemmParams;

constexpr int kMathWarps = 4 * spec::kMathWarpgroups, kThreads = 128 + 32 * kMathWarps;
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
constexpr uint32_t kScalePitch = contract::gemm_scale_bytes(kScaledRows);
static_assert(!kBlockScales || (spec::kPromotion == 1 && kElementBytes == 1 && kSlabDepth == 128),
              "a slab has a scale");

constexpr contract::GemmLayout kLayout =
    contract::gemm_layout(spec::kBlockM, spec::kBlockN, spec::kStages, spec::kKGroup, spec::kMathWarpgroups,
                          spec::kStoreStages, kBlockScales ? kScalePitch : 0, kTakesTurns, spec::kSlabBytes);

using Payload =
    pipeline::ScaledTilePayload<kABytes, kBBytes, kBlockScales ? kScaledRows : 0, kScalePitch, spec::kStages>;
using Input = pipeline::InputTilePipeline<Payload, spec::kStages, spec::kKGroup, (kCluster > 1)>;
using Release = pipeline::WarpRelease<kCluster>;

// A launch can give two warpgroups as many registers as a thread can name. With more warpgroups, those that multiply
// take registers from the loading one.
constexpr bool kMovesRegisters = spec::kMathWarpgroups > 1;
constexpr int kLoadRegisters = spec::kMathWarpgroups == 2 ? 40 : 32;
constexpr int kMathRegisters = spec::kMathWarpgroups == 2 ? 232 : 160;

/// A range of slabs of k.
struct Part {
  int begin, end;
};

/// The work of the launch. Every role derives the same. Parts that take turns are items, and a CTA has one item. All
/// parts of a tile follow each other.
struct Work {
  policy::TileRaster raster;  // its rows are rows of clusters
  int slabs;                  // of k
  int first, step;
  int turn;  // the CTA's part, where parts take turns
  bool turned;

  __device__ __forceinline__ Work(const GemmParams& params, int item) {
    const int rows = (params.m + spec::kBlockM * kCluster - 1) / (spec::kBlockM * kCluster);
    const int columns = (params.n + spec::kBlockN - 1) / spec::kBlockN;
    turned = params.launch.bands_of_n;
    raster = {turned ? columns : rows, turned ? rows : columns, params.launch.band};
    slabs = (params.k + kSlabDepth - 1) / kSlabDepth;
    first = kTakesTurns ? item / kParts : static_cast<int>(blockIdx.x) / (kCluster * kTileCtas);
    step = kTakesTurns ? raster.count() : static_cast<int>(gridDim.x) / (kCluster * kTileCtas);
    turn = kTakesTurns ? item % kParts : 0;
  }
  /// The CTA's slabs: whole groups, except at the last part's end.
  __device__ __forceinline__ Part part() const {
    if constexpr (kParts == 1) return {0, slabs};
    const int groups = (slabs + spec::kKGroup - 1) / spec::kKGroup;
    const int part = kTakesTurns ? turn : static_cast<int>(ptx::cluster_ctarank());
    return {groups * part / kParts * spec::kKGroup, min(slabs, groups * (part + 1) / kParts * spec::kKGroup)};
  }
  /// Row and column of this CTA's tile, of the cluster's tile `index`.
  __device__ __forceinline__ policy::TileRaster::Tile at(int index, int rank) const {
    const policy::TileRaster::Tile tile = raster.at(index);
    return {(turned ? tile.column : tile.row) * kCluster + rank, turned ? tile.row : tile.column};
  }
};

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
