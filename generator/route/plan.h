/// route: problem + schedule + architecture -> the kernels that serve it, and their launches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/choice.h"
#include "kernelwright/generator/plan/launch.h"
#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// One kernel chooses experts. Where several CTAs have tokens, a second one sorts.
struct RoutePlan {
  RouteSpec spec;
  std::optional<RouteSortSpec> sort;
  std::vector<Choice> choices;
};

/// Throws ConfigError, every violation at once.
RoutePlan plan_route(const RouteProblem& problem, const RouteSchedule& schedule, Arch arch);

/// Returns contradictions(), and what the kernels lack. `arch` is the one to compile for. Without it the schedule's own
/// counts.
std::vector<Violation> validate(const RouteConfig& config, std::optional<Arch> arch = std::nullopt);

template <>
struct PlanOfKind<RouteConfig> {
  using type = RoutePlan;
};

/// The kernels take no tensor memory.
inline TensorMemoryMap tensor_memory_map(const RouteSpec&) { return {}; }

/// The most tokens of a launch: rows have 31 bits, with those between experts.
std::int64_t most_tokens(const RouteSpec& spec) noexcept;

/// Rows of the sorted matrix at most: a pair each, and with an alignment those between experts.
std::int64_t most_sorted_rows(const RouteSpec& spec, std::int64_t tokens) noexcept;

struct RouteLaunch {
  LaunchPlan main;  // and of the sort
  int tokens_per_warp = 0;
  bool sorts_apart = false;  // the second kernel runs
  std::uint64_t workspace_bytes = 0;
};
/// Plans a launch for `tokens` tokens, from 0 to most_tokens().
RouteLaunch plan_launch(const RouteSpec& spec, std::int64_t tokens) noexcept;

/// Bytes of workspace that any launch of up to `tokens` tokens needs.
std::uint64_t most_workspace_bytes(const RouteSpec& spec, std::int64_t tokens) noexcept;

}  // namespace kernelwright
