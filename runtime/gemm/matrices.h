/// The operands of a GEMM's launch as matrices, with the contiguous strides filled in.
#pragma once

#include <cstdint>

#include "kernelwright/runtime/gemm/launch.h"
#include "kernelwright/runtime/launch/matrix.h"

namespace kernelwright::detail {

struct GemmMatrices {
  Matrix a, b, c, d;
  /// Of all groups; no rows where the epilogue does not quantise. Of a block-scaled d its elements are bytes, and a row
  /// has the atoms of 128 rows of d, or the scales of one.
  Matrix scale_d;
  std::int64_t scale_d_stride = 0;  // of a block-scaled d: atoms, or bytes
  Matrix squares, squares_a;        // without rows where the epilogue does not have them
  std::int64_t scale_a_stride = 0, scale_b_stride = 0;
};
GemmMatrices matrices_of(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors) noexcept;

/// Of block-scaled operands: atoms of scales of 128 rows, side by side along k.
std::int64_t scale_atoms_of_row(std::int64_t k, DType dtype) noexcept;
/// Rows of atoms of the scales of `m` rows of a or d: with groups the most that there may be.
std::int64_t scale_atom_rows(const GemmGroups& groups, std::int64_t m) noexcept;
/// The same of n rows of each group's b.
std::int64_t scale_atom_rows_of_b(const GemmGroups& groups, std::int64_t n) noexcept;
/// Rows of a whose scales of blocks lie side by side.
std::int64_t scaled_rows(const LoadedGemm& kernel, std::int64_t m, std::int64_t source_rows) noexcept;
/// Whether each group has scales of its own of blocks of a.
bool own_scales(const LoadedGemm& kernel) noexcept;
/// Whether rows of a would be gathered from a matrix that has none. Then a and the scales of its rows may be null, and
/// every row is one of zeros. Or whether slices of k are those of a and b without rows: both may be null.
bool has_no_sources(const LoadedGemm& kernel, const GemmTensors& tensors) noexcept;

}  // namespace kernelwright::detail
