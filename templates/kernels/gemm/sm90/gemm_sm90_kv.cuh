/// The end of a tile of gemm_sm90 whose columns are queries, keys and values. Heads wait in the slabs of results, from
/// where lanes take them through the steps of kv_write.
///
/// A warp has whole heads of its 16 rows, and works alone, one head after the other. With swapped operands, a head lies
/// in rows of several warps. These meet: all put their rows, and then each takes some tokens.
#pragma once

#include "kernels/gemm/gemm_kv_heads.cuh"
#include "kernels/gemm/sm90/gemm_sm90_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/barrier.cuh"
#include "tile/output_slab.cuh"

namespace kernelwright {
namespace {

constexpr int kOfWarp = spec::kStoreStages * contract::kGemmStoreSlabBytes;  // bytes of a warp's slabs

/// The slabs of the warps that share a tile. `memory`: those of all math warps.
__device__ __forceinline__ uint32_t slabs_of_tile(uint32_t memory, uint32_t warpgroup) {
  return memory + (kPingPong ? warpgroup * (4 * kOfWarp) : 0);
}

/// Makes kColumns columns' values of a warp's 16 rows, and puts them to `slab`. `row`, `column`: of d, or with swap_ab
/// of its transpose.
template <int kColumns, class Params>
__device__ __forceinline__ void put_values(const Params& params, uint32_t slab, const float (&sums)[kColumns / 2],
                                           const Tile& tile, int row, int column, uint32_t lane) {
  float values[kColumns / 2];
  Addends<kColumns> addends;
  if constexpr (!kPlainSums) addends.template load<kColumns>(params, tile, row, column, lane);
  finish_slab<kColumns>(params, values, sums, addends);
  tile::OutputSlab<spec::kInDType, spec::kSwapAb, kColumns>::put(slab, lane, values);
}

/// Columns [kFirst, kFirst + kCount) of a tile.
template <class Params, int kFirst, int kCount>
class HeadsOfWarp {
  enum : int {
    kHead = spec::kHeadDimQk,
    kSlabColumns = 64,
    kSlabs = contract::gemm_kv_slabs(kHead),
    kHeads = kCount / kHead,
    kRows = contract::kGemmStoreRows
  };
  static_assert(kFirst % kHead == 0 && kCount % kHead == 0, "whole heads");
  static_assert(kSlabs <= spec::kStoreStages, "what the warp's slabs of results have room for");

 public:
  __device__ __forceinline__ HeadsOfWarp(const Params& params, uint32_t memory, uint32_t warpgroup)
      : params_(params),
        warp_(static_cast<int>(threadIdx.x / 32 % 4)),
        lane_(threadIdx.x % 32),
        memory_(slabs_of_tile(memory, warpgroup) +
                static_cast<uint32_t>((kPingPong ? 0 : warpgroup * 4) + warp_) * kOfWarp) {}

  /// `tile`: the warpgroup's part of the tile.
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile) const {
    // One copy of the steps serves all heads: they are long.
#pragma unroll 1
    for (int piece = 0; piece < kWaves * kHeads; ++piece) {
      const int row = tile.row + piece / kHeads * 64 + warp_ * kRows;
      const int column = tile.column + kFirst + piece % kHeads * kHead;
      if (column >= tile.column_end) continue;
      put_piece<0>(piece, sums, tile, row, column);
      __syncwarp();
      const auto place = [&](int of_slab, int vector) {
        const uint32_t swizzle = contract::swizzle_of_row(static_cast<uint32_t>(of_slab), 128);
        return memory_ + static_cast<uint32_t>(vector / 8 * contract::kGemmStoreSlabBytes + of_slab * 128) +
               (static_cast<uint32_t>(vector % 8) ^ swizzle) * 16;
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
    for (int slab = 0; slab < kSlabs; ++slab)
      put_values<kSlabColumns>(
          params_, memory_ + static_cast<uint32_t>(slab * contract::kGemmStoreSlabBytes),
          reinterpret_cast<const float(&)[kSlabColumns / 2]>(sums[kWave][kColumn / 2 + slab * (kSlabColumns / 2)]),
          tile, row, column + slab * kSlabColumns, lane_);
  }

  const Params& params_;
  const int warp_;
  const uint32_t lane_, memory_;
};

/// The same with swapped operands: columns of the tile are tokens.
template <class Params, int kFirst, int kCount>
class HeadsOfTile {
  enum : int {
    kHead = spec::kHeadDimQk,
    kChunk = 64,                   // tokens whose values are made together
    kRowBytes = 32,                // of a token: what a warp has of it
    kOwnRows = kWaves * 64,        // of a warpgroup
    kWarps = 4 * kTileWarpgroups,  // of the tile
    kOfWave = kCount * kRowBytes,  // bytes of a warp
    kBarrier = 4                   // behind those of policy::Turns
  };

 public:
  __device__ __forceinline__ HeadsOfTile(const Params& params, uint32_t memory, uint32_t warpgroup)
      : params_(params),
        warpgroup_(kPingPong ? 0 : static_cast<int>(warpgroup)),
        warp_(static_cast<int>(threadIdx.x / 32 % 4)),
        lane_(threadIdx.x % 32),
        memory_(slabs_of_tile(memory, warpgroup)),
        barrier_(kBarrier + (kPingPong ? warpgroup : 0)) {
    static_assert(spec::kBlockM % kHead == 0, "whole heads");
    static_assert(kWaves * kOfWave <= kOfWarp, "what the warp's slabs of results have room for");
  }

  /// `tile`: the warpgroup's part of the tile.
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile) const {
    const uint32_t own = memory_ + static_cast<uint32_t>((warpgroup_ * 4 + warp_) * kOfWarp);
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
      for (int column = 0; column < kCount; column += kChunk) {
        const uint32_t slab = own + static_cast<uint32_t>(wave * kOfWave + column * kRowBytes);
        const int row = tile.row + wave * 64 + warp_ * contract::kGemmStoreRows;
        put_columns(slab, sums[wave], tile, row, column);
      }
    ptx::bar_sync(barrier_, 32 * kWarps);
    const int first_row = tile.row - warpgroup_ * kOwnRows;
#pragma unroll 1
    for (int first = 0; first < spec::kBlockM; first += kHead) {
      const auto place = [&](int token, int vector) {
        const int row = first + vector * kLaneElements;  // of the tile
        const int warp = row / kOwnRows * 4 + row % 64 / contract::kGemmStoreRows;
        const uint32_t swizzle = contract::swizzle_of_row(static_cast<uint32_t>(token), kRowBytes);
        return memory_ + static_cast<uint32_t>(warp * kOfWarp + row % kOwnRows / 64 * kOfWave + token * kRowBytes) +
               (static_cast<uint32_t>(vector % 2) ^ swizzle) * 16;
      };
      write_head<kCount, kWarps>(params_.kv, place, tile.column + kFirst, first_row + first, warpgroup_ * 4 + warp_,
                                 static_cast<int>(lane_));
    }
    ptx::bar_sync(barrier_, 32 * kWarps);  // all warps have read the heads
  }

 private:
  __device__ __forceinline__ void put_columns(uint32_t slab, const float (&sums)[spec::kBlockN / 2], const Tile& tile,
                                              int row, int column) const {
    constexpr int kTail = kCount % kChunk;
    if constexpr (kCount >= kChunk) {
      if (column + kChunk <= kCount) return put_chunk<kChunk>(slab, sums, tile, row, column);
    }
    if constexpr (kTail > 0) put_chunk<kTail>(slab, sums, tile, row, column);
  }
  template <int kColumns>
  __device__ __forceinline__ void put_chunk(uint32_t slab, const float (&sums)[spec::kBlockN / 2], const Tile& tile,
                                            int row, int column) const {
    put_values<kColumns>(params_, slab, reinterpret_cast<const float(&)[kColumns / 2]>(sums[(kFirst + column) / 2]),
                         tile, row, tile.column + kFirst + column, lane_);
  }

  const Params& params_;
  const int warpgroup_, warp_;
  const uint32_t lane_, memory_, barrier_;
};

template <class Params, int kFirst, int kCount>
class WrittenHeads {
  using Heads = typename policy::Either<spec::kSwapAb, HeadsOfTile<Params, kFirst, kCount>,
                                        HeadsOfWarp<Params, kFirst, kCount>>::type;

 public:
  /// `memory`: the slabs of results of all math warps.
  __device__ __forceinline__ WrittenHeads(const Params& params, uint32_t memory, uint32_t warpgroup)
      : heads_(params, memory, warpgroup) {}
  /// `tile`: the warpgroup's part of the tile.
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile) const { heads_.store(sums, tile); }

 private:
  const Heads heads_;
};

}  // namespace
}  // namespace kernelwright
