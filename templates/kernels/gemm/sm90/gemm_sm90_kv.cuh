/// The end of a tile of gemm_sm90 whose columns are queries, keys and values. A warp has whole heads of its 16 rows. It
/// puts them into its slabs of results one after the other, and takes them from there through the steps of kv_write.
#pragma once

#include "kernels/gemm/gemm_kv_heads.cuh"
#include "kernels/gemm/sm90/gemm_sm90_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "tile/output_slab.cuh"

namespace kernelwright {
namespace {

/// Of columns [kFirst, kFirst + kCount) of the tile.
template <class Params, int kFirst, int kCount>
class WrittenHeads {
  enum : int {
    kHead = spec::kHeadDimQk,
    kSlabColumns = 64,
    kSlabs = contract::gemm_kv_slabs(kHead),
    kHeads = kCount / kHead,
    kRows = contract::kGemmStoreRows
  };
  static_assert(!spec::kSwapAb && kFirst % kHead == 0 && kCount % kHead == 0, "whole heads");
  static_assert(kSlabs <= spec::kStoreStages, "what the warp's slabs of results have room for");

 public:
  /// `memory`: the warp's slabs. `warp`: of the warpgroup.
  __device__ __forceinline__ WrittenHeads(const Params& params, uint32_t memory, uint32_t warp, uint32_t lane)
      : params_(params), memory_(memory), warp_(static_cast<int>(warp)), lane_(lane) {}

  /// `tile`: the warpgroup's part of the tile.
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile) const {
    // One copy of the steps serves all heads: they are long.
#pragma unroll 1
    for (int piece = 0; piece < kWaves * kHeads; ++piece) {
      const int row = tile.row + piece / kHeads * 64 + warp_ * kRows,
                column = tile.column + kFirst + piece % kHeads * kHead;
      if (column >= tile.column_end) continue;
      put_piece<0>(piece, sums, tile, row, column);
      __syncwarp();
      const auto place = [&](int of_slab, int vector) {
        return memory_ + static_cast<uint32_t>(vector / 8 * contract::kGemmStoreSlabBytes + of_slab * 128) +
               ((static_cast<uint32_t>(vector % 8) ^ contract::swizzle_of_row(static_cast<uint32_t>(of_slab), 128)) *
                16);
      };
      write_head<kRows, 1>(params_.kv, place, row, column, 0, static_cast<int>(lane_));
      __syncwarp();  // all lanes have read the head
    }
  }

 private:
  /// Puts head `piece`, of which the number is known where registers are named.
  template <int kPiece>
  __device__ __forceinline__ void put_piece(int piece, const Sums& sums, const Tile& tile, int row, int column) const {
    if (piece == kPiece) put<kPiece / kHeads, kFirst + kPiece % kHeads * kHead>(sums, tile, row, column);
    if constexpr (kPiece + 1 < kWaves * kHeads) put_piece<kPiece + 1>(piece, sums, tile, row, column);
  }
  template <int kWave, int kColumn>
  __device__ __forceinline__ void put(const Sums& sums, const Tile& tile, int row, int column) const {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      constexpr int kValues = kSlabColumns / 2;
      float values[kValues];
      Addends<kSlabColumns> addends;
      if constexpr (!kPlainSums)
        addends.template load<kSlabColumns>(params_, tile, row, column + slab * kSlabColumns, lane_);
      finish_slab<kSlabColumns>(params_, values,
                                reinterpret_cast<const float(&)[kValues]>(sums[kWave][kColumn / 2 + slab * kValues]),
                                addends);
      tile::OutputSlab<spec::kInDType, false, kSlabColumns>::put(
          memory_ + static_cast<uint32_t>(slab * contract::kGemmStoreSlabBytes), lane_, values);
    }
  }

  const Params& params_;
  const uint32_t memory_;
  const int warp_;
  const uint32_t lane_;
};

}  // namespace
}  // namespace kernelwright
