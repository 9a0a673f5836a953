/// What the slots and the engine are told of attention: its types, how it is planned and how it is launched.
#pragma once

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/runtime/attention/launch.h"

namespace kernelwright::detail {

struct AttentionKind {
  static constexpr const char* handle = "AttentionKernel";
  using Problem = AttentionProblem;
  using Schedule = AttentionSchedule;
  using Config = AttentionConfig;  // it has families, of which the portable one can stand in for another
  using Plan = AttentionPlan;
  using Loaded = LoadedAttention;
  using Tensors = AttentionTensors;

  static Plan plan(const Problem& problem, const Schedule& schedule, const MachineClass& machine, int /*num_sms*/,
                   const TunedTable& rows) {
    return plan_attention(problem, schedule, machine, rows);
  }

  static void launch(const Loaded& kernel, const Tensors& tensors, Stream stream) {
    launch_attention(kernel, tensors, stream);
  }
};

}  // namespace kernelwright::detail
