/// One tcgen05.mma: the operands of the issuing thread, where it reads and writes, and the multiplication itself.
#pragma once

#include <array>
#include <cstdint>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/tensor_memory.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_operand.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_shape.h"

namespace kernelwright::emulator {

struct Tcgen05Mma {
  Tcgen05Form form;
  Tcgen05Shape shape;
  Tcgen05Layout layout;
  /// The CTAs that take part: one, or the pair in the order of their ranks. Rows and columns are in the same order.
  std::array<Cta*, 2> ctas{};
  std::uint32_t num_ctas = 1;
  TensorAddress d, a, scale_a, scale_b;  // `a` is used if A is in tensor memory
  TensorDescriptor a_shared, b_shared;
  bool accumulate = false;
  std::array<std::uint32_t, 8> disabled{};  // disable-output-lane, for one CTA after the other

  std::uint32_t k_cells() const { return shape.packed_4bit ? shape.k / 8 : 8; }  // cells of A, per lane
  std::uint32_t num_scales() const { return form.block_scaled() ? shape.k / form.scale_block : 0; }
  /// Units of A and B in one CTA's shared memory.
  TensorUnits a_units() const;
  TensorUnits b_units() const;
  std::uint32_t columns_per_cta() const { return shape.n / num_ctas; }       // columns of B in one CTA's shared memory
  std::uint32_t columns_per_fold() const { return shape.n / layout.folds; }  // columns of D, per lane
  bool lane_disabled(std::uint32_t cta, std::uint32_t lane) const {
    return (disabled[cta * 4 + lane / 32] >> (lane % 32) & 1) != 0;
  }

  /// Calls `visit(block)` for the cells of each kind in one CTA's tensor memory.
  template <class Visit>
  void visit_d(Visit&& visit) const {
    visit_lanes(d, columns_per_fold(), visit);
  }
  template <class Visit>
  void visit_a(Visit&& visit) const {
    if (form.has(Tcgen05Form::kATensor)) visit_lanes(a, k_cells(), visit);
  }
  template <class Visit>
  void visit_scales(Visit&& visit) const {
    if (!form.block_scaled()) return;
    visit_scales_of(scale_a, layout.rows, shape.scale_a_id, visit);
    visit_scales_of(scale_b, shape.n, shape.scale_b_id, visit);
  }
  /// Columns from a cell with four scales of a row of A (or column of B) to the cell with its next four, for `size`
  /// rows or columns.
  static std::uint32_t scale_group(std::uint32_t size) { return size <= 4 * kTensorQuadrant ? 4 : 8; }

 private:
  /// A column has a scale for a row in each lane, in all four quarters.
  template <class Visit>
  void visit_scales_of(TensorAddress at, std::uint32_t size, std::uint32_t id, Visit& visit) const {
    const std::uint32_t whole = size / kTensorQuadrant, rest = size % kTensorQuadrant;
    for (std::uint32_t first = id / 4; first * 4 < id + num_scales(); ++first) {
      const std::uint32_t column = at.column + first * scale_group(size);
      if (whole != 0) visit(TensorBlock{0, kTensorLanes, column, whole});
      for (std::uint32_t quarter = 0; rest != 0 && quarter < 4; ++quarter)
        visit(TensorBlock{quarter * kTensorQuadrant, rest, column + whole, 1});
    }
  }
  template <class Visit>
  void visit_lanes(TensorAddress at, std::uint32_t columns, Visit& visit) const {
    if (layout.scattered) {
      for (std::uint32_t quadrant = 0; quadrant < 4; ++quadrant)
        visit(TensorBlock{at.lane + quadrant * kTensorQuadrant, 16, at.column, columns});
    } else {
      visit(TensorBlock{0, kTensorLanes, at.column, columns});
    }
  }
};

/// Throws Fault for an operand at a place that is not allowed. Either the layout does not begin at its lane, or its
/// columns are not allocated in one of the CTAs.
void check_places(const Tcgen05Mma& mma);

/// Reads the operands and updates D. Throws Fault for operands outside shared memory, and for scale factors that differ
/// between the four lane quarters.
void perform(const Tcgen05Mma& mma);

}  // namespace kernelwright::emulator
