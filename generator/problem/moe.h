/// A whole layer of experts: the problem, and moe_parts.h makes those of its kernels.
#pragma once

#include <string>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/route.h"

namespace kernelwright {

/// out = sum over a token's experts of weight * (activation(gate) * up) down^T, plus a residual. The number of tokens,
/// strides and the factor of the route are run-time parameters.
///
///   x, out      [tokens, hidden]
///   gate_up     [experts, 2 * intermediate, hidden]     8 rows of gates, the 8 rows of ups that belong to them, ...
///   down        [experts, hidden, intermediate]
///
/// With scales per_block, the weights are e4m3. The layer quantises tokens, and the rows between the GEMMs.
struct MoeProblem {
  DType dtype = DType::kBf16;
  int hidden = 0;
  int intermediate = 0;
  RouteProblem route;
  std::string gates = "silu(gate) * up";
  bool down_bias = false;
  ScaleKind scales = ScaleKind::kNone;
  bool residual = false;
  /// A token's result is the same to the bit, whatever the other tokens are and however many.
  bool batch_invariant = false;
  bool operator==(const MoeProblem&) const = default;
  /// Experts whose weights the layer has.
  int own_experts() const { return route.local_experts > 0 ? route.local_experts : route.experts; }
};
template <class Visitor>
void visit_fields(MoeProblem& problem, Visitor&& field) {
  field("dtype", problem.dtype, any{}, "of tokens, results and what lies between: bf16 or f16");
  field("hidden", problem.hidden, required{range{8, 16384, 8}}, "elements of a token");
  field("intermediate", problem.intermediate, required{range{8, 65536, 8}},
        "elements of a row between the GEMMs: gates of an expert");
  field("route", problem.route, required{any{}}, "how experts are chosen: a problem of kind route, which sorts");
  field("gates", problem.gates, text{256}, "what gates and ups become: the epilogue of a GEMM with gates");
  field("down_bias", problem.down_bias, any{}, "the down GEMM adds a bias of each expert");
  field("scales", problem.scales, any{},
        "none: weights of dtype; per_block: weights of e4m3 with an f32 per 128 x 128 elements");
  field("residual", problem.residual, any{}, "a row of each token is added last: a residual, or a shared expert's");
  field("batch_invariant", problem.batch_invariant, any{},
        "a token's result is the same to the bit whatever the other tokens are");
}

/// A layer has no schedule and no shapes of its own: its kernels have those of their plans.
struct MoeConfig {
  std::string name;
  MoeProblem problem;
  bool operator==(const MoeConfig&) const = default;
};

}  // namespace kernelwright
