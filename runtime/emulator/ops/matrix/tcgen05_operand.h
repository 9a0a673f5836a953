/// Operands of tcgen05.mma. Turns a matrix descriptor of sm_100 into addresses of 16-byte units, and the elements in
/// these units into floats (PTX ISA "Shared Memory Descriptor", "Shared Memory Layout and Swizzling").
///
/// K-major: a unit holds consecutive k of one row of A (column of B); 8 rows make an atom. MN-major: a unit holds
/// consecutive rows (columns) for one k; 8 k make an atom, or 4 with atoms of 32 bytes. A swizzle permutes address
/// bits, so the swizzles of TMA and of the tensor core agree wherever an operand begins.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_shape.h"
#include "kernelwright/runtime/emulator/ops/matrix/wgmma_operand.h"

namespace kernelwright::emulator {

/// 128 bytes wide with atoms of 32 bytes permutes other units than 128B does.
enum class TensorSwizzle : std::uint8_t { kNone, k32B, k64B, k128B, k128BAtom32B };

struct TensorDescriptor {
  std::uint32_t start = 0;                // byte offset in the CTA's shared memory
  std::uint32_t leading = 0, stride = 0;  // bytes
  std::uint32_t base = 0;                 // bytes by which the swizzle's pattern is shifted: base offset * 128
  bool leading_absolute = false;          // `leading` is where K continues beyond the swizzle's width (sm_103a)
  TensorSwizzle swizzle = TensorSwizzle::kNone;
  bool operator==(const TensorDescriptor&) const = default;
};
/// Throws Fault, naming the field, for a value that the ISA does not allow. `operand`: "A" or "B".
TensorDescriptor decode_tensor_descriptor(std::uint64_t bits, const char* operand, bool sm103);

/// The units of an operand, by `row` and `column` of units. K-major: a row is a row of the matrix, and its columns are
/// the units of K. MN-major: a row is one k, and its columns are size / (elements in a unit) units.
class TensorUnits {
 public:
  /// `size`: the rows of A or columns of B that this CTA has. Throws Fault if the swizzle does not fit the elements.
  TensorUnits(const TensorDescriptor& descriptor, MatrixElement element, bool packed, bool mn_major, std::uint32_t size,
              std::uint32_t k);
  std::uint32_t rows() const { return rows_; }
  std::uint32_t columns() const { return columns_; }
  std::uint32_t address(std::uint32_t row, std::uint32_t column) const {
    const std::uint32_t place = column + first_;  // position in the row of units across an atom
    const std::uint32_t unit = start_ + (row >> row_shift_) * row_group_ + (row & row_mask_) * row_ +
                               (place >> atom_shift_) * column_group_ + (place & atom_mask_) * kUnitBytes;
    return unit ^ ((unit - base_) >> swizzle_shift_ & swizzle_mask_);
  }

 private:
  std::uint32_t rows_, columns_;
  std::uint32_t start_, base_, row_group_, row_, column_group_;
  std::uint32_t first_ = 0;  // K-major, swizzled: the unit of its atom at which the operand begins
  std::uint32_t row_shift_ = 3, row_mask_ = 7, atom_shift_, atom_mask_;
  std::uint32_t swizzle_mask_ = 0, swizzle_shift_ = 3;
};

/// Copies the units to `out`, row after row. Throws Fault if a unit is outside the CTA's shared memory.
void gather_units(const Cta& cta, const TensorUnits& units, std::byte* out);

/// Calls `visit(offset, bytes)` for pieces of shared memory that together are the units.
template <class Visit>
void visit_unit_pieces(const TensorUnits& units, Visit&& visit) {
  for (std::uint32_t row = 0; row < units.rows(); ++row)
    for (std::uint32_t column = 0; column < units.columns();) {
      // A swizzle permutes the units of a piece but not the piece itself, so the lowest and the highest unit determine
      // it.
      std::uint32_t low = units.address(row, column), high = low, count = 1;
      while (column + count < units.columns() && count < 8) {
        const std::uint32_t next = units.address(row, column + count);
        const std::uint32_t new_low = next < low ? next : low, new_high = next > high ? next : high;
        if (new_high - new_low > 7 * kUnitBytes) break;
        low = new_low;
        high = new_high;
        ++count;
      }
      if (high - low == (count - 1) * kUnitBytes) {
        visit(low, count * kUnitBytes);
      } else {
        for (std::uint32_t i = 0; i < count; ++i) visit(units.address(row, column + i), kUnitBytes);
      }
      column += count;
    }
}

/// Converts `count` units of shared memory to floats, elements_per_unit() floats from each.
void widen_units(const std::byte* units, std::uint32_t count, MatrixElement element, bool packed, float* out);
/// Converts `count` cells of tensor memory (of A) to floats. 4- and 6-bit elements have a byte each, unless `packed`.
/// In its byte, a 6-bit element is the low bits and e2m1 is bits 5-2, as tcgen05.cp unpacks them.
void widen_cells(const std::uint32_t* cells, std::uint32_t count, MatrixElement element, bool packed, float* out);

}  // namespace kernelwright::emulator
