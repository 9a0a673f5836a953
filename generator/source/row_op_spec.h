/// The Spec of row_op: spec.h has what a Spec is.
#pragma once

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

/// row_op.
struct RowOpSpec {
  static constexpr Family family = Family::kPortable;  // the only one; no part of the text
  Arch arch = Arch::kSm80;
  DType in = DType::kBf16, out = DType::kBf16;
  int width = 8;
  bool adds = false, gated = false, merges = false;
  int heads = 1;
  Activation activation = Activation::kNone;
  int pairs = 0;
  bool clamped = false;
  NormKind norm = NormKind::kNone;
  bool norm_weight = false;
  int weight_offset = 0;
  ScaleKind scales = ScaleKind::kNone;
  bool scale_columns = false, power_of_two = false, has_least = false;
  bool round_up = false;  // scales of blocks with which no element saturates
  int vector = 8, threads_per_row = 32, ctas_per_row = 1, rows_per_cta = 1;
  bool operator==(const RowOpSpec&) const = default;
  /// Threads of a CTA.
  int threads() const { return threads_per_row * rows_per_cta; }
  /// Whether scales lie in the atoms of contract/block_scales.h.
  bool has_atoms() const { return is_block_scaled(out); }
};
template <class Visitor>
void visit_fields(RowOpSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  field("in", spec.in, any{}, "dtype of what is read, of the residual and of the weights");
  field("out", spec.out, any{}, "dtype of the rows that are written");
  field("width", spec.width, any{}, "elements of a row that is written");
  field("adds", spec.adds, any{}, "a residual is added and written back");
  field("gated", spec.gated, any{}, "rows have gates and ups");
  field("merges", spec.merges, any{}, "two rows are merged, each head by its LSEs");
  field("heads", spec.heads, any{}, "heads of a row that have an LSE each");
  field("activation", spec.activation, any{}, "of the gates");
  field("pairs", spec.pairs, any{}, "gates that lie side by side, ahead of as many ups; 0: all of the row");
  field("clamped", spec.clamped, any{}, "gates and ups are clamped");
  field("norm", spec.norm, any{}, "norm of the row");
  field("norm_weight", spec.norm_weight, any{}, "weights multiply the result of the norm");
  field("weight_offset", spec.weight_offset, any{}, "what is added to a weight");
  field("scales", spec.scales, any{}, "granularity of the scales");
  field("scale_columns", spec.scale_columns, any{}, "scales of a block of all rows lie side by side");
  field("power_of_two", spec.power_of_two, any{}, "scales are powers of two");
  field("has_least", spec.has_least, any{}, "the largest magnitude has a bound from below");
  // Part of the text only where it is not the default of templates/kernels/row_op.cu.
  if (spec.round_up) field("round_up", spec.round_up, any{}, "no element of a block saturates");
  field("vector", spec.vector, any{}, "neighbouring elements that a thread has");
  field("threads_per_row", spec.threads_per_row, any{}, "threads of a CTA that share a row");
  field("ctas_per_row", spec.ctas_per_row, any{}, "CTAs that share a row");
  field("rows_per_cta", spec.rows_per_cta, any{}, "rows of a CTA");
}

}  // namespace kernelwright
