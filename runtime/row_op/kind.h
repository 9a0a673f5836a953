/// What the slots and the engine need to know about row_op: its types, how it is planned and how it is launched.
#pragma once

#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/row_op/plan.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/row_op/launch.h"

namespace kernelwright::detail {

struct RowOpKind {
  static constexpr const char* handle = "RowOpKernel";
  using Problem = RowOpProblem;
  using Schedule = RowOpSchedule;
  using Plan = RowOpPlan;
  using Loaded = LoadedRowOp;
  using Tensors = RowOpTensors;

  static Plan plan(const Problem& problem, const Schedule& schedule, const MachineClass& machine, int /*num_sms*/,
                   const TunedTable&) {
    return plan_row_op(problem, schedule, machine.arch);
  }

  static void launch(const Loaded& kernel, const Tensors& tensors, Stream stream) {
    launch_row_op(kernel, tensors, stream);
  }
};

}  // namespace kernelwright::detail
