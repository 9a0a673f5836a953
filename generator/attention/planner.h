/// Problem + schedule + architecture -> Spec. The planner fills every "auto" and can say why. It takes the schedule's
/// own value, else a tuned row for the problem, else a row of its nearest neighbour, else a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/plan/choice.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"
#include "kernelwright/generator/source/spec.h"
#include "kernelwright/generator/tuned/table.h"

namespace kernelwright {

struct MachineClass;  // plan/machine.h

struct AttentionPlan {
  AttentionSpec main;
  std::optional<CombineSpec> combine;  // present if the keys may be split and a kernel of its own merges
  int splits = 0;                      // schedule.splits; 0: decided at launch from the shape
  std::vector<Choice> choices;
  std::string row;                      // the tuned row that filled fields, by name; "": none
  std::vector<SkippedRow> passed_over;  // rows nearer than that one whose schedule does not fit here, and why
};

template <>
struct PlanOfKind<AttentionConfig> {
  using type = AttentionPlan;
};

/// Plans with the schedule's fields where it gives them. The others come from `rows`: from a row of the very problem
/// and class of devices, else from the nearest neighbour's row whose schedule fits. Else they come from the model. A
/// row fills all fields that are auto or, if that does not fit, none. An architecture stands for its usual_machine().
/// Throws ConfigError with every violation if no kernel of the family fits: validate.h's rules, then shared memory and
/// registers, with the nearest schedule that fits.
AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                             const TunedTable& rows = TunedTable::shipped());
AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionSchedule& schedule,
                             const MachineClass& machine, const TunedTable& rows = TunedTable::shipped());

/// The same without any row.
AttentionPlan plan_by_model(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch);

}  // namespace kernelwright
