/// Problems, schedules and plans of the hopper family, for its tests. blackwell_plans.h has the same names.
#pragma once

#include "kernelwright/generator/attention/planner.h"

namespace kernelwright::test::hopper_plans {

inline AttentionProblem prefill(int head_dim_qk, int head_dim_v) {
  AttentionProblem problem;
  problem.head_dim = {head_dim_qk, head_dim_v};
  problem.heads = {32, 8};
  return problem;
}

inline AttentionSchedule hopper() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  return schedule;
}

inline AttentionSpec planned(const AttentionProblem& problem, const AttentionSchedule& schedule = hopper()) {
  return plan_attention(problem, schedule, Arch::kSm90a).main;
}
inline AttentionSpec planned(int head_dim_qk, int head_dim_v) { return planned(prefill(head_dim_qk, head_dim_v)); }

inline AttentionSchedule in_clusters(int size) {
  AttentionSchedule schedule = hopper();
  schedule.cluster = ClusterShape{size, 1};
  return schedule;
}

}  // namespace kernelwright::test::hopper_plans
