// row_op: which fields contradict each other, on any architecture and in any kernel family.
#include <algorithm>

#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/rule_check.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

constexpr int kRowStep = 8, kScaleBlock = 128, kWidest = 32768;
constexpr const char* kNoMeaning = " has no meaning here; leave it out";

/// A row is whole vectors, and whole blocks of its scales.
void check_width(const RowOpProblem& problem, Violations& violations) {
  const DType out = problem.dtype.out;
  const bool blocks = problem.scales.kind == ScaleKind::kPerBlock && !is_block_scaled(out);
  const int step = blocks ? kScaleBlock : std::max(kRowStep, scale_vector(out));
  if (problem.width < kRowStep || problem.width > kWidest || problem.width % step == 0) return;
  const int nearest = std::clamp((problem.width + step / 2) / step * step, step, kWidest);
  const std::string of = blocks                 ? " of per_block scales"
                         : is_block_scaled(out) ? " of " + std::string(to_string(out))
                                                : "";
  violations.push_back({"/problem/width", std::to_string(problem.width) + " does not fit rows" + of +
                                              "; it takes a multiple of " + std::to_string(step) + ", such as " +
                                              std::to_string(nearest)});
}

void check_gate(const RowOpProblem& problem, Violations& violations) {
  const RowGate& gate = problem.gate;
  if (problem.input != RowInput::kGateUp) {
    const RowGate usual;
    if (gate.activation != usual.activation)
      violations.push_back({"/problem/gate/activation", in_quotes(to_string(gate.activation)) + kNoMeaning});
    if (gate.pairs != 0) violations.push_back({"/problem/gate/pairs", std::to_string(gate.pairs) + kNoMeaning});
    if (gate.clamped) violations.push_back({"/problem/gate/clamped", std::string("true") + kNoMeaning});
    return;
  }
  if (!is_one_of(gate.pairs, {0, 1, 8}))
    violations.push_back({"/problem/gate/pairs", std::to_string(gate.pairs) + " does not fit; it takes 0, 1 or 8"});
  if (gate.clamped && gate.activation != Activation::kSilu)
    violations.push_back(
        {"/problem/gate/activation", in_quotes(to_string(gate.activation)) + " does not fit clamped; it takes silu"});
}

/// A head is whole vectors, so that no vector has two weights.
void check_heads(const RowOpProblem& problem, Violations& violations) {
  const int heads = problem.heads;
  if (problem.input != RowInput::kMerge) {
    if (heads != 1) violations.push_back({"/problem/heads", std::to_string(heads) + kNoMeaning});
    return;
  }
  if (heads < 1 || problem.width % (heads * kRowStep) == 0) return;
  int nearest = std::min(heads, problem.width / kRowStep);
  while (nearest > 1 && problem.width % (nearest * kRowStep) != 0) --nearest;
  violations.push_back({"/problem/heads", std::to_string(heads) + " heads of a row of " +
                                              std::to_string(problem.width) + " are no multiple of " +
                                              std::to_string(kRowStep) + " elements each; " +
                                              std::to_string(std::max(nearest, 1)) + " would do"});
}

void check_norm(const RowNorm& norm, Violations& violations) {
  takes("/problem/norm/kind", norm.kind, {NormKind::kNone, NormKind::kRms}, violations);
  if (norm.weight_offset != 0 && (norm.kind == NormKind::kNone || !norm.weight))
    violations.push_back({"/problem/norm/weight_offset", std::to_string(norm.weight_offset) + kNoMeaning});
}

void check_scales(const RowOpProblem& problem, Violations& violations) {
  const RowScales& scales = problem.scales;
  const DType out = problem.dtype.out;
  if (is_block_scaled(out)) {  // as a GEMM says it of its operands
    if (scales.kind != ScaleKind::kPerBlock)
      violations.push_back({"/problem/scales/kind", in_quotes(to_string(scales.kind)) + " does not fit " +
                                                        std::string(to_string(out)) + "; it takes per_block"});
  } else {
    takes("/problem/scales/kind", scales.kind,
          {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock}, violations);
    if (scales.kind != ScaleKind::kNone && !is_fp8(out))
      violations.push_back({"/problem/scales/kind", in_quotes(to_string(scales.kind)) + " has no meaning for " +
                                                        std::string(to_string(out)) +
                                                        "; leave it out, or write e4m3 or e5m2"});
  }
  const bool makes = is_fp8(out) && is_one_of(scales.kind, {ScaleKind::kPerToken, ScaleKind::kPerBlock});
  if (scales.layout != ScaleLayout::kColumns && (scales.kind != ScaleKind::kPerBlock || !is_fp8(out)))
    violations.push_back(
        {"/problem/scales/layout", in_quotes(to_string(scales.layout)) + " is for per_block scales of e4m3 and e5m2"});
  if (scales.power_of_two && !makes)
    violations.push_back(
        {"/problem/scales/power_of_two", "true is for f32 scales that the kernel makes: per_token or per_block"});
  if (scales.round != ScaleRound::kOcp && !is_one_of(out, {DType::kMxfp8, DType::kMxfp4}))
    violations.push_back(
        {"/problem/scales/round", in_quotes(to_string(scales.round)) + " is for scales of mxfp8 and mxfp4"});
  if (scales.least > 0 && !makes)
    violations.push_back({"/problem/scales/least", "is for f32 scales that the kernel makes: per_token or per_block"});
}

}  // namespace

std::vector<Violation> contradictions(const RowOpConfig& config) {
  Violations violations;
  check_fields(config, violations);
  const RowOpProblem& problem = config.problem;
  takes("/problem/dtype/in", problem.dtype.in, {DType::kF16, DType::kBf16, DType::kF32}, violations);
  takes(
      "/problem/dtype/out", problem.dtype.out,
      {DType::kF16, DType::kBf16, DType::kF32, DType::kE4m3, DType::kE5m2, DType::kMxfp8, DType::kMxfp4, DType::kNvfp4},
      violations);
  check_width(problem, violations);
  check_gate(problem, violations);
  check_heads(problem, violations);
  check_norm(problem.norm, violations);
  check_scales(problem, violations);
  if (problem.input == RowInput::kPlain && problem.norm.kind == NormKind::kNone &&
      problem.dtype.in == problem.dtype.out)
    violations.push_back(
        {"/problem/input",
         "\"plain\" without a norm, from " + std::string(to_string(problem.dtype.in)) +
             " to itself, is a copy of rows; name a step: add, gate_up, merge, a norm, another dtype.out"});
  check_family(config.schedule, violations);
  return violations;
}

}  // namespace kernelwright
