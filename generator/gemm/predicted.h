/// The predicted speed of a GEMM.
#pragma once

#include <optional>

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/plan/predicted.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

/// The prediction of the model that plans the GEMM: the units of the busiest SM, its rounds of tiles, and the memory.
/// nullopt for all but the blackwell family.
std::optional<Predicted> predict(const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape);
/// The same on a device of that class.
std::optional<Predicted> predict(const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape,
                                 const MachineClass& machine);

}  // namespace kernelwright
