/// The end of a tile of gemm_sm90 whose operands are swapped and whose result is quantised. Rows of the tile are
/// columns of d, so the columns that share a scale lie in several warps. Warps meet twice. First each gives the largest
/// magnitude that it has of each row of d. Then each gives its elements, and all warps copy rows of d, 16 bytes at a
/// time.
#pragma once

#include "kernels/gemm/gemm_quantize.cuh"
#include "kernels/gemm/sm90/gemm_sm90_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/barrier.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Of columns [kFirst, kFirst + kColumns) of the tile, which are rows of d. A template, so that kernels of other tiles
/// do not compile it.
template <class Params, int kFirst, int kColumns>
class SwappedScales {
  // Rows of the tile that share scales, and how they and the warps divide the tile. Not variables, which would be in
  // every binary.
  enum : int {
    kUnitRows = contract::kGemmScaledColumns * (kGated ? 2 : 1),
    kUnits = spec::kBlockM / kUnitRows,
    kOwnRows = kWaves * 64,                                       // of a warpgroup
    kOwnUnits = kOwnRows > kUnitRows ? kOwnRows / kUnitRows : 1,  // in which a warp has rows
    kSharers = kUnitRows > kOwnRows ? kUnitRows / kOwnRows : 1,   // warpgroups with rows of one
    kWarps = 4 * kTileWarpgroups,                                 // of the tile
    kPairValues = kGated ? 2 : 4,                                 // of a wave's tile of 8 columns that a thread has
    kSlab = contract::gemm_store_columns(1),                      // columns whose addends are loaded together
    kElementBytes = contract::kGemmScaledColumns * kColumns,      // of a unit
    kMagnitudes = kUnits * kElementBytes,                         // where they begin, behind the elements
    kBarrier = 4                                                  // behind those of policy::Turns
  };
  using Values = float[kWaves][kColumns / 8 * kPairValues];

 public:
  /// `memory`: the slabs of results of the tile's warps. `warpgroup`: which of the tile's.
  __device__ __forceinline__ SwappedScales(const Params& params, uint32_t memory, uint32_t warpgroup)
      : params_(params),
        memory_(memory),
        warpgroup_(kPingPong ? 0 : static_cast<int>(warpgroup)),
        warp_(static_cast<int>(threadIdx.x / 32 % 4)),
        lane_(static_cast<int>(threadIdx.x % 32)),
        barrier_(kBarrier + (kPingPong ? warpgroup : 0)) {
    static_assert(kUnits * kUnitRows == spec::kBlockM && kOwnUnits * kTileWarpgroups == kUnits * kSharers,
                  "whole scales");
    static_assert(contract::gemm_swapped_result_bytes(spec::kBlockM, spec::kBlockN, kTileWarpgroups, kGated) <=
                      kWarps * spec::kStoreStages * contract::kGemmStoreSlabBytes,
                  "what the slabs of results have room for");
  }

  /// `tile`: the warpgroup's part of the tile.
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile) const {
    Values values;
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
      for (int column = 0; column < kColumns; column += kSlab) finish(values[wave], sums[wave], tile, wave, column);
    put_magnitudes(values);
    ptx::bar_sync(barrier_, 32 * kWarps);
#pragma unroll
    for (int unit = 0; unit < kOwnUnits; ++unit) put_elements(values, tile, unit);
    ptx::bar_sync(barrier_, 32 * kWarps);
    copy_rows(tile);
  }

 private:
  __device__ __forceinline__ void finish(float (&values)[kColumns / 8 * kPairValues],
                                         const float (&sums)[spec::kBlockN / 2], const Tile& tile, int wave,
                                         int column) const {
    constexpr int kTail = kColumns % kSlab;
    if constexpr (kColumns >= kSlab) {
      if (column + kSlab <= kColumns) return finish_columns<kSlab>(values, sums, tile, wave, column);
    }
    if constexpr (kTail > 0) finish_columns<kTail>(values, sums, tile, wave, column);
  }
  template <int kCount>
  __device__ __forceinline__ void finish_columns(float (&values)[kColumns / 8 * kPairValues],
                                                 const float (&sums)[spec::kBlockN / 2], const Tile& tile, int wave,
                                                 int column) const {
    Addends<kSlab> addends;
    if constexpr (!kPlainSums)
      addends.template load<kCount>(params_, tile, tile.row + wave * 64 + warp_ * contract::kGemmStoreRows,
                                    tile.column + kFirst + column, static_cast<uint32_t>(lane_));
    finish_slab<kCount>(params_, reinterpret_cast<float(&)[kCount / 8 * kPairValues]>(values[column / 8 * kPairValues]),
                        reinterpret_cast<const float(&)[kCount / 2]>(sums[(kFirst + column) / 2]), addends);
  }

  /// Which unit of the tile the warp's unit is.
  __device__ __forceinline__ int unit_of_tile(int unit) const { return warpgroup_ / kSharers * kOwnUnits + unit; }
  /// The largest magnitudes that warp `warp` of the tile has of rows of d, in its unit.
  __device__ __forceinline__ uint32_t magnitudes(int warp, int unit) const {
    return memory_ + kMagnitudes + static_cast<uint32_t>((warp * kOwnUnits + unit) * kColumns * 4);
  }

  /// values[4 j + 2 r + e] are of column 2 (lane % 4) + e of tile j of 8 columns, and of row lane / 4 + 8 r of 16. With
  /// gates values[2 j + e], of row lane / 4 of 8.
  __device__ __forceinline__ void put_magnitudes(const Values& values) const {
#pragma unroll
    for (int unit = 0; unit < kOwnUnits; ++unit)
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        float largest[2] = {};
#pragma unroll
        for (int wave = unit * kWaves / kOwnUnits; wave < (unit + 1) * kWaves / kOwnUnits; ++wave)
#pragma unroll
          for (int i = 0; i < kPairValues; ++i)
            largest[i % 2] = ptx::max_nan_f32(largest[i % 2], fabsf(values[wave][j * kPairValues + i]));
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            largest[e] = ptx::max_nan_f32(largest[e], __shfl_xor_sync(0xffffffff, largest[e], distance));
        if (lane_ < 4)
          ptx::st_shared_v2_f32(magnitudes(warpgroup_ * 4 + warp_, unit) + j * 32 + lane_ * 8, largest[0], largest[1]);
      }
  }

  /// Stores scales, and puts the warp's elements of a unit to where copy_rows() finds them.
  __device__ __forceinline__ void put_elements(const Values& values, const Tile& tile, int unit) const {
    const int first_warp = warpgroup_ / kSharers * kSharers * 4;
    const int row_of_unit = (tile.row - warpgroup_ * kOwnRows) + unit_of_tile(unit) * kUnitRows;
    const bool stores = warpgroup_ % kSharers == 0 && warp_ == 0 && lane_ < 4 && row_of_unit < tile.row_end;
    const ScaleRows scales(params_, params_.m / (kGated ? 2 : 1), tile.group, params_.groups.capacity);
    const uint32_t elements = memory_ + static_cast<uint32_t>(unit_of_tile(unit) * kElementBytes);
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      float factors[2] = {};
#pragma unroll
      for (int warp = 0; warp < 4 * kSharers; ++warp) {
        float largest[2];
        ptx::ld_shared_v2_f32(magnitudes(first_warp + warp, unit) + j * 32 + lane_ % 4 * 8, largest);
#pragma unroll
        for (int e = 0; e < 2; ++e) factors[e] = ptx::max_nan_f32(factors[e], largest[e]);
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float scale = scale_of(factors[e]);
        factors[e] = factor_of(scale);
        const int row = tile.column + kFirst + j * 8 + lane_ % 4 * 2 + e;  // of d
        scales.store(row, row_of_unit / (kGated ? 2 : 1), scale, stores && row < tile.column_end);
      }
#pragma unroll
      for (int wave = unit * kWaves / kOwnUnits; wave < (unit + 1) * kWaves / kOwnUnits; ++wave) {
        const int row = warpgroup_ % kSharers * kOwnRows + wave * 64 % kUnitRows + warp_ * contract::kGemmStoreRows;
        const int column = row / (kGated ? 2 : 1) + lane_ / 4;  // of d, in the unit
        const float* const of_pair = &values[wave][j * kPairValues];
#pragma unroll
        for (int r = 0; r < kPairValues / 2; ++r) {
          const uint32_t both =
              tile::fp8_pair<spec::kDDType>(of_pair[2 * r] * factors[0], of_pair[2 * r + 1] * factors[1]);
#pragma unroll
          for (int e = 0; e < 2; ++e)
            ptx::st_shared_u8(elements + place(j * 8 + lane_ % 4 * 2 + e, column + 8 * r), both >> 8 * e);
        }
      }
    }
  }
  /// Where a unit has the element of row `row` and column `column` of d. Lanes write four rows at once, two apart, so
  /// these have their pieces of 16 bytes in other banks.
  __device__ __forceinline__ static uint32_t place(int row, int column) {
    return static_cast<uint32_t>(row * contract::kGemmScaledColumns + (column ^ row / 2 % 8 * contract::kPieceBytes));
  }

  /// Copies what exists of the tile's rows of d.
  __device__ __forceinline__ void copy_rows(const Tile& tile) const {
    constexpr int kPieces = contract::kGemmScaledColumns / contract::kPieceBytes, kThreadsOfTile = 32 * kWarps;
    constexpr int kAll = kUnits * kColumns * kPieces;
    const int thread = (warpgroup_ * 4 + warp_) * 32 + lane_, first_row = tile.row - warpgroup_ * kOwnRows;
    unsigned char* d = static_cast<unsigned char*>(params_.groups.d);
    if constexpr (kBatched) d += tile.group * batch_of(params_).d_stride;  // elements of a byte
#pragma unroll
    for (int first = 0; first < kAll; first += kThreadsOfTile) {
      const int i = first + thread, unit = i / (kColumns * kPieces), at = i / kPieces % kColumns;
      const int row = tile.column + kFirst + at, column = (i % kPieces) * contract::kPieceBytes;
      const bool exists = i < kAll && row < tile.column_end && first_row + unit * kUnitRows < tile.row_end;
      const ptx::Vector16 value =
          ptx::ld_shared_v4(memory_ + (exists ? static_cast<uint32_t>(unit * kElementBytes) + place(at, column) : 0));
      ptx::st_global_v4_if(
          d + row * params_.groups.d_stride + ((first_row + unit * kUnitRows) / (kGated ? 2 : 1) + column), value,
          exists);
    }
  }

  const Params& params_;
  const uint32_t memory_;
  const int warpgroup_, warp_, lane_;
  const uint32_t barrier_;
};

}  // namespace
}  // namespace kernelwright
