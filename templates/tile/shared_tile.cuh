/// A [rows][cols] tile of 16-bit elements in shared memory, laid out so that neither the copies that fill it nor the ldmatrix
/// that reads it meets a bank conflict.
///
/// Columns are cut into strips of at most kSwizzleBytes, the strips stored one after the other. Within a strip of 2^s pieces
/// of 16 bytes, piece p of row r stands at p XOR (r * 2^s / 8) mod 2^s: the swizzle of the TMA unit, so that every 8 rows of one
/// column of pieces touch all 32 banks. A width that is no multiple of the strip ends in narrower strips (80 = 64 + 16), so
/// that no head dim is padded. Without a swizzle each column of pieces is a strip of its own.
#pragma once

#include "ptx/memory.cuh"

namespace kernelwright::tile {

template <int kRows, int kCols, int kSwizzleBytes>
struct SharedTile {
  static constexpr int rows = kRows, cols = kCols;
  static constexpr int pieces = kCols / 8;  // of 16 bytes, in a row
  static constexpr int bytes = kRows * kCols * 2;
  static_assert(kCols % 16 == 0, "one k-step of the tensor cores is 16 elements");

  struct Strip {
    int start, pieces;
  };
  __host__ __device__ static constexpr Strip strip_of(int piece) {
    constexpr int widest = kSwizzleBytes >= 32 ? kSwizzleBytes / 16 : 1;
    const int full = pieces / widest * widest;
    if (piece < full) return {piece / widest * widest, widest};
    int start = full;
    for (int width = widest / 2; width > 0; width /= 2) {
      if (start + width > pieces) continue;
      if (piece < start + width) return {start, width};
      start += width;
    }
    return {start, 1};
  }

  /// Byte offset of 16-byte piece `piece` of row `row`.
  __device__ static uint32_t offset(int row, int piece) {
    const Strip strip = strip_of(piece);
    const int swizzled = (piece - strip.start) ^ ((row * strip.pieces / 8) & (strip.pieces - 1));
    return static_cast<uint32_t>((strip.start * kRows + row * strip.pieces + swizzled) * 16);
  }

  /// Address for an ldmatrix whose lane reads row `row` + 16 * row_block (row < 16 is the lane's own) and piece 2 * step + half.
  /// `step` and `row_block` are constants once loops unroll: what is left at run time is one XOR.
  __device__ static uint32_t fragment_address(uint32_t tile, int row, int half, int row_block, int step) {
    const Strip strip = strip_of(2 * step);
    if (strip.pieces == 1) return tile + ((2 * step + half) * kRows + row_block * 16 + row) * 16;
    // row_block * 16 rows leave the XOR as it is: 16 * strip.pieces / 8 is a multiple of strip.pieces.
    const uint32_t lane = row * strip.pieces * 16 + ((half ^ ((row * strip.pieces / 8) & (strip.pieces - 1))) * 16);
    return tile + (lane ^ ((2 * step - strip.start) * 16)) + (strip.start * kRows + row_block * 16 * strip.pieces) * 16;
  }
};

}  // namespace kernelwright::tile
