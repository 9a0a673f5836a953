/// The rules of a config that hold on every architecture and in every kernel family: every violation at once, each with
/// its JSON path, what was found and what would do.
#pragma once

#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/config.h"

namespace kernelwright {

/// Fields that contradict each other, or their own rule, whatever the architecture and whatever is built.
/// read_config() already throws these; they matter to configs that are filled in by code.
std::vector<Violation> contradictions(const AttentionConfig& config);
std::vector<Violation> contradictions(const GemmConfig& config);

}  // namespace kernelwright
