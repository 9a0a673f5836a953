/// What a warpgroup of gemm_sm90 measures of a tile's values ahead of their store, and factors of rows. Four lanes have
/// a row's columns, so warps work alone. Values are made twice, here and where they are stored: so every store can
/// follow.
#pragma once

#include "kernels/gemm/gemm_statistics.cuh"
#include "kernels/gemm/sm90/gemm_sm90_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"

namespace kernelwright {
namespace {

/// The first of the warp's rows of a wave.
__device__ __forceinline__ int row_of_wave(const Tile& tile, int wave, int warp) {
  return tile.row + wave * 64 + warp * contract::kGemmStoreRows;
}

template <class Params, int kFirst, int kCount>
__device__ __forceinline__ void measure(const Params& params, const Sums& sums, const Tile& tile, int warp, int lane) {
  // Columns of the tile whose values are made together, few so that their addends have registers; and of a sum.
  constexpr int kHalves = kGated ? 2 : 1, kChunk = 16 * kHalves, kOfSum = contract::kGemmScaledColumns * kHalves;
  static_assert(!spec::kSwapAb && kFirst % kOfSum == 0 && kCount % kOfSum == 0, "whole sums");
  Statistics<Params, 2> statistics(params);
#pragma unroll
  for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
    for (int first = kFirst; first < kFirst + kCount; first += kChunk) {
      const int row = row_of_wave(tile, wave, warp), column = tile.column + first;
      const int own_row = row + lane / 4, own_column = column / kHalves + lane % 4 * 2;  // of d
      float values[8];
      Addends<kChunk> addends;
      if constexpr (!kPlainSums) addends.template load<kChunk>(params, tile, row, column, static_cast<uint32_t>(lane));
      finish_slab<kChunk>(params, values, reinterpret_cast<const float(&)[kChunk / 2]>(sums[wave][first / 2]), addends);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        statistics.add(
            i / 2 % 2, values[i],
            own_row + i / 2 % 2 * 8 < tile.row_end && own_column + i / 4 * 8 + i % 2 < tile.column_end / kHalves);
      const int first_of_sum = tile.column + first / kOfSum * kOfSum;
      if (spec::kSquares && first % kOfSum + kChunk == kOfSum) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          statistics.store_sum(own_row + 8 * r, first_of_sum / kHalves, statistics.template take_sum<4>(r),
                               lane % 4 == 0 && own_row + 8 * r < tile.row_end && first_of_sum < tile.column_end);
      }
    }
  statistics.finish(lane);
}

/// Calls then(values) with the sums of columns [kFirst, kFirst + kCount) of the tile, times the factors of their rows.
template <class Params, int kFirst, int kCount, class Then>
__device__ __forceinline__ void with_statistics(const Params& params, const Sums& sums, const Tile& tile,
                                                uint32_t warp_of_group, uint32_t lane_of_warp, const Then& then) {
  const int warp = static_cast<int>(warp_of_group), lane = static_cast<int>(lane_of_warp);
  if constexpr (spec::kRstd) {
    static_assert(!spec::kRstd || !spec::kSwapAb, "rows of the tile are rows of the result");
    Sums scaled;  // ptxas makes wgmma wait (C7515) if others write accumulators
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave) {
      float factors[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = row_of_wave(tile, wave, warp) + lane / 4 + 8 * r;
        factors[r] = rstd_of_row<4>(params, row, row < tile.row_end, lane);
      }
#pragma unroll
      for (int i = kFirst / 2; i < (kFirst + kCount) / 2; ++i) scaled[wave][i] = sums[wave][i] * factors[i / 2 % 2];
    }
    if constexpr (kMeasures) measure<Params, kFirst, kCount>(params, scaled, tile, warp, lane);
    then(scaled);
  } else {
    if constexpr (kMeasures) measure<Params, kFirst, kCount>(params, sums, tile, warp, lane);
    then(sums);
  }
}

}  // namespace
}  // namespace kernelwright
