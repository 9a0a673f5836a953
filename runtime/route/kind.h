/// What the slots and the engine need to know about route: its types, how it is planned and how it is launched.
#pragma once

#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/route/launch.h"

namespace kernelwright::detail {

struct RouteKind {
  static constexpr const char* handle = "RouteKernel";
  using Problem = RouteProblem;
  using Schedule = RouteSchedule;
  using Plan = RoutePlan;
  using Loaded = LoadedRoute;
  using Tensors = RouteTensors;

  static Plan plan(const Problem& problem, const Schedule& schedule, const MachineClass& machine, int /*num_sms*/,
                   const TunedTable&) {
    return plan_route(problem, schedule, machine.arch);
  }

  static void launch(const Loaded& kernel, const Tensors& tensors, Stream stream) {
    launch_route(kernel, tensors, stream);
  }
};

}  // namespace kernelwright::detail
