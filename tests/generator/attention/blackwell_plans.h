/// Problems, schedules and plans of the blackwell family, for its tests.
#pragma once

#include "kernelwright/generator/attention/planner.h"

namespace kernelwright::test {

inline AttentionProblem prefill(int head_dim_qk, int head_dim_v) {
  AttentionProblem problem;
  problem.head_dim = {head_dim_qk, head_dim_v};
  problem.heads = {32, 8};
  return problem;
}

inline AttentionSchedule blackwell() {
  AttentionSchedule schedule;
  schedule.family = Family::kBlackwell;
  return schedule;
}

inline AttentionSpec planned(const AttentionProblem& problem, const AttentionSchedule& schedule = blackwell(),
                             Arch arch = Arch::kSm100a) {
  return plan_attention(problem, schedule, arch).main;
}
inline AttentionSpec planned(int head_dim_qk, int head_dim_v) { return planned(prefill(head_dim_qk, head_dim_v)); }

}  // namespace kernelwright::test
