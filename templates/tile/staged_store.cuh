/// Accumulator rows to global memory through shared memory: a warp stores whole lines of 128 bytes, four per
/// instruction. Straight from the registers, a warp would store eight half lines, and the load-store unit takes as long
/// for a half line as for a whole one. Short sequences store often, so the difference matters for them.
#pragma once

#include "contract/shared_slab.h"
#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright::tile {

/// A warp's 16 rows of a wgmma accumulator. `stage` is the shared address of the warp's first row. Rows lie in slabs
/// (contract/shared_slab.h) of kRowBytes per row, which are kSlabBytes apart. No other warp touches these rows.
template <DType kOut, int kColumns, uint32_t kSlabBytes, int kRowBytes = 128>
class StagedRows {
  static constexpr int kTiles = kColumns / 8, kLines = (kColumns + 63) / 64;  // lines of 128 bytes
  static constexpr int kPieces = kRowBytes / 16, kSwizzleBytes = kPieces == 1 ? 0 : kRowBytes;
  static_assert(kColumns % 8 == 0, "tiles of 8 columns");
  uint32_t stage_;
  uint32_t lane_;

 public:
  static constexpr int kRowsAtOnce = 4, kRounds = 16 / kRowsAtOnce;

  __device__ StagedRows(uint32_t stage, uint32_t lane) : stage_(stage), lane_(lane) {}

  /// Registers to shared memory, by stmatrix. Rows l/4 are multiplied by `upper`, rows l/4 + 8 by `lower`. Before a
  /// lane reads them, the lanes must synchronise.
  template <int kCount>
  __device__ __forceinline__ void put(const float (&accumulator)[kCount], float upper, float lower) const {
    const auto word = [&](int tile, int r) {
      const int at = 4 * tile + 2 * r;
      const float factor = r == 0 ? upper : lower;
      return Element<kOut>::pack(accumulator[at] * factor, accumulator[at + 1] * factor);
    };
    // Lanes 8i.. address matrix i: rows 0 to 7 and then 8 to 15 of one tile, then those of the next tile.
    const uint32_t row = stage_ + lane_ % 16 * kRowBytes;
    const auto place = [&](int tile) {  // place of a pair of tiles, or of a single tile
      if constexpr (kPieces == 1) {
        return row + (tile + lane_ / 16) * kSlabBytes;
      } else {
        const uint32_t chunk = (lane_ / 16 ^ contract::swizzle_of_row(lane_, kSwizzleBytes)) * 16;
        return row + (chunk ^ tile % kPieces * 16) + tile / kPieces * kSlabBytes;
      }
    };
#pragma unroll
    for (int tile = 0; tile + 2 <= kTiles; tile += 2) {
      const uint32_t words[4] = {word(tile, 0), word(tile, 1), word(tile + 1, 0), word(tile + 1, 1)};
      ptx::stmatrix_x4(place(tile), words);
    }
    if constexpr (kTiles % 2 != 0) {
      constexpr int kLast = kTiles - 1;
      const uint32_t words[2] = {word(kLast, 0), word(kLast, 1)};
      ptx::stmatrix_x2(place(kLast), words);
    }
  }

  /// The row of which this lane stores a part in a round.
  __device__ int row(int round) const { return static_cast<int>(lane_ / 8) + round * kRowsAtOnce; }

  /// Stores this part to `to`, the row in global memory, aligned to 16 bytes.
  __device__ __forceinline__ void store(int round, uint16_t* to, bool exists) const {
    const uint32_t row = static_cast<uint32_t>(this->row(round)), chunk = lane_ % 8;
    const uint32_t from = stage_ + row * kRowBytes + chunk / kPieces * kSlabBytes +
                          (chunk % kPieces ^ contract::swizzle_of_row(row, kSwizzleBytes)) * 16;
#pragma unroll
    for (int line = 0; line < kLines; ++line) {
      const int column = line * 64 + static_cast<int>(chunk) * 8;
      if (exists && (line + 1 < kLines || kColumns % 64 == 0 || column < kColumns))
        ptx::st_global_v4(to + column, ptx::ld_shared_v4(from + line * (8 / kPieces) * kSlabBytes));
    }
  }
};

}  // namespace kernelwright::tile
