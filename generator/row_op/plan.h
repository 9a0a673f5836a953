/// row_op: problem + schedule + architecture -> the kernel that serves it, and its launch.
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

/// One kernel serves every architecture and any number of rows.
struct RowOpPlan {
  RowOpSpec spec;
  std::vector<Choice> choices;
};

/// Throws ConfigError, every violation at once.
RowOpPlan plan_row_op(const RowOpProblem& problem, const RowOpSchedule& schedule, Arch arch);

/// Returns contradictions(), and what the kernel lacks. `arch` is the one to compile for. Without it the schedule's own
/// counts.
std::vector<Violation> validate(const RowOpConfig& config, std::optional<Arch> arch = std::nullopt);

template <>
struct PlanOfKind<RowOpConfig> {
  using type = RowOpPlan;
};

/// The kernel takes no tensor memory.
inline TensorMemoryMap tensor_memory_map(const RowOpSpec&) { return {}; }

/// The most rows of a launch.
inline constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 1024;
/// The same of a kernel whose CTAs may share a row.
inline std::int64_t most_rows(const RowOpSpec& spec) noexcept { return kMostRows / spec.ctas_per_row; }

/// Elements of a row of x: `width`, or twice as many with gates and ups.
inline int read_width(const RowOpSpec& spec) noexcept { return spec.gated ? 2 * spec.width : spec.width; }

/// Plans a launch for `rows` rows, from 1 to most_rows().
LaunchPlan plan_launch(const RowOpSpec& spec, std::int64_t rows) noexcept;

}  // namespace kernelwright
