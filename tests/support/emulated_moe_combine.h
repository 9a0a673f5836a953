/// Shared by tests of sums over the rows of tokens' experts on the emulator.
#pragma once

#include <functional>

#include "kernelwright/verify/moe_combine/bound.h"
#include "kernelwright/verify/moe_combine/device.h"
#include "support/emulated_attention.h"
#include "support/emulated_launch.h"

namespace kernelwright::test {

/// One launch into a poisoned output. It must cause no report, and write nothing beside the output.
inline MoeCombineOutput run_checked(Engine& engine, const MoeCombineCase& call, const MoeCombineSchedule& schedule = {},
                                    const std::function<void(MoeCombineDeviceCase&)>& change = {}) {
  return launch_checked<MoeCombineDeviceCase>(engine, call, schedule, change);
}

/// Rows of bf16, with weights.
inline MoeCombineProblem combined_rows(int width, int top_k) {
  MoeCombineProblem problem;
  problem.width = width, problem.top_k = top_k;
  return problem;
}

}  // namespace kernelwright::test
