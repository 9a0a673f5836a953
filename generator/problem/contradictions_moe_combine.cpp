// moe_combine: which fields contradict each other, on any architecture and in any kernel family.
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/rule_check.h"

namespace kernelwright {

std::vector<Violation> contradictions(const MoeCombineConfig& config) {
  using namespace detail;
  std::vector<Violation> violations;
  check_fields(config, violations);
  const MoeCombineProblem& problem = config.problem;
  takes("/problem/dtype/in", problem.dtype.in, {DType::kF16, DType::kBf16}, violations);
  takes("/problem/dtype/out", problem.dtype.out, {DType::kF16, DType::kBf16, DType::kF32}, violations);
  if (problem.top_k == 1 && !problem.weighted && !problem.residual && problem.dtype.in == problem.dtype.out)
    violations.push_back(
        {"/problem/weighted", "false with a top_k of 1 and without a residual adds nothing up; rows are only copied"});
  check_family(config.schedule, violations);
  return violations;
}

}  // namespace kernelwright
