/// moe_combine: problem + schedule + architecture -> the kernel that serves it, and its launch.
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

/// One kernel serves every architecture and any number of tokens.
struct MoeCombinePlan {
  MoeCombineSpec spec;
  std::vector<Choice> choices;
};

/// Throws ConfigError, every violation at once.
MoeCombinePlan plan_moe_combine(const MoeCombineProblem& problem, const MoeCombineSchedule& schedule, Arch arch);

/// Returns contradictions(), and what the kernel lacks. `arch` is the one to compile for. Without it the schedule's own
/// counts.
std::vector<Violation> validate(const MoeCombineConfig& config, std::optional<Arch> arch = std::nullopt);

template <>
struct PlanOfKind<MoeCombineConfig> {
  using type = MoeCombinePlan;
};

/// The kernel takes no tensor memory.
inline TensorMemoryMap tensor_memory_map(const MoeCombineSpec&) { return {}; }

/// The most tokens of a launch, and the most rows that experts made.
inline constexpr std::int64_t kMostCombinedTokens = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostExpertRows = (std::int64_t{1} << 31) - 1;

/// Plans a launch for `tokens` tokens, from 1 to kMostCombinedTokens.
LaunchPlan plan_launch(const MoeCombineSpec& spec, std::int64_t tokens) noexcept;

}  // namespace kernelwright
