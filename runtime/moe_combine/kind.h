/// What the slots and the engine need to know about moe_combine: its types, how it is planned and how it is launched.
#pragma once

#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/moe_combine/launch.h"

namespace kernelwright::detail {

struct MoeCombineKind {
  static constexpr const char* handle = "MoeCombineKernel";
  using Problem = MoeCombineProblem;
  using Schedule = MoeCombineSchedule;
  using Plan = MoeCombinePlan;
  using Loaded = LoadedMoeCombine;
  using Tensors = MoeCombineTensors;

  static Plan plan(const Problem& problem, const Schedule& schedule, const MachineClass& machine, int /*num_sms*/,
                   const TunedTable&) {
    return plan_moe_combine(problem, schedule, machine.arch);
  }

  static void launch(const Loaded& kernel, const Tensors& tensors, Stream stream) {
    launch_moe_combine(kernel, tensors, stream);
  }
};

}  // namespace kernelwright::detail
