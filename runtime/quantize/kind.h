/// What the slots and the engine need to know about quantize: its types, how it is planned and how it is launched.
#pragma once

#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/quantize/plan.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/quantize/launch.h"

namespace kernelwright::detail {

struct QuantizeKind {
  static constexpr const char* handle = "QuantizeKernel";
  using Problem = QuantizeProblem;
  using Schedule = QuantizeSchedule;
  using Plan = QuantizePlan;
  using Loaded = LoadedQuantize;
  using Tensors = QuantizeTensors;

  static Plan plan(const Problem& problem, const Schedule&, const MachineClass& machine, int /*num_sms*/,
                   const TunedTable&) {
    return plan_quantize(problem, machine.arch);
  }

  static void launch(const Loaded& kernel, const Tensors& tensors, Stream stream) {
    launch_quantize(kernel, tensors, stream);
  }
};

}  // namespace kernelwright::detail
