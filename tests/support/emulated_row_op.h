/// Shared by tests of steps over rows on the emulator.
#pragma once

#include <functional>
#include <string>

#include "kernelwright/verify/row_op/bound.h"
#include "kernelwright/verify/row_op/device.h"
#include "support/emulated_attention.h"
#include "support/emulated_launch.h"

namespace kernelwright::test {

using RowOpChange = std::function<void(RowOpTensors&)>;

/// One launch into poisoned outputs. It must cause no report, and write nothing beside the outputs.
inline RowOpOutput run_checked(Engine& engine, const RowOpCase& call, const RowOpSchedule& schedule = {},
                               const std::function<void(RowOpDeviceCase&)>& change = {}) {
  return launch_checked<RowOpDeviceCase>(engine, call, schedule, change);
}

inline void expect_right(const RowOpCase& call, const RowOpOutput& output) {
  expect_right<RowOpCase, RowOpOutput>(call, output);
}

inline std::string refusal_of_launch(Engine& engine, const RowOpCase& call, const RowOpChange& change) {
  return refusal_of<RowOpDeviceCase>(engine, call, change);
}

/// A norm of rows of bf16.
inline RowOpProblem normed_rows(int width) {
  RowOpProblem problem;
  problem.width = width;
  problem.norm.kind = NormKind::kRms;
  return problem;
}

}  // namespace kernelwright::test
