/// A warp's 16 rows of a wgmma accumulator are written to shared memory in the layout of the box that TMA stores from
/// there. Lanes hold pairs of columns of a row, 8 apart. A box needs pieces of 16 bytes or more of a row of d.
///
/// kTransposed: rows of the accumulator are columns of d. Then the box has 16 columns, and as many rows as the
/// accumulator has columns here. kRows 8: a lane has values of the first 8 rows alone, and the box has 8 columns.
///
/// Bytes of a row of the box are swizzled, so that the lanes' simultaneous writes lie in as many banks as possible. A
/// slab at the end of a tile with fewer columns than the others is not swizzled: its row is no power of two.
#pragma once

#include "contract/gemm_params.h"
#include "tile/element.cuh"
#include "tile/staged_store.cuh"

namespace kernelwright::tile {

template <DType kOut, bool kTransposed, int kColumns, int kRows = 16>
class OutputSlab {
  static constexpr int kBytes = kBytesOf<kOut>, kTiles = kColumns / 8;
  static constexpr bool kWhole = kColumns == contract::gemm_store_columns(kBytes);
  static_assert(kColumns % 8 == 0 && (kTransposed ? kRows : kColumns) * kBytes % 16 == 0, "rows of whole 16 bytes");
  static_assert(kRows == 16 || (kTransposed && kRows == 8));

 public:
  /// `slab` is aligned to 1024. values[4 tile + 2 r + e]: row lane / 4 + 8 r, column 8 tile + 2 (lane % 4) + e. Of 8
  /// rows, values[2 tile + e].
  template <int kCount>
  __device__ __forceinline__ static void put(uint32_t slab, uint32_t lane, const float (&values)[kCount]) {
    if constexpr (kTransposed && kRows == 8)
      put_transposed_halves(slab, lane, values);
    else if constexpr (kTransposed)
      put_transposed(slab, lane, values);
    else if constexpr (kBytes == 2 && kWhole)
      StagedRows<kOut, kColumns, 0>(slab, lane).put(values, 1.f, 1.f);
    else if constexpr (kBytes == 2)
      put_halves(slab, lane, values);
    else if constexpr (kBytes == 4)
      put_floats(slab, lane, values);
    else
      put_bytes(slab, lane, values);
  }

 private:
  template <int kCount>
  __device__ __forceinline__ static uint32_t word(const float (&values)[kCount], int i) {
    return Element<kOut>::pack(values[2 * i], values[2 * i + 1]);
  }

  template <int kCount>
  __device__ __forceinline__ static void put_halves(uint32_t slab, uint32_t lane, const float (&values)[kCount]) {
    const uint32_t row = slab + lane % 16 * (kColumns * 2), half = lane / 16 * 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      const int i = tile * 2;
      if (tile + 1 < kTiles)
        ptx::stmatrix_x4(row + half + tile * 16,
                         {word(values, i), word(values, i + 1), word(values, i + 2), word(values, i + 3)});
      else
        ptx::stmatrix_x2(row + tile * 16, {word(values, i), word(values, i + 1)});
    }
  }
  template <int kCount>
  __device__ __forceinline__ static void put_floats(uint32_t slab, uint32_t lane, const float (&values)[kCount]) {
    const uint32_t row = lane / 4, pair = lane % 4;
    const uint32_t at = row * (kColumns * 4) + (kWhole ? (pair / 2 ^ row) * 16 + pair % 2 * 8 : pair * 8);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        ptx::st_shared_v2_f32(slab + (kWhole ? at ^ tile * 32 : at + tile * 32) + r * 8 * (kColumns * 4),
                              values[tile * 4 + r * 2], values[tile * 4 + r * 2 + 1]);
  }
  template <int kCount>
  __device__ __forceinline__ static void put_bytes(uint32_t slab, uint32_t lane, const float (&values)[kCount]) {
    const uint32_t row = lane / 4, at = row * kColumns + (kWhole ? row / 2 * 16 : 0) + lane % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        ptx::st_shared_u16(slab + (kWhole ? at ^ tile / 2 * 16 : at + tile / 2 * 16) + tile % 2 * 8 + r * 8 * kColumns,
                           fp8_pair<kOut>(values[tile * 4 + r * 2], values[tile * 4 + r * 2 + 1]));
  }

  /// A row of the box has 8 columns: 16 bytes, or 32.
  template <int kCount>
  __device__ __forceinline__ static void put_transposed_halves(uint32_t slab, uint32_t lane,
                                                               const float (&values)[kCount]) {
    if constexpr (kBytes == 2) {  // lanes 8i.. address matrix i, tile i
      const uint32_t at = slab + lane * 16;
      constexpr int kFours = kTiles / 4 * 4;
#pragma unroll
      for (int tile = 0; tile < kFours; tile += 4)
        ptx::stmatrix_x4_trans(at + tile * 128, {word(values, tile), word(values, tile + 1), word(values, tile + 2),
                                                 word(values, tile + 3)});
        // Of a last tile by itself, the second matrix lies behind the box.
#pragma unroll
      for (int tile = kFours; tile < kTiles; tile += 2)
        ptx::stmatrix_x2_trans(at + tile * 128,
                               {word(values, tile), word(values, tile + 1 < kTiles ? tile + 1 : tile)});
    } else {
      const uint32_t at = slab + lane % 4 * 64 + lane / 4 * 4;
#pragma unroll
      for (int i = 0; i < kTiles * 2; ++i) ptx::st_shared_f32(at + i / 2 * 256 + i % 2 * 32, values[i]);
    }
  }

  template <int kCount>
  __device__ __forceinline__ static void put_transposed(uint32_t slab, uint32_t lane, const float (&values)[kCount]) {
    if constexpr (kBytes == 2) {  // lanes 8i.. address matrix i: columns 0 to 7 of d, columns 8 to 15, then the same
                                  // for 8 rows further
      const uint32_t at = slab + lane / 16 * 256 + lane % 8 * 32 + (lane / 8 % 2 ^ lane % 8 / 4) * 16;
#pragma unroll
      for (int tile = 0; tile < kTiles; tile += 2) {
        const int i = tile * 2;
        if (tile + 1 < kTiles)
          ptx::stmatrix_x4_trans(at + tile * 256,
                                 {word(values, i), word(values, i + 1), word(values, i + 2), word(values, i + 3)});
        else
          ptx::stmatrix_x2_trans(at + tile * 256, {word(values, i), word(values, i + 1)});
      }
    } else if constexpr (kBytes == 4) {
      const uint32_t pair = lane % 4, at = pair * 128 + (lane / 16 ^ pair) * 16 + lane / 4 % 4 * 4;
#pragma unroll
      for (int i = 0; i < kTiles * 4; ++i)
        ptx::st_shared_f32(slab + (at ^ i / 2 % 2 * 32) + i / 4 * 512 + i % 2 * 64, values[i]);
    } else {
      const uint32_t at = slab + lane % 4 * 32 + lane / 4;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint32_t both = fp8_pair<kOut>(values[tile * 4 + e], values[tile * 4 + 2 + e]);
          ptx::st_shared_u8(at + tile * 128 + e * 16, both);
          ptx::st_shared_u8(at + tile * 128 + e * 16 + 8, both >> 8);
        }
    }
  }
};

}  // namespace kernelwright::tile
