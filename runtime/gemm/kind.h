/// What the slots and the engine are told of gemm: its types, how it is planned and how it is launched.
#pragma once

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/runtime/gemm/launch.h"

namespace kernelwright::detail {

struct GemmKind {
  static constexpr const char* handle = "GemmKernel";
  using Problem = GemmProblem;
  using Schedule = GemmSchedule;
  using Config = GemmConfig;  // it has families, of which the portable one can stand in for another
  using Plan = GemmPlan;
  using Loaded = LoadedGemm;
  using Tensors = GemmTensors;

  static Plan plan(const Problem& problem, const Schedule& schedule, const MachineClass& machine, int num_sms,
                   const TunedTable& rows) {
    return plan_gemm(problem, schedule, machine, rows, num_sms);
  }

  static void launch(const Loaded& kernel, const Tensors& tensors, Stream stream) {
    launch_gemm(kernel, tensors, stream);
  }
};

}  // namespace kernelwright::detail
