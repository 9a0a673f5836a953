/// The end of a tile of gemm_sm90 whose result is in a block-scaled format. Four lanes have the columns of a row that
/// share a scale, so warps work alone, and results go from registers to memory.
#pragma once

#include "kernels/gemm/gemm_blocks.cuh"
#include "kernels/gemm/sm90/gemm_sm90_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"

namespace kernelwright {
namespace {

/// Stores columns [kFirst, kFirst + kCount) of the tile. `tile`: the warpgroup's part of it; `warp`: of the warpgroup.
/// A template, so that kernels of other results do not compile it.
template <class Params, int kFirst, int kCount>
__device__ __forceinline__ void store_blocks(const Params& params, const Sums& sums, const Tile& tile,
                                             uint32_t warp_of_group, uint32_t lane_of_warp) {
  const int warp = static_cast<int>(warp_of_group), lane = static_cast<int>(lane_of_warp);
  constexpr int kHalves = kGated ? 2 : 1, kChunk = 64 * kHalves;  // columns of the tile that make 64 of d
  static_assert(!spec::kSwapAb && kFirst % kChunk == 0 && kCount % kChunk == 0, "whole blocks of a row");
  const BlockResult<spec::kDDType, spec::kBlockM> result(params, params.m, params.n / kHalves);
#pragma unroll
  for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
    for (int first = kFirst; first < kFirst + kCount; first += kChunk) {
      const int row = tile.row + wave * 64 + warp * contract::kGemmStoreRows, column = tile.column + first;
      float values[2][16];
      Addends<kChunk> addends;
      if constexpr (!kPlainSums) addends.template load<kChunk>(params, tile, row, column, static_cast<uint32_t>(lane));
      finish_slab<kChunk>(params, reinterpret_cast<float(&)[32]>(values),
                          reinterpret_cast<const float(&)[kChunk / 2]>(sums[wave][first / 2]), addends);
#pragma unroll
      for (int i = 0; i < 2; ++i) result.store_of_quad(values[i], row + lane / 4, column / kHalves + i * 32, lane);
    }
}

}  // namespace
}  // namespace kernelwright
