/// Operands in shared memory, in one place for the host and the kernels of attention and GEMM. This file says what a
/// box of TMA brings, where its rows lie, and how the matrix descriptors of wgmma and tcgen05 describe them. All of it
/// follows from the swizzle.
///
/// A box has rows of W bytes, one behind the other, from an address that is a multiple of 1024. W is the swizzle's
/// width, 128, 64 or 32 bytes; without a swizzle it is 16, a row of the tensor cores' smallest matrix. The swizzle
/// moves pieces of 16 bytes within 8 rows. Its pattern depends on the address alone, so a product may begin at every
/// eighth row of a tile.
///
/// A tile that is wider than W is several such boxes, one behind the other. Attention calls each of them a slab. A GEMM
/// calls them parts of a slab: its slab is everything that a slot has of an operand.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

constexpr int32_t kSwizzleRows = 8;  // rows after which the widest swizzle repeats, and at which a box may begin
constexpr int32_t kPieceBytes = 16;  // the unit that a swizzle moves
constexpr int32_t kStepBytes = 32;   // bytes of K that one wgmma or tcgen05.mma takes of any operand

/// W. `swizzle_bytes`: 128, 64, 32, or 0 for none.
constexpr int32_t slab_width(int32_t swizzle_bytes) { return swizzle_bytes == 0 ? kPieceBytes : swizzle_bytes; }

/// The swizzle of row `row`: piece p of the row stands at p XOR this value.
constexpr uint32_t swizzle_of_row(uint32_t row, int32_t swizzle_bytes) {
  const uint32_t pieces = static_cast<uint32_t>(slab_width(swizzle_bytes) / kPieceBytes);
  return row % kSwizzleRows * pieces / kSwizzleRows;
}

/// Slabs of W bytes that one step of a product reads: more than one where W is narrower than the step.
constexpr int32_t slabs_of_step(int32_t swizzle_bytes) {
  return slab_width(swizzle_bytes) < kStepBytes ? kStepBytes / slab_width(swizzle_bytes) : 1;
}

/// Slabs of W bytes that hold `depth` elements of a row, rounded up to whole steps. Bytes past the depth are zeros.
constexpr int32_t slabs_of(int32_t depth, int32_t element_bytes, int32_t swizzle_bytes) {
  const int32_t together = slabs_of_step(swizzle_bytes), bytes = together * slab_width(swizzle_bytes);
  return (depth * element_bytes + bytes - 1) / bytes * together;
}

/// Columns of a tile of 16-bit elements in shared memory: whole slabs.
constexpr int32_t padded_depth(int32_t depth, int32_t swizzle_bytes) {
  return slabs_of(depth, 2, swizzle_bytes) * slab_width(swizzle_bytes) / 2;
}

/// What a product reads: `rows` rows of m or n, and a depth of k.
///   K-major   k is innermost in memory. The parts are strips of [rows][W bytes of k]; a copy brings a strip, or some
///             rows of one.
///   MN-major  m or n is innermost. The parts are boxes of [depth][W bytes of m or n]; a copy brings a box, or some k
///             of one.
struct SharedSlab {
  int32_t bytes;          // bytes of k in the slab
  int32_t swizzle_bytes;  // 0: none
  int32_t element_bits;
  int32_t rows;
  bool mn_major;

  constexpr int32_t width() const { return slab_width(swizzle_bytes); }
  /// Elements of k, and elements in a row of a part.
  constexpr int32_t depth() const { return bytes * 8 / element_bits; }
  constexpr int32_t width_elements() const { return width() * 8 / element_bits; }
  constexpr int32_t total_bytes() const { return rows * bytes; }

  /// How many parts, and bytes from one to the next.
  constexpr int32_t parts() const { return total_bytes() / part_bytes(); }
  constexpr int32_t part_bytes() const { return (mn_major ? depth() : rows) * width(); }
  /// Bytes of the rows after which the swizzle's pattern repeats. Parts, and shares of them, begin at multiples.
  constexpr int32_t pattern_bytes() const { return kSwizzleRows * width(); }

  // ---- a matrix descriptor (PTX ISA "Matrix Descriptors", "Strides"; contract/tcgen05_descriptor.h) ----

  /// K-major with a swizzle, the hardware does not read it. K-major without one, it leads to the second half of a step.
  constexpr int32_t leading_bytes() const {
    if (swizzle_bytes > 0) return mn_major ? part_bytes() : 0;
    return mn_major ? pattern_bytes() : part_bytes();
  }
  constexpr int32_t stride_bytes() const { return swizzle_bytes > 0 || !mn_major ? pattern_bytes() : part_bytes(); }

  /// An instruction takes 32 bytes of k, or as many rows of k as 32 bytes have elements. step_offset(): bytes to the
  /// start of step `step`.
  constexpr int32_t steps() const { return bytes / kStepBytes; }
  constexpr int32_t step_offset(int32_t step) const {
    const int32_t k = step * kStepBytes;  // bytes
    return mn_major ? k * 8 / element_bits * width() : k / width() * part_bytes() + k % width();
  }
  /// Whether all steps are equally far apart.
  constexpr bool even_steps() const {
    for (int32_t step = 2; step < steps(); ++step)
      if (step_offset(step) != step * step_offset(1)) return false;
    return true;
  }
  /// Bytes from row 0 to row `row`, where a product may begin. `row` is a multiple of 8, and MN-major also of the
  /// width.
  constexpr int32_t row_offset(int32_t row) const {
    return mn_major ? row / width_elements() * part_bytes() : row * width();
  }
};

}  // namespace kernelwright::contract
