/// Problem + schedule + architecture -> Spec. Fills every "auto" and can say why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/arch.h"
#include "kernelwright/generator/problem.h"
#include "kernelwright/generator/schedule.h"
#include "kernelwright/generator/spec.h"

namespace kernelwright {

/// One resolved field: what it became and the reason, for people.
struct Choice {
  std::string field, value, reason;
};

struct AttentionPlan {
  AttentionSpec main;
  std::optional<CombineSpec> combine;  // present if the keys may be split
  int splits = 0;                      // schedule.splits; 0: decided at launch from the shape
  std::vector<Choice> choices;
};

/// Throws ConfigError with every violation if no kernel of the family fits (validate.h's rules, then shared memory and
/// registers, with the nearest schedule that would).
AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch);

}  // namespace kernelwright
