/// kv_write: problem + schedule + architecture -> the kernel that serves it, and its launch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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
struct KvWritePlan {
  KvWriteSpec spec;
  std::vector<Choice> choices;
};

/// Throws ConfigError, every violation at once.
KvWritePlan plan_kv_write(const KvWriteProblem& problem, const KvWriteSchedule& schedule, Arch arch);

/// Returns contradictions(), and what the kernel lacks. `arch` is the one to compile for. Without it the schedule's own
/// counts.
std::vector<Violation> validate(const KvWriteConfig& config, std::optional<Arch> arch = std::nullopt);

template <>
struct PlanOfKind<KvWriteConfig> {
  using type = KvWritePlan;
};

/// The kernel takes no tensor memory.
inline TensorMemoryMap tensor_memory_map(const KvWriteSpec&) { return {}; }

/// The Spec of a problem on an architecture, without what a schedule chooses: that is at its defaults.
KvWriteSpec kv_write_spec(const KvWriteProblem& problem, Arch arch);

/// Warps that share the heads of one token, in a launch of many.
int warps_of_token(const KvWriteSpec& spec) noexcept;

/// Whether a launch has so few tokens that a lane takes one head, and not heads_per_lane. Never where the schedule
/// names heads_per_lane.
bool has_few(const KvWriteSpec& spec, std::int64_t tokens) noexcept;

/// The most tokens of a launch: a kernel counts its warps in 31 bits.
std::int64_t most_tokens(const KvWriteSpec& spec) noexcept;

/// Plans a launch for `tokens` tokens, from 1 to most_tokens().
LaunchPlan plan_launch(const KvWriteSpec& spec, std::int64_t tokens) noexcept;

}  // namespace kernelwright
