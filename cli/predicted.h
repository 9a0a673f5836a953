/// Predicted speed, for people and as JSON: generator/timeline.h for each shape of a config.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/planner.h"
#include "terminal.h"

namespace kernelwright::cli {

/// "" where there is no model for the plan's kernel, or no shape.
std::string predicted_text(const Style& style, const AttentionPlan& plan, const AttentionProblem& problem,
                           const std::vector<AttentionShape>& shapes);

/// One object for a shape; null where there is no model.
JsonValue predicted_json(const AttentionPlan& plan, const AttentionProblem& problem, const AttentionShape& shape);

}  // namespace kernelwright::cli
