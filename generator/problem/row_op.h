/// A chain of steps over each row of a matrix: the problem, its schedule and its shapes.
#pragma once

#include <string>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

struct RowOpDTypes {
  DType in = DType::kBf16, out = DType::kBf16;
  bool operator==(const RowOpDTypes&) const = default;
};
template <class Visitor>
void visit_fields(RowOpDTypes& dtypes, Visitor&& field) {
  field("in", dtypes.in, any{}, "what is read, the residual that is written, and the weights: f16, bf16 or f32");
  field("out", dtypes.out, any{}, "rows as they are written; mxfp8, mxfp4 and nvfp4 come with their scales");
}

/// activation(gate) * up. Clamped: g = min(gate, limit) and u = up within +-limit give
/// (u + 1) * g / (1 + exp(-alpha g)).
struct RowGate {
  Activation activation = Activation::kSilu;
  int pairs = 0;
  bool clamped = false;
  double alpha = 1.702;  // run-time parameters
  double limit = 7;
  bool operator==(const RowGate&) const = default;
};
template <class Visitor>
void visit_fields(RowGate& gate, Visitor&& field) {
  field("activation", gate.activation, any{}, "what becomes of the gate");
  field("pairs", gate.pairs, range{0, 8},
        "0: a row has all gates, then all ups. 8: 8 gates and 8 ups take turns. 1: one and one");
  field("clamped", gate.clamped, any{},
        "gates and ups are clamped, and the product is (up + 1) gate sigmoid(alpha gate)");
  field("alpha", gate.alpha, real_range{0, 1e4}, "with clamped: of the sigmoid; a run-time parameter");
  field("limit", gate.limit, real_range{0, 1e30}, "with clamped: the largest gate, and magnitude of up; run-time");
}

/// x becomes x / sqrt(mean of squares + eps), times its weight.
struct RowNorm {
  NormKind kind = NormKind::kNone;
  bool weight = true;
  int weight_offset = 0;
  double eps = 1e-6;  // a run-time parameter
  bool operator==(const RowNorm&) const = default;
};
template <class Visitor>
void visit_fields(RowNorm& norm, Visitor&& field) {
  field("kind", norm.kind, any{}, "none or rms: of the whole row");
  field("weight", norm.weight, any{}, "weights multiply the result");
  field("weight_offset", norm.weight_offset, range{0, 1}, "1: the factor is 1 + weight");
  field("eps", norm.eps, real_range{0, 1}, "joins the mean of squares; a run-time parameter");
}

struct RowScales {
  ScaleKind kind = ScaleKind::kNone;
  ScaleLayout layout = ScaleLayout::kColumns;
  bool power_of_two = false;
  ScaleRound round = ScaleRound::kOcp;
  double least = 0;  // a run-time parameter
  bool operator==(const RowScales&) const = default;
};
template <class Visitor>
void visit_fields(RowScales& scales, Visitor&& field) {
  field("kind", scales.kind, any{},
        "of e4m3 and e5m2: none, per_tensor (given), per_token (made, of a row) or per_block (made, of 128 elements); "
        "mxfp8, mxfp4 and nvfp4 take per_block");
  field("layout", scales.layout, any{},
        "of per_block: columns is [width / 128, rows], a GEMM's scale_a; rows is [rows, width / 128]");
  field("power_of_two", scales.power_of_two, any{}, "scales that are made are rounded up to a power of two");
  field(
      "round", scales.round, any{},
      "of mxfp8 and mxfp4: ocp, as the standard has it, where the largest elements may saturate; up, where none does");
  field("least", scales.least, real_range{0, 1},
        "a smaller largest magnitude counts as this one, in scales that are made");
}

/// Input, norm and quantisation of each row, in this order. Rows, strides and given scales are run-time parameters.
struct RowOpProblem {
  RowOpDTypes dtype;
  int width = 0;
  RowInput input = RowInput::kPlain;
  int heads = 1;
  RowGate gate;
  RowNorm norm;
  RowScales scales;
  bool operator==(const RowOpProblem&) const = default;
};
template <class Visitor>
void visit_fields(RowOpProblem& problem, Visitor&& field) {
  field("dtype", problem.dtype, any{}, "element types");
  field("width", problem.width, required{range{8, 32768}}, "elements of a row that is written; a multiple of 8");
  field("input", problem.input, any{},
        "plain: x; add: x + residual, which is written back; gate_up: activation(gate) * up, of rows twice as wide; "
        "merge: two parts of an attention");
  field("heads", problem.heads, range{1, 1024}, "with merge: heads of a row, each with an LSE");
  field("gate", problem.gate, any{}, "with gate_up: activation and order");
  field("norm", problem.norm, any{}, "norm of the row");
  field("scales", problem.scales, any{}, "granularity of the scales of what is quantised");
}

struct RowOpSchedule {
  Auto<Arch> arch;
  Auto<Family> family;
  Auto<int> vector, threads_per_row, ctas_per_row, rows_per_cta;
  bool operator==(const RowOpSchedule&) const = default;
};
template <class Visitor>
void visit_fields(RowOpSchedule& schedule, Visitor&& field) {
  field("arch", schedule.arch, any{}, "architecture to compile for");
  field("family", schedule.family, any{}, "kernel family");
  field("vector", schedule.vector, range{8, 16, 8}, "neighbouring elements that a thread has");
  field("threads_per_row", schedule.threads_per_row, range{1, 1024},
        "threads of a CTA that share a row: a power of two up to 32, or whole warps");
  field("ctas_per_row", schedule.ctas_per_row, range{1, 64}, "CTAs that share a row, where nothing is summed over it");
  field("rows_per_cta", schedule.rows_per_cta, range{1, 1024},
        "rows of a CTA; 1 where more than a warp of it shares a row");
}

struct RowOpShape {
  std::string name;
  int rows = 1;
  bool check = false;
  bool operator==(const RowOpShape&) const = default;
};
template <class Visitor>
void visit_fields(RowOpShape& shape, Visitor&& field) {
  field("name", shape.name, required{text{64}}, "name for --shape");
  field("rows", shape.rows, range{0, 1 << 24}, "rows");
  field("check", shape.check, any{}, "a shape for run: small, with gaps between rows");
}

}  // namespace kernelwright
