/// A slab of an operand in shared memory, said once: what TMA brings of it at a time, where its parts lie, and what the
/// matrix descriptors of wgmma and tcgen05 say of them. All of it follows from the slab's depth and its swizzle.
///
/// A slab has `rows` rows of m or n and some depth of k. The swizzle's width W is 128, 64 or 32 bytes; without a
/// swizzle it is 16, a row of the tensor cores' smallest matrix.
///   K-major   k is innermost in memory. The slab is depth / W strips of [rows][W bytes of k], one behind the other; a
///             copy brings a strip, or some rows of one.
///   MN-major  m or n is innermost, 16-bit elements. The slab is boxes of [depth][W bytes of m or n], one behind the
///             other; a copy brings a box, or some k of one.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

struct SharedSlab {
  int32_t bytes;          // of k in it: 128, 64 or 32
  int32_t swizzle_bytes;  // 0: none
  int32_t element_bits;
  int32_t rows;
  bool mn_major;

  /// Of a row of a strip or of a box: the swizzle's, or 16.
  constexpr int32_t width() const { return swizzle_bytes > 0 ? swizzle_bytes : 16; }
  /// Elements of k, and elements in a row of a strip or of a box.
  constexpr int32_t depth() const { return bytes * 8 / element_bits; }
  constexpr int32_t width_elements() const { return width() * 8 / element_bits; }
  constexpr int32_t total_bytes() const { return rows * bytes; }

  /// Strips, or boxes; and bytes from one to the next.
  constexpr int32_t parts() const { return total_bytes() / part_bytes(); }
  constexpr int32_t part_bytes() const { return (mn_major ? depth() : rows) * width(); }
  /// Bytes of eight rows of a part: where the swizzle's pattern begins anew. Parts, and shares of them, begin there.
  constexpr int32_t pattern_bytes() const { return 8 * width(); }

  // ---- a matrix descriptor (ptx/wgmma.cuh, contract/tcgen05_descriptor.h) ----

  constexpr int32_t leading_bytes() const {
    if (swizzle_bytes > 0) return mn_major ? part_bytes() : 0;
    return mn_major ? pattern_bytes() : part_bytes();
  }
  constexpr int32_t stride_bytes() const { return swizzle_bytes > 0 || !mn_major ? pattern_bytes() : part_bytes(); }

  /// An instruction takes 32 bytes of k, or 16 rows of 16-bit elements. Where number `step` begins, bytes.
  constexpr int32_t steps() const { return bytes / 32; }
  constexpr int32_t step_offset(int32_t step) const {
    return mn_major ? step * 16 * width() : step * 32 / width() * part_bytes() + step * 32 % width();
  }
  /// Whether steps are equally far apart.
  constexpr bool even_steps() const {
    for (int32_t step = 2; step < steps(); ++step)
      if (step_offset(step) != step * step_offset(1)) return false;
    return true;
  }
  /// Bytes from row 0 to row `row`, where a product may begin: a multiple of 8, and MN-major of the width.
  constexpr int32_t row_offset(int32_t row) const {
    return mn_major ? row / width_elements() * part_bytes() : row * width();
  }
};

}  // namespace kernelwright::contract
