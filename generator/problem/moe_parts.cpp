#include "kernelwright/generator/problem/moe_parts.h"

#include <string>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/epilogue.h"

namespace kernelwright {
namespace {

bool has_bias(const std::string& gates) {
  try {
    return parse_epilogue(gates).bias;
  } catch (const ConfigError&) {
    return false;  // contradictions() says what is wrong
  }
}

GemmProblem gemm(const MoeProblem& of, int n, int k, bool gather, std::string epilogue, bool biased) {
  GemmProblem problem{.n = n, .k = k};
  problem.dtype = {of.dtype, of.dtype, of.dtype};
  if (of.scales == ScaleKind::kPerBlock)
    problem.dtype.a = problem.dtype.b = DType::kE4m3, problem.scales = ScaleKind::kPerBlock;
  if (biased) problem.dtype.c = of.dtype;
  problem.groups = {GroupKind::kRows, of.own_experts(), GroupBounds::kStarts, gather};
  problem.epilogue = std::move(epilogue);
  problem.batch_invariant = of.batch_invariant;
  return problem;
}

RowOpProblem quantize(const MoeProblem& of, int width) {
  RowOpProblem problem;
  problem.dtype = {of.dtype, DType::kE4m3};
  problem.width = width;
  problem.scales.kind = ScaleKind::kPerBlock;
  return problem;
}

}  // namespace

MoeParts moe_parts(const MoeProblem& problem) {
  MoeParts parts;
  parts.route = problem.route;
  const bool biased = has_bias(problem.gates);
  parts.gate_up = gemm(problem, 2 * problem.intermediate, problem.hidden, true, problem.gates, biased);
  parts.down = gemm(problem, problem.hidden, problem.intermediate, false, problem.down_bias ? "acc + bias" : "acc",
                    problem.down_bias);
  parts.combine = {.dtype = {problem.dtype, problem.dtype}, .width = problem.hidden, .top_k = problem.route.top_k};
  parts.combine.residual = problem.residual;
  if (problem.scales == ScaleKind::kPerBlock) {
    parts.quantize_x = quantize(problem, problem.hidden);
    parts.quantize_rows = quantize(problem, problem.intermediate);
  }
  return parts;
}

}  // namespace kernelwright
