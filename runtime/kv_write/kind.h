/// What the slots and the engine need to know about kv_write: its types, how it is planned and how it is launched.
#pragma once

#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/kv_write/launch.h"

namespace kernelwright::detail {

struct KvWriteKind {
  static constexpr const char* handle = "KvWriteKernel";
  using Problem = KvWriteProblem;
  using Schedule = KvWriteSchedule;
  using Plan = KvWritePlan;
  using Loaded = LoadedKvWrite;
  using Tensors = KvWriteTensors;

  static Plan plan(const Problem& problem, const Schedule& schedule, const MachineClass& machine, int /*num_sms*/,
                   const TunedTable&) {
    return plan_kv_write(problem, schedule, machine.arch);
  }

  static void launch(const Loaded& kernel, const Tensors& tensors, Stream stream) {
    launch_kv_write(kernel, tensors, stream);
  }
};

}  // namespace kernelwright::detail
