/// A [rows][cols] tile of 16-bit elements in shared memory. In its layout, neither the copies that fill the tile nor
/// the ldmatrix that reads it meets a bank conflict.
///
/// Columns are cut into strips of at most kSwizzleBytes, and the strips are stored one after the other. Within a strip
/// of 2^s pieces of 16 bytes, piece p of row r stands at p XOR (r * 2^s / 8) mod 2^s. This is the swizzle of the TMA
/// unit: every 8 rows of one column of pieces touch all 32 banks. A width that is no multiple of the strip ends in
/// narrower strips (80 = 64 + 16), so no head dim is padded. Without a swizzle, each column of pieces is its own strip.
#pragma once

#include "ptx/memory.cuh"

namespace kernelwright::tile {

template <int kRows, int kCols, int kSwizzleBytes>
struct SharedTile {
  static constexpr int rows = kRows, cols = kCols;
  static constexpr int pieces = kCols / 8;  // 16-byte pieces in a row
  static constexpr int bytes = kRows * kCols * 2;
  static_assert(kCols % 16 == 0, "one k-step of the tensor cores is 16 elements");

  static constexpr int widest = kSwizzleBytes >= 32 ? kSwizzleBytes / 16 : 1;  // pieces of a full strip
  static constexpr bool even_strips = pieces % widest == 0;                    // no strip is narrower
  static constexpr int strip_bytes = widest * 16;                              // bytes of one row in a full strip

  /// Whether columns [0, n), [n, 2n), ... are whole full strips, and the bytes from one such group to the next.
  __host__ __device__ static constexpr bool whole_strips(int n) { return even_strips && n % (widest * 8) == 0; }
  __host__ __device__ static constexpr int strips_bytes(int n) { return kRows * n * 2; }

  struct Strip {
    int start, pieces;
  };
  __host__ __device__ static constexpr Strip strip_of(int piece) {
    if constexpr (even_strips) return {piece / widest * widest, widest};
    constexpr int full = pieces / widest * widest;
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

  /// Addresses for ldmatrix. A lane reads row `row` + 16 * row_block and piece 2 * step + half. Once loops are
  /// unrolled, `step` and `row_block` are constants, and an address is one XOR with a constant plus an immediate.
  class Fragments {
   public:
    __device__ Fragments(int row, int half) : row_(row), half_(half), lane_(lane_offset(row, half, widest)) {}

    /// The base of the tile at `tile`, aligned to 1024 bytes. It is opaque: otherwise the compiler would keep every XOR
    /// of a loop in a register.
    __device__ uint32_t base(uint32_t tile) const { return ptx::opaque(tile + lane_); }

    __device__ uint32_t address(uint32_t base, int row_block, int step) const {
      return at(base, row_block * 16, 2 * step);
    }

    /// For stores of accumulators: the lane's row + 8 * row_eighth, piece `piece`; `half` is 0.
    __device__ uint32_t piece_address(uint32_t base, int row_eighth, int piece) const {
      return at(base, row_eighth * 8, piece);
    }

   private:
    // 8 rows further on the XOR stays as it is: 8 * pieces / 8 is a multiple of `pieces`.
    __device__ uint32_t at(uint32_t base, int rows_after, int piece) const {
      const Strip strip = strip_of(piece);
      const int before = strip.start * kRows + rows_after * strip.pieces;  // in units of 16 bytes
      const int within = (piece - strip.start) * 16;
      if constexpr (widest == 1) return base + (before + half_ * kRows) * 16;
      if constexpr (even_strips) return (base ^ within) + before * 16;
      if (strip.pieces == 1) return base + (before + half_ * kRows) * 16;
      if (strip.pieces == widest) return (base ^ within) + before * 16;
      return base - lane_ + (lane_offset(row_, half_, strip.pieces) ^ within) + before * 16;
    }

    __device__ static uint32_t lane_offset(int row, int half, int pieces) {
      if (pieces == 1) return row * 16;
      return row * pieces * 16 + ((half ^ ((row * pieces / 8) & (pieces - 1))) * 16);
    }
    int row_, half_;
    uint32_t lane_;
  };
};

}  // namespace kernelwright::tile
