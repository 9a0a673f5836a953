/// Results of gemm_sm100 that TMA does not store: at a group's end, and where rows are scattered. Lanes copy rows of d
/// from a slab in shared memory, 16 bytes at a time.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/sm100/gemm_sm100_items.cuh"
#include "policy/scattered_row.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// What a warp stores at once, as rows of d: a slab of 32 rows of the tile, or with swap_ab of 32 columns of d. With
/// gates, d has half as many columns.
struct StoredSlab {
  int rows, row_bytes;
  bool swizzled;

  __device__ static constexpr StoredSlab of() {
    const int columns = contract::blackwell_gemm_store_columns(kShape), bytes = tile::kBytesOf<stored_dtype()>;
    const int halves = kGated ? 2 : 1;
    if (spec::kSwapAb) return {columns, contract::kBlackwellGemmWarpRows / halves * bytes, false};
    return {contract::kBlackwellGemmWarpRows, columns / halves * bytes, true};
  }
};

/// Copies those rows and columns of a slab that exist. `row` and `column` of the tile are its first. `to`: with scatter
/// and without swap_ab, the row of d that the lane's row becomes, or -1. Called by all lanes of a warp, once all of
/// them have written the slab.
__device__ __forceinline__ void copy_slab(const EntryParams& params, uint32_t slab, int row, int column,
                                          const Item& item, uint32_t lane, int to) {
  if constexpr (kGrouped) {
    constexpr StoredSlab kSlab = StoredSlab::of();
    constexpr int kBytes = tile::kBytesOf<stored_dtype()>, kPieceElements = contract::kPieceBytes / kBytes;
    constexpr int kPieces = kSlab.row_bytes / contract::kPieceBytes;  // of a row
    // Rows and columns of d.
    const int halves = kGated ? 2 : 1;
    const int first = spec::kSwapAb ? column : row, left = (spec::kSwapAb ? row : column) / halves;
    const int end = spec::kSwapAb ? columns_end(params, item) : rows_end(params, item);
    const int right = (spec::kSwapAb ? rows_end(params, item) : columns_end(params, item)) / halves;
    const contract::GemmGroupsParams& groups = groups_of(params);
    unsigned char* const d = static_cast<unsigned char*>(groups.d);
    constexpr int kOfLane = (kSlab.rows + 31) / 32;
    int places[kOfLane] = {to};  // of every 32nd row of the slab
    if constexpr (spec::kScatter && spec::kSwapAb) {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int within = i * 32 + static_cast<int>(lane);
        places[i] = policy::scattered_row(groups, first + within, within < kSlab.rows && first + within < end);
      }
    }
#pragma unroll 4
    for (int step = 0; step < (kSlab.rows * kPieces + 31) / 32; ++step) {
      const int i = step * 32 + static_cast<int>(lane), at = i / kPieces, piece = i % kPieces;
      // As tile::LaneRows puts them.
      const int pattern = kSlab.swizzled ? at * kSlab.row_bytes / 128 % kPieces : 0;
      const int from = left + piece * kPieceElements;
      int place = first + at;  // the row of d
      if constexpr (spec::kScatter) {
        place = __shfl_sync(0xffffffff, places[0], at % 32);
#pragma unroll
        for (int j = 1; j < kOfLane; ++j) {
          const int later = __shfl_sync(0xffffffff, places[j], at % 32);
          if (at / 32 == j) place = later;
        }
      }
      const bool exists = at < kSlab.rows && first + at < end && place >= 0 && from < right;
      const ptx::Vector16 value =
          ptx::ld_shared_v4(slab + static_cast<uint32_t>(exists ? at * kSlab.row_bytes + (piece ^ pattern) * 16 : 0));
      ptx::st_global_v4_if(d + (place * groups.d_stride + from) * kBytes, value, exists);
    }
  }
}

}  // namespace
}  // namespace kernelwright
