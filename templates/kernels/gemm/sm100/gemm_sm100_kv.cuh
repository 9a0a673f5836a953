/// The end of a tile of gemm_sm100 whose columns are queries, keys and values. Heads wait in the slabs of results, from
/// where lanes take them through the steps of kv_write.
///
/// A warp puts a head of its 32 rows, and works alone. With swapped operands, a head lies in rows of several warps.
/// These meet: all put their rows of some tokens, and then each takes some of the tokens.
#pragma once

#include "kernels/gemm/gemm_kv_heads.cuh"
#include "kernels/gemm/sm100/gemm_sm100_tiles.cuh"
#include "policy/either.cuh"
#include "ptx/barrier.cuh"
#include "tile/lane_rows.cuh"

namespace kernelwright {
namespace {

/// Where a chunk of an item begins: the warp's first row, and the chunk's first column.
struct ChunkPlace {
  int chunk, row, column;
};

/// Of a warp. `memory`: its slabs of results, one behind the other.
template <class Params, int kChunk>
class HeadsOfWarp {
  enum : int {
    kSlabs = contract::gemm_kv_slabs(spec::kHeadDimQk),
    kRows = contract::kBlackwellGemmWarpRows,
    kSlabBytes = contract::kBlackwellGemmStoreSlabBytes
  };

 public:
  __device__ __forceinline__ HeadsOfWarp(const Params& params, const Shared& shared, uint32_t warp, uint32_t lane)
      : params_(params), memory_(shared.output(warp, 0)), lane_(lane) {
    static_assert(kChunk == 64 && kColumns % spec::kHeadDimQk == 0, "whole heads");
    static_assert(kSlabs <= spec::kStoreStages, "what the warp's slabs of results have room for");
  }

  /// The values of the lane's row. The last ones of a head write it.
  __device__ __forceinline__ void put(const float (&values)[kChunk], const ChunkPlace& at) const {
    const int slab = at.chunk % kSlabs;
    tile::LaneRows<spec::kInDType, false, kChunk>::put(memory_ + static_cast<uint32_t>(slab * kSlabBytes), lane_,
                                                       values);
    if (slab + 1 < kSlabs) return;
    __syncwarp();
    const auto place = [&](int row, int vector) {
      return memory_ + static_cast<uint32_t>(vector / 8 * kSlabBytes + row * 128 + (vector % 8 ^ row % 8) * 16);
    };
    write_head<kRows, 1>(params_.kv, place, at.row, at.column - slab * kChunk, 0, static_cast<int>(lane_));
    __syncwarp();  // all lanes have read the head
  }

 private:
  const Params& params_;
  const uint32_t memory_, lane_;
};

/// The same with swapped operands: columns of the tile are tokens, and lanes have a column of d each.
template <class Params, int kChunk>
class HeadsOfTile {
  enum : int {
    kHead = spec::kHeadDimQk,
    kWarps = contract::kBlackwellGemmStoreWarps,
    kRowsOfWarp = contract::kBlackwellGemmWarpRows,
    kTokenBytes = 2 * kRowsOfWarp,  // what a warp has of a token
    kBarrier = 1                    // no other role has a named one
  };

 public:
  __device__ __forceinline__ HeadsOfTile(const Params& params, const Shared& shared, uint32_t warp, uint32_t lane)
      : params_(params), memory_(shared.output(0, 0)), own_(shared.output(warp, 0)), warp_(warp), lane_(lane) {
    static_assert(kRows % kHead == 0 && kWarps * kRowsOfWarp == kRows, "whole heads");
    static_assert(kChunk * kTokenBytes <= contract::kBlackwellGemmStoreSlabBytes, "what a slab has room for");
  }

  __device__ __forceinline__ void put(const float (&values)[kChunk], const ChunkPlace& at) const {
    tile::LaneRows<spec::kInDType, true, kChunk>::put(own_, lane_, values);
    ptx::bar_sync(kBarrier, 32 * kWarps);
    const int first_row = at.row - static_cast<int>(warp_) * kRowsOfWarp;
#pragma unroll 1
    for (int first = 0; first < kRows; first += kHead) {
      const auto place = [&](int token, int vector) {
        const int row = first + vector * kLaneElements;  // of the tile
        return memory_ +
               static_cast<uint32_t>(row / kRowsOfWarp * kOfWarp + token * kTokenBytes + row % kRowsOfWarp * 2);
      };
      write_head<kChunk, kWarps>(params_.kv, place, at.column, first_row + first, static_cast<int>(warp_),
                                 static_cast<int>(lane_));
    }
    ptx::bar_sync(kBarrier, 32 * kWarps);  // all warps have read the heads
  }

 private:
  enum : int { kOfWarp = spec::kStoreStages * contract::kBlackwellGemmStoreSlabBytes };

  const Params& params_;
  const uint32_t memory_, own_, warp_, lane_;
};

template <class Params, int kChunk>
class WrittenHeads {
  using Heads = typename policy::Either<spec::kSwapAb, HeadsOfTile<Params, kChunk>, HeadsOfWarp<Params, kChunk>>::type;

 public:
  __device__ __forceinline__ WrittenHeads(const Params& params, const Shared& shared, uint32_t warp, uint32_t lane)
      : heads_(params, shared, warp, lane) {}
  __device__ __forceinline__ void put(const float (&values)[kChunk], const ChunkPlace& at) const {
    heads_.put(values, at);
  }

 private:
  const Heads heads_;
};

}  // namespace
}  // namespace kernelwright
