/// The predicted speed of an attention kernel, by an analytical timeline. The model follows the roles of one CTA, key
/// tile by key tile, as a recurrence of events: scores ready, probabilities ready, output added, slot free. It takes
/// the SM that has most to do, and the rates of machine.h. Arithmetic only, the same on every machine; 10 us to a few
/// ms.
#pragma once

#include <optional>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/plan/predicted.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

/// Returns nullopt where there is no model: the portable family, a cluster of Hopper CTAs, an architecture without
/// rates.
std::optional<Predicted> predict(const AttentionPlan& plan, const AttentionProblem& problem,
                                 const AttentionShape& shape);
/// The same on a device of that class.
std::optional<Predicted> predict(const AttentionPlan& plan, const AttentionProblem& problem,
                                 const AttentionShape& shape, const MachineClass& machine);
/// The same with rates of the caller's own.
std::optional<Predicted> predict(const AttentionPlan& plan, const AttentionProblem& problem,
                                 const AttentionShape& shape, const MachineRates& machine);

}  // namespace kernelwright
