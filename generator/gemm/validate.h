/// What a config's kernel family and architecture lack, beside the contradictions of the config itself.
#pragma once

#include <optional>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// contradictions(), and what the kernel family and the architecture lack. `arch` is the one to compile for; without
/// it the schedule's own counts, and where that is auto too, architecture rules are not judged.
/// Whether a tile fits shared memory is arithmetic on the resolved Spec: the planner judges that.
std::vector<Violation> validate(const GemmConfig& config, std::optional<Arch> arch = std::nullopt);

}  // namespace kernelwright
