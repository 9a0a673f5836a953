/// GEMM in fp64 from operands that are already rounded: the truth that kernels are held to, with the sums that the
/// error bound needs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// Which elements of d are computed: those of `rows` in `columns`, both ascending.
struct GemmSample {
  std::vector<int> rows, columns;
  std::size_t elements() const { return rows.size() * columns.size(); }
};

constexpr int kTileSide = 64;  // of the tiles of d that are judged one by one

/// All of d where that costs at most `budget_operations`; else as large a share of its rows as of its columns: first,
/// last, and seeded random ones of every kTileSide, half of them on the first or last of 16, 64 or 128. Every tile has
/// some.
GemmSample choose_elements(const GemmCase& call, double budget_operations = 8e9, std::uint64_t seed = 0);

/// Some rows and columns of the product, scales and all, before the epilogue. Element (i, j) is d[rows[i], columns[j]],
/// at i * columns.size() + j.
struct GemmReference {
  std::span<const int> rows, columns;
  std::vector<double> sum;        // of s a b, with the scale s of each product
  std::vector<double> magnitude;  // of |s a b|
  std::vector<double> square;     // of (s a b)^2, as it is where a and b are independent of each other
};

/// Computes the elements of `sample` on all cores and hands them to `visit` in pieces, from any thread and in no order.
void compute_reference(const GemmCase& call, const GemmSample& sample,
                       const std::function<void(const GemmReference&)>& visit);

/// What the activation makes of `value`.
double activate(Activation activation, double value);

/// What the epilogue makes of a sum, and what lies on the way: linear = alpha sum + bias, then the activation of it,
/// and added = beta c.
struct EpilogueValue {
  double scaled, bias, linear, activated, added;
  double value() const { return activated + added; }
};
EpilogueValue epilogue_value(const GemmCase& call, int row, int column, double sum);

}  // namespace kernelwright
