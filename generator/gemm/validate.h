/// What a config's kernel family and architecture lack, besides the contradictions of the config itself.
#pragma once

#include <optional>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// Returns contradictions(), and what the kernel family and the architecture lack. `arch` is the one to compile for.
/// Without it the schedule's own arch counts; where that is auto too, no rule of an architecture is checked. Whether a
/// tile fits shared memory is arithmetic on the resolved Spec: the planner judges that.
std::vector<Violation> validate(const GemmConfig& config, std::optional<Arch> arch = std::nullopt);

}  // namespace kernelwright
