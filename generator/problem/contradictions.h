/// The rules of a config that hold on every architecture and in every kernel family. Every violation is returned at
/// once, each with its JSON path, what was found and what is accepted.
#pragma once

#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/moe.h"

namespace kernelwright {

/// Fields that contradict each other, or their own rule, on any architecture and in any build. read_config() already
/// throws these; the function is for configs that code fills in.
std::vector<Violation> contradictions(const AttentionConfig& config);
std::vector<Violation> contradictions(const GemmConfig& config);
std::vector<Violation> contradictions(const KvWriteConfig& config);
std::vector<Violation> contradictions(const RowOpConfig& config);
std::vector<Violation> contradictions(const RouteConfig& config);
std::vector<Violation> contradictions(const MoeCombineConfig& config);
/// Also what a part of the layer refuses, with the part's name in the message.
std::vector<Violation> contradictions(const MoeConfig& config);

}  // namespace kernelwright
