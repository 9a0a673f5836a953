/// Problem + schedule + architecture -> Spec. Fills every "auto" and can say why: the schedule's own value, else a
/// tuned row for the problem, else a row of its nearest neighbour, else a model.
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

struct AttentionPlan {
  AttentionSpec main;
  std::optional<CombineSpec> combine;  // present if the keys may be split and a kernel of its own merges
  int splits = 0;                      // schedule.splits; 0: decided at launch from the shape
  std::vector<Choice> choices;
  std::string row;                      // the tuned row that filled fields, by name; "": none
  std::vector<SkippedRow> passed_over;  // rows nearer than that whose schedule does not fit here, and why
};

template <>
struct PlanOfKind<AttentionConfig> {
  using type = AttentionPlan;
};

/// The schedule's fields where it gives them; the others from `rows`: a row of the very problem, else the nearest
/// neighbour's whose schedule fits; else from the model. A row fills all fields that are auto or, if that does not fit,
/// none. Throws ConfigError with every violation if no kernel of the family fits (validate.h's rules, then shared
/// memory and registers, with the nearest schedule that would).
AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                             const TunedTable& rows = TunedTable::shipped());

/// The same without any row.
AttentionPlan plan_by_model(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch);

}  // namespace kernelwright
