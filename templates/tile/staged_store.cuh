/// Accumulator rows to global memory by way of shared memory: whole lines of 128 bytes leave a warp, four to an
/// instruction. Straight from the registers a warp writes eight half lines, and the load-store unit takes as long for a
/// half as for a whole: short sequences, which store often, feel it.
#pragma once

#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright::tile {

/// A warp's 16 rows of a wgmma accumulator. `stage` is the shared address of its first row: rows of 128 bytes, slabs of
/// 64 columns kSlabBytes apart, each aligned to 1024 bytes and swizzled as wgmma has it. Nobody else touches them.
template <DType kOut, int kColumns, uint32_t kSlabBytes>
class StagedRows {
  static constexpr int kTiles = kColumns / 8, kSlabs = (kColumns + 63) / 64;
  static_assert(kColumns % 8 == 0, "tiles of 8 columns");
  uint32_t stage_;
  uint32_t lane_;

 public:
  static constexpr int kRowsAtOnce = 4, kRounds = 16 / kRowsAtOnce;

  __device__ StagedRows(uint32_t stage, uint32_t lane) : stage_(stage), lane_(lane) {}

  /// Registers to shared memory, by stmatrix alone; rows l/4 are times `upper`, rows l/4 + 8 times `lower`. Whoever
  /// reads them next has yet to meet the other lanes.
  template <int kCount>
  __device__ __forceinline__ void put(const float (&accumulator)[kCount], float upper, float lower) const {
    const auto word = [&](int tile, int r) {
      const int at = 4 * tile + 2 * r;
      const float factor = r == 0 ? upper : lower;
      return Element<kOut>::pack(accumulator[at] * factor, accumulator[at + 1] * factor);
    };
    // Lanes 8i.. address matrix i: rows 0 to 7, then 8 to 15, of one tile and then of the next.
    const uint32_t row = stage_ + lane_ % 16 * 128, chunk = (lane_ / 16 ^ lane_ % 8) * 16;
#pragma unroll
    for (int tile = 0; tile + 2 <= kTiles; tile += 2) {
      const uint32_t words[4] = {word(tile, 0), word(tile, 1), word(tile + 1, 0), word(tile + 1, 1)};
      ptx::stmatrix_x4(row + (chunk ^ tile % 8 * 16) + tile / 8 * kSlabBytes, words);
    }
    if constexpr (kTiles % 2 != 0) {
      constexpr int kLast = kTiles - 1;
      const uint32_t words[2] = {word(kLast, 0), word(kLast, 1)};
      ptx::stmatrix_x2(row + (chunk ^ kLast % 8 * 16) + kLast / 8 * kSlabBytes, words);
    }
  }

  /// The row that this lane stores a part of in a round.
  __device__ int row(int round) const { return static_cast<int>(lane_ / 8) + round * kRowsAtOnce; }

  /// That part to `to`, the row in global memory, aligned to 16 bytes.
  __device__ __forceinline__ void store(int round, uint16_t* to, bool exists) const {
    const uint32_t row = static_cast<uint32_t>(this->row(round)), chunk = lane_ % 8;
    const uint32_t from = stage_ + row * 128 + (chunk ^ row % 8) * 16;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const int column = slab * 64 + static_cast<int>(chunk) * 8;
      if (exists && (slab + 1 < kSlabs || kColumns % 64 == 0 || column < kColumns))
        ptx::st_global_v4(to + column, ptx::ld_shared_v4(from + slab * kSlabBytes));
    }
  }
};

}  // namespace kernelwright::tile
