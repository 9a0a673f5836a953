/// A layer of experts -> the problems of its kernels.
#pragma once

#include <optional>

#include "kernelwright/generator/problem/moe.h"
#include "kernelwright/generator/problem/moe_combine.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/row_op.h"

namespace kernelwright {

/// In the order of their launches.
struct MoeParts {
  RouteProblem route;                         // chooses, and sorts pairs of token and slot by expert
  std::optional<RowOpProblem> quantize_x;     // with scales: tokens, ahead of gathering
  GemmProblem gate_up;                        // gathers rows of tokens; activation(gate) * up
  std::optional<RowOpProblem> quantize_rows;  // with scales: what gate_up made
  GemmProblem down;
  MoeCombineProblem combine;
};

MoeParts moe_parts(const MoeProblem& problem);

}  // namespace kernelwright
