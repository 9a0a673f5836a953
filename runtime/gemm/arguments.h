/// The operands of a GEMM's launch, and the rules that its arguments obey.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/gemm/launch.h"
#include "kernelwright/runtime/launch/matrix.h"

namespace kernelwright::detail {

/// Rows of operands that are read through tensor maps begin at multiples of so many bytes.
inline constexpr int kRowAlignment = 16;

/// Of block-scaled operands: atoms of scales of 128 rows, side by side along k.
std::int64_t scale_atoms_of_row(std::int64_t k, DType dtype) noexcept;

/// The operands with the contiguous strides filled in.
struct GemmMatrices {
  Matrix a, b, c, d;
  Matrix scale_d;  // of all groups; no rows where the epilogue does not quantise
  std::int64_t scale_a_stride = 0, scale_b_stride = 0;
};
/// Whether rows of a would be gathered from a matrix that has none. Then a and the scales of its rows may be null, and
/// every row is one of zeros.
bool has_no_sources(const LoadedGemm& kernel, const GemmTensors& tensors) noexcept;
GemmMatrices matrices_of(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors) noexcept;

/// Every rule that is broken, led by "/tensors".
std::vector<Violation> broken_rules(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                                    const GemmMatrices& matrices);
/// Whether one is. As cheap as can be.
bool surely_fine(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                 const GemmMatrices& matrices) noexcept;

}  // namespace kernelwright::detail
