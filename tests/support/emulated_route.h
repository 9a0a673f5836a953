/// Shared by tests of choices of experts on the emulator.
#pragma once

#include <functional>
#include <string>

#include "kernelwright/verify/route/bound.h"
#include "kernelwright/verify/route/device.h"
#include "support/emulated_attention.h"
#include "support/emulated_launch.h"

namespace kernelwright::test {

/// One launch into poisoned outputs. It must cause no report, and write nothing beside the outputs.
inline RouteOutput run_checked(Engine& engine, const RouteCase& call, const RouteSchedule& schedule = {},
                               const std::function<void(RouteDeviceCase&)>& change = {}) {
  return launch_checked<RouteDeviceCase>(engine, call, schedule, change);
}

/// The router of DeepSeek-V3, with other numbers of experts where a test asks.
inline RouteProblem grouped_router(int experts = 256, int top_k = 8) {
  RouteProblem problem;
  problem.experts = experts, problem.top_k = top_k;
  problem.score = RouteScore::kSigmoid;
  problem.bias = problem.renormalize = true;
  problem.n_group = 8, problem.topk_group = 4;
  problem.factor = 2.5;
  return problem;
}

/// A softmax of all experts, of which top_k are chosen.
inline RouteProblem plain_router(int experts, int top_k) {
  RouteProblem problem;
  problem.experts = experts, problem.top_k = top_k;
  return problem;
}

}  // namespace kernelwright::test
