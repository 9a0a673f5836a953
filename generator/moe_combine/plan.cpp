#include "kernelwright/generator/moe_combine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "contract/moe_combine.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/contradictions.h"

namespace kernelwright {
namespace {

constexpr int kThreads = 128;              // so that the row of one token takes several SMs
constexpr int kStaticSharedBytes = 49152;  // of a CTA, without opting in to more

/// Threads whose parts of all rows fit into shared memory: whole warps.
int most_threads(int top_k) { return kStaticSharedBytes / (contract::kVectorBytes * top_k) / 32 * 32; }

}  // namespace

LaunchPlan plan_launch(const MoeCombineSpec& spec, std::int64_t tokens) noexcept {
  LaunchPlan plan;
  plan.block = static_cast<std::uint32_t>(spec.threads());
  plan.grid[0] = static_cast<std::uint32_t>(ceil_div(tokens * contract::vectors_of_row(spec.width), spec.threads()));
  return plan;
}

std::vector<Violation> validate(const MoeCombineConfig& config, std::optional<Arch> arch) {
  std::vector<Violation> violations = contradictions(config);
  detail::check_target(config.schedule, arch, violations);
  if (const Family family = config.schedule.family.value_or(Family::kPortable); family != Family::kPortable)
    violations.push_back(
        {"/schedule/family", fmt::format("\"{}\" has no kernel that adds up rows of experts; portable has one for "
                                         "every architecture",
                                         to_string(family))});
  return violations;
}

MoeCombinePlan plan_moe_combine(const MoeCombineProblem& problem, const MoeCombineSchedule& schedule, Arch arch) {
  std::vector<Violation> violations = validate(MoeCombineConfig{"", problem, schedule, {}}, arch);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  MoeCombinePlan plan;
  plan.spec = {.arch = arch,
               .in = problem.dtype.in,
               .out = problem.dtype.out,
               .width = problem.width,
               .top_k = problem.top_k,
               .weighted = problem.weighted,
               .adds = problem.residual};
  detail::Resolver resolve(plan.choices);
  resolve("family", schedule.family, Family::kPortable, "one kernel serves every architecture");
  const int most = std::min(most_threads(problem.top_k), 1024), vectors = contract::vectors_of_row(problem.width);
  plan.spec.cta_threads =
      resolve("threads", schedule.threads, std::min(kThreads, most),
              fmt::format("a row has {} vectors of 16 bytes, and small CTAs spread one token over the SMs", vectors));
  if (plan.spec.cta_threads > most)
    throw ConfigError(
        "/schedule/threads",
        fmt::format("{} threads with a top_k of {} need {} bytes of shared memory, and {} are the most; "
                    "{} would do",
                    plan.spec.cta_threads, problem.top_k,
                    plan.spec.cta_threads * problem.top_k * contract::kVectorBytes, kStaticSharedBytes, most));
  return plan;
}

}  // namespace kernelwright
