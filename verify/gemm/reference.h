/// GEMM in fp64 from operands that are already rounded: the exact results to which kernels are compared, with the sums
/// that the error bound needs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// The elements of the product that are computed: those in `rows` and `columns`, both ascending. With gates, columns
/// are pairs instead: a gate and its up, for each chosen column of d.
struct GemmSample {
  std::vector<int> rows, columns;
  std::size_t elements() const { return rows.size() * columns.size(); }
};

constexpr int kTileSide = 64;  // of the tiles of d that are judged separately

/// Chooses all of d if it costs at most `budget_operations`. Otherwise it chooses an equal share of rows and of
/// columns: the first, the last, and seeded random ones of every kTileSide. Half of the random ones are the first or
/// last of a block of 16, 64 or 128. Every tile has some elements.
GemmSample choose_elements(const GemmCase& call, double budget_operations = 8e9, std::uint64_t seed = 0);

/// Some rows and columns of the product, scales included, before the epilogue. Element (i, j) is d[rows[i],
/// columns[j]], at i * columns.size() + j.
struct GemmReference {
  std::span<const int> rows, columns;
  std::vector<double> sum;        // of s a b, with the scale s of each product
  std::vector<double> magnitude;  // of |s a b|
  std::vector<double> square;     // of (s a b)^2, computed as if a and b were independent of each other
};

/// Computes the elements of `sample` on all cores and passes them to `visit` in pieces, from any thread and in no
/// order.
void compute_reference(const GemmCase& call, const GemmSample& sample,
                       const std::function<void(const GemmReference&)>& visit);

/// The activation of `value`.
double activate(Activation activation, double value);

/// The results of the epilogue for one sum, with intermediate values: linear = alpha sum + bias, the activation of it,
/// and added = beta c.
struct EpilogueValue {
  double scaled, bias, linear, activated, added;
  double value() const { return activated + added; }
};
EpilogueValue epilogue_value(const GemmCase& call, int row, int column, double sum);

/// With gates: the column of the product that holds the gate of a column of d. Its up is kGatePairs further on.
constexpr int gate_column(int column_of_d) {
  return column_of_d / kGatePairs * 2 * kGatePairs + column_of_d % kGatePairs;
}
constexpr int column_of_gate(int column_of_product) {
  return column_of_product / (2 * kGatePairs) * kGatePairs + column_of_product % kGatePairs;
}
/// A gated product of two sums, with intermediate values. Gate and up are alpha sum + bias, clamped where the epilogue
/// says so. The product is `activated`, of the gate, times `factor`, which is up or up + 1.
struct GatedValue {
  double scaled[2], bias[2];
  double gate, activated, factor;
  double value() const { return activated * factor; }
};
GatedValue gated_value(const GemmCase& call, int row, int gate_column, double gate_sum, double up_sum);

}  // namespace kernelwright
