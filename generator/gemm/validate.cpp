// GEMM: whether the family that serves a config takes it.
#include "kernelwright/generator/gemm/validate.h"

#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/advice.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/contradictions.h"

namespace kernelwright {

using namespace detail;
using Violations = std::vector<Violation>;

std::vector<Violation> validate(const GemmConfig& config, std::optional<Arch> arch) {
  Violations violations = contradictions(config);
  check_target(config.schedule, arch, violations);
  // Every GEMM family except portable is written for its own architectures.
  if (!config.schedule.family.is_auto() || !config.schedule.arch.is_auto() || arch) {
    const std::optional<Arch> target = arch                             ? arch
                                       : config.schedule.arch.is_auto() ? std::nullopt
                                                                        : std::optional(config.schedule.arch.value());
    Violations found = serving_gemm(config.problem, config.schedule, target).lacks;
    if (violations.empty())
      advise(
          config.schedule, target,
          [&](Family family, const GemmSchedule& schedule, Arch on) {
            Violations lacks;
            check_gemm(family, config.problem, schedule, on, lacks);
            return lacks;
          },
          found);
    violations.insert(violations.end(), found.begin(), found.end());
  }
  return violations;
}

}  // namespace kernelwright
