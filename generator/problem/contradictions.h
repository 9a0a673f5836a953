/// The rules that no single field can state: problem x schedule x architecture -> every violation at once, each with
/// its JSON path, what was found and what would do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// Fields that contradict each other, or their own rule, whatever the architecture and whatever is built.
/// read_config() already throws these; they matter to configs that are filled in by code.
std::vector<Violation> contradictions(const AttentionConfig& config);
std::vector<Violation> contradictions(const GemmConfig& config);

/// Those, and what the kernel family and the architecture lack. `arch` is the one to compile for; without it the
/// schedule's own counts, and where that is auto too, architecture rules are not judged.
/// Whether a tile fits shared memory is arithmetic on the resolved Spec: see generator/attention/launch.h.
std::vector<Violation> validate(const AttentionConfig& config, std::optional<Arch> arch = std::nullopt);
std::vector<Violation> validate(const GemmConfig& config, std::optional<Arch> arch = std::nullopt);
std::vector<Violation> validate(const Config& config, std::optional<Arch> arch = std::nullopt);

}  // namespace kernelwright
