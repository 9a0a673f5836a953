/// What gemm_portable measures of a tile's values, and factors of rows.
#pragma once

#include "kernels/gemm/gemm_statistics.cuh"
#include "kernels/gemm/portable/gemm_portable_tiles.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Multiplies sums by the factors of their rows. A template, so that other kernels do not compile it.
template <class Params>
__device__ __forceinline__ void scale_rows(Sums& sums, const Params& params, const Place& place, int lane) {
#pragma unroll
  for (int r = 0; r < kRowsOfThread; ++r) {
    const float factor = rstd_of_row<4>(params, place.row_of(r), place.row_of(r) < place.row_end, lane);
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) sums[r / 2][n][r % 2 * 2 + e] *= factor;
  }
}

/// values[n][m] are of column tile n of d and row tile m; `first` is the thread's first column of d. `shared`:
/// [column warps][block_m] f32 in the ring.
template <class Params, int kTiles>
__device__ __forceinline__ void measure(const Params& params, const float (&values)[kTiles][kRowTiles][4],
                                        const Place& place, int first, uint32_t shared, int warp, int lane) {
  const int columns = params.n / (kGated ? 2 : 1), column_warp = warp / kRowWarps;
  const uint32_t row_of_tile = static_cast<uint32_t>(warp % kRowWarps * kWarpRows + lane / 4);
  const auto at = [&](int of_warp, int r) {
    return shared + (static_cast<uint32_t>(of_warp * spec::kBlockM + Place::rows_to(r)) + row_of_tile) * 4;
  };
  Statistics<Params, kRowsOfThread> statistics(params);
#pragma unroll
  for (int r = 0; r < kRowsOfThread; ++r)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        statistics.add(r, values[n][r / 2][r % 2 * 2 + e],
                       place.row_of(r) < place.row_end && first + n * 8 + e < columns);
  statistics.finish(lane);
  if constexpr (spec::kSquares) {
    __syncthreads();  // all warps have read the ring
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      const float sum = statistics.template take_sum<4>(r);
      if (lane % 4 == 0) ptx::st_shared_f32(at(column_warp, r), sum);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kColumnWarps; ++i) sum += ptx::ld_shared_f32(at(i, r));
      statistics.store_sum(place.row_of(r), first, sum,
                           lane % 4 == 0 && column_warp == 0 && place.row_of(r) < place.row_end);
    }
  }
}

}  // namespace
}  // namespace kernelwright
