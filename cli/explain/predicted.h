/// Predicted speed, for people and as JSON: generator/attention/predicted.h for each shape of a config.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/plan/machine.h"

namespace kernelwright::cli {

/// "" if the plan's kernel has no model, or there is no shape.
std::string predicted_text(const Style& style, const AttentionPlan& plan, const AttentionProblem& problem,
                           const std::vector<AttentionShape>& shapes, const MachineClass& machine);
std::string predicted_text(const Style& style, const GemmPlan& plan, const GemmProblem& problem,
                           const std::vector<GemmShape>& shapes, const MachineClass& machine);

/// One object for a shape; null where there is no model.
JsonValue predicted_json(const AttentionPlan& plan, const AttentionProblem& problem, const AttentionShape& shape,
                         const MachineClass& machine);
JsonValue predicted_json(const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape,
                         const MachineClass& machine);

}  // namespace kernelwright::cli
