/// Slabs of a tile's results in gemm_sm90: what a warp writes to shared memory at once, and TMA or the warp to memory.
#pragma once

#include "kernels/gemm/gemm_quantize.cuh"
#include "kernels/gemm/sm90/gemm_sm90_scatter.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "tile/output_slab.cuh"

namespace kernelwright {
namespace {

constexpr bool kHalvesColumns = kGated && !spec::kSwapAb, kHalvesRows = kGated && spec::kSwapAb;
constexpr int kStoreColumns = contract::gemm_store_columns(tile::kBytesOf<stored_dtype()>, kHalvesColumns);
constexpr int kTailColumns = spec::kBlockN % kStoreColumns;

// Columns of the tile that are stored together: a slab, a head, or those that share a scale or a sum of squares. With
// swap_ab, columns of the tile are rows of d, and any eight of them.
enum : int {
  kUnitColumns = kScalesColumns || kMeasures ? contract::kGemmScaledColumns * (kGated ? 2 : 1) / kHalves
                 : kSwapsScales              ? 8
                 : spec::kWritesKv           ? (spec::kSwapAb ? 8 : spec::kHeadDimQk)
                                             : kStoreColumns
};
static_assert(!kScalesColumns || spec::kBlockN % kUnitColumns == 0, "whole scales");

/// A warp's slabs, in turn.
class WarpSlabs {
 protected:
  using Places = ScatteredRows<spec::kSwapAb ? kStoreColumns : contract::kGemmStoreRows>;  // of a slab

  __device__ __forceinline__ WarpSlabs(const EntryParams& params, uint32_t base, uint32_t warpgroup)
      : params_(params),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32),
        output_(base + kLayout.output + (warpgroup * 4 + warp_) * spec::kStoreStages * contract::kGemmStoreSlabBytes) {}

  __device__ __forceinline__ uint32_t slab_of(int number) const {
    return output_ + number % spec::kStoreStages * contract::kGemmStoreSlabBytes;
  }
  /// Waits until TMA has read what slab `number` of kSlabs of the tile's overwrites.
  template <int kSlabs>
  __device__ __forceinline__ void wait_for_slab(int number) const {
    constexpr int kStages = spec::kStoreStages;
    // A tile begins with the first stage. If the last tile had an odd number of slabs, that stage was its last one
    // too.
    constexpr bool kEven = kSlabs % kStages == 0;
    // Where a CTA has one tile, no earlier store uses the stages of its first slabs.
    if constexpr (spec::kScatter) {
      __syncwarp();  // all lanes have copied their rows of it
    } else if (kParts == 1 || number >= kStages) {
      if (lane_ == 0) {
        if (number > 0 || kEven)
          ptx::cp_async_bulk_wait_group_read<kStages - 1>();
        else
          ptx::cp_async_bulk_wait_group_read<0>();
      }
      __syncwarp();
    }
  }
  /// Stores a slab that the warp has written to shared memory. `row` and `column` of the tile are its first. `whole`:
  /// it is no shorter one at the end of the tile.
  __device__ __forceinline__ void send(uint32_t slab, const Tile& tile, int row, int column, bool whole,
                                       const Places& places = {}) const {
    if constexpr (spec::kScatter) {
      __syncwarp();
      if (whole)
        copy_rows<kStoreColumns>(slab, row, column, tile, places);
      else
        copy_rows<kTailColumns>(slab, row, column, tile, places);
      return;
    }
    if constexpr (kGrouped && !kSwapsScales) {
      // What lies behind the group's rows is not this tile's to write.
      const int last = spec::kSwapAb ? column + (whole ? kStoreColumns : kTailColumns) : row + kRowsOfWarp;
      if (ptx::uniform(last > (spec::kSwapAb ? tile.column_end : tile.row_end)) != 0) {
        __syncwarp();
        if (whole)
          copy_rows<kStoreColumns>(slab, row, column, tile, places);
        else
          copy_rows<kTailColumns>(slab, row, column, tile, places);
        if (lane_ == 0) ptx::cp_async_bulk_commit_group();  // of nothing: slabs are counted
        return;
      }
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane_ == 0) {
      send_by_tma(slab, tile, row, column, whole);
      ptx::cp_async_bulk_commit_group();
    }
  }
  /// Called by one lane, which commits the group.
  __device__ __forceinline__ void send_by_tma(uint32_t slab, const Tile& tile, int row, int column, bool whole) const {
    if constexpr (kStacked)
      ptx::cp_async_bulk_tensor_3d_store(whole ? params_.d : params_.d_tail, column_of_d(row, column),
                                         spec::kSwapAb ? column : row, tile.group, slab);
    else
      ptx::cp_async_bulk_tensor_2d_store(whole ? params_.d : params_.d_tail, column_of_d(row, column),
                                         spec::kSwapAb ? column : row, slab);
  }

  static constexpr int kRowsOfWarp = contract::kGemmStoreRows;
  /// The column of d that `row` and `column` of the tile begin.
  __device__ __forceinline__ static int column_of_d(int row, int column) {
    return (spec::kSwapAb ? row : column) / (kGated ? 2 : 1);
  }
  /// The first of the warp's rows of a wave.
  __device__ __forceinline__ int first_row(const Tile& tile, int wave) const {
    return tile.row + wave * 64 + static_cast<int>(warp_) * kRowsOfWarp;
  }
  template <int kColumns>
  using Slab =
      tile::OutputSlab<spec::kDDType, spec::kSwapAb, kHalvesColumns ? kColumns / 2 : kColumns, kHalvesRows ? 8 : 16>;
  /// The sums of a slab.
  template <int kColumns>
  __device__ __forceinline__ static const float (&slab_sums(const float (&sums)[spec::kBlockN / 2],
                                                            int chunk))[kColumns / 2] {
    return reinterpret_cast<const float(&)[kColumns / 2]>(sums[chunk * (kStoreColumns / 2)]);
  }

  /// Stores what the group has of a slab of kColumns columns of the tile, 16 bytes at a time.
  template <int kColumns>
  __device__ __forceinline__ void copy_rows(uint32_t slab, int row, int column, const Tile& tile,
                                            const Places& places) const {
    if constexpr (kColumns > 0) {
      constexpr int kBytes = tile::kBytesOf<stored_dtype()>, kOfPiece = contract::kPieceBytes / kBytes;
      constexpr contract::GemmStoreBox kBox = contract::gemm_store_box(kBytes, spec::kSwapAb, kColumns, kGated);
      constexpr int kPieces = kBox.columns / kOfPiece;  // of a row of d
      static_assert(kPieces * kOfPiece == kBox.columns, "whole pieces");
      // Rows and columns of d.
      const int first = spec::kSwapAb ? column : row, left = column_of_d(row, column);
      const int end = spec::kSwapAb ? tile.column_end : tile.row_end;
      const int right = column_of_d(tile.row_end, tile.column_end);
      unsigned char* const d = static_cast<unsigned char*>(params_.groups.d);
      // No lane leaves the others: else ptxas would keep what is the same in all lanes, slots and descriptors, in
      // registers of each lane. A loop over slabs of fp8 would have 150 more instructions.
      // Every slab comes here where rows are scattered: unrolled, tiles of many sums would spill registers.
      constexpr int kUnroll = spec::kScatter ? 2 : 32;
#pragma unroll kUnroll
      for (int step = 0; step < (kBox.rows * kPieces + 31) / 32; ++step) {
        const int i = step * 32 + static_cast<int>(lane_), at = i / kPieces, piece = i % kPieces;
        const uint32_t swizzled =
            kBox.swizzle_bytes == 0 ? piece : piece ^ contract::swizzle_of_row(at, kBox.swizzle_bytes);
        const int to = places.of(at, first);
        const bool exists = at < kBox.rows && first + at < end && to >= 0 && left + piece * kOfPiece < right;
        const ptx::Vector16 value = ptx::ld_shared_v4(
            slab + (exists ? (at * kPieces + swizzled) * static_cast<uint32_t>(contract::kPieceBytes) : 0));
        ptx::st_global_v4_if(d + (to * params_.groups.d_stride + left + piece * kOfPiece) * kBytes, value, exists);
      }
    }
  }

  const EntryParams& params_;
  const uint32_t warp_, lane_, output_;
};

}  // namespace
}  // namespace kernelwright
