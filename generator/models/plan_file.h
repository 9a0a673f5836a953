/// A plan as a JSON file, and the configs that such a file holds. docs/models.md has the format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/models/model_plan.h"

namespace kernelwright {

/// The plan as JSON that read_plan() reads back. A problem is a config with two more members: the layers that it
/// serves, and the rows of a GEMM's launches.
std::string write_plan(const ModelPlan& plan);

/// The same JSON with a "from" in each problem: the fields and formulas of its numbers.
JsonValue explain_plan(const ModelPlan& plan);

/// The configs of a plan. Throws ConfigError with every violation, each with its path: /problems/3/problem/heads.
std::vector<Config> read_plan(std::string_view json);

/// The configs of a file: those of a plan, or the one of a config. Throws as read_config_file() does.
std::vector<Config> read_config_or_plan_file(const std::string& path, bool& is_plan);

}  // namespace kernelwright
