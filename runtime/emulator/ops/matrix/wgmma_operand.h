/// Operands of wgmma in shared memory: the fields of a matrix descriptor as addresses of 16-byte units (PTX ISA
/// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "Matrix Descriptor Format", "Strides").
///
/// One wgmma takes 32 bytes of K from every row. K-major: a unit holds consecutive k of one row; 8 rows make an atom.
/// MN-major (16-bit types only): a unit holds 8 consecutive rows (of A) or columns (of B) for one k; 8 k make an atom.
/// Swizzled atoms are as wide as the swizzle. Without a swizzle they are 8 units of 16 bytes, one after another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/emulator/machine/cta.h"

namespace kernelwright::emulator {

inline constexpr std::uint32_t kUnitBytes = 16;

struct MatrixDescriptor {
  std::uint32_t start = 0;                // byte offset in the CTA's shared memory
  std::uint32_t leading = 0, stride = 0;  // bytes
  Swizzle swizzle = Swizzle::kNone;
};
/// Throws Fault for a base offset, which is not modelled.
MatrixDescriptor decode_matrix_descriptor(std::uint64_t bits);

/// The units of an operand, by `row` and `column` of units. K-major: a row is a row of the matrix, with two units.
/// MN-major: a row is one of 16 k, with `size` / 8 units.
class OperandUnits {
 public:
  /// `size`: 64 for A, n for B.
  OperandUnits(const MatrixDescriptor& descriptor, bool mn_major, std::uint32_t size);
  std::uint32_t rows() const { return mn_major_ ? 16 : size_; }
  std::uint32_t columns() const { return mn_major_ ? size_ / 8 : 2; }
  std::uint32_t address(std::uint32_t row, std::uint32_t column) const {
    const std::uint32_t unit = start_ + (row >> 3) * row_group_ + (row & 7) * row_ +
                               (column >> atom_shift_) * column_group_ + (column & atom_mask_) * kUnitBytes;
    return unit ^ (unit >> 3 & swizzle_mask_);
  }

 private:
  std::uint32_t start_, row_group_, row_, column_group_, swizzle_mask_, size_;
  std::uint32_t atom_shift_, atom_mask_;  // number of units across an atom, a power of two
  bool mn_major_;
};

/// Copies the units to `out`, row after row. Throws Fault if a unit is outside the CTA's shared memory.
void gather_units(const Cta& cta, const OperandUnits& units, std::byte* out);

/// Calls `visit(offset, bytes)` for contiguous pieces that together are the units. Visits the pieces whose number %
/// `parts` == `part`.
template <class Visit>
void visit_unit_pieces(const OperandUnits& units, std::uint32_t part, std::uint32_t parts, Visit&& visit) {
  std::uint32_t number = 0;
  for (std::uint32_t row = 0; row < units.rows(); ++row)
    for (std::uint32_t column = 0; column < units.columns();) {
      // A swizzle permutes the units of a piece but not the piece itself, so the lowest and the highest unit determine
      // it.
      std::uint32_t low = units.address(row, column), high = low, count = 1;
      while (column + count < units.columns() && count < 8) {
        const std::uint32_t next = units.address(row, column + count);
        low = next < low ? next : low;
        high = next > high ? next : high;
        ++count;
      }
      const bool contiguous = high - low == (count - 1) * kUnitBytes;
      if (number++ % parts == part) {
        if (contiguous) {
          visit(low, count * kUnitBytes);
        } else {
          for (std::uint32_t i = 0; i < count; ++i) visit(units.address(row, column + i), kUnitBytes);
        }
      }
      column += count;
    }
}

}  // namespace kernelwright::emulator
