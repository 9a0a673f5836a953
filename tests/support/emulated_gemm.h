/// Shared by tests of GEMM kernels on the emulator: a launch that must cause no report.
#pragma once

#include <functional>

#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/emulated_attention.h"
#include "support/emulated_launch.h"

namespace kernelwright::test {

/// Changes the arguments of a launch.
using TensorChange = std::function<void(GemmTensors&)>;

/// One launch into a poisoned output. It must cause no report and write nothing beside the output.
inline GemmOutput run_checked(Engine& engine, const GemmCase& call, const GemmSchedule& schedule = {},
                              const TensorChange& change = {}) {
  GemmDeviceCase on_device(engine.device(0), call, engine.prepare(call.problem, schedule));
  if (change) change(on_device.tensors());
  on_device.poison();
  on_device.launch();
  const GemmOutput output = on_device.download();
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside d was written";
  expect_no_reports(engine);
  return output;
}

inline void expect_right(const GemmCase& call, const GemmOutput& output) {
  const GemmVerdict verdict = verify(call, output, {.budget_operations = 1e9});
  EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio << ", rms "
                              << verdict.rms_ratio << " of " << verdict.rms_limit;
}

/// What launch() throws for arguments that do not fit, with nothing queued; "" if launch() accepts them.
inline std::string refusal_of_launch(Engine& engine, const GemmCase& call, const TensorChange& change) {
  return refusal_of<GemmDeviceCase>(engine, call, change);
}

/// A tile of a portable or a Hopper kernel, for tables of tests.
struct Tile {
  const char* name;
  Family family;
  int block_m, block_n, warpgroups;
  Roles roles = Roles::kCooperative;
  bool swap_ab = false;
  int cluster = 1;
};

/// One of each way in which a kernel walks tiles of groups.
inline constexpr Tile kGroupTiles[] = {
    {"portable", Family::kPortable, 16, 32, 0, Roles::kCooperative, false},
    {"cooperative", Family::kHopper, 128, 64, 2, Roles::kCooperative, false},
    {"ping_pong", Family::kHopper, 64, 64, 2, Roles::kPingPong, false},
    {"swapped", Family::kHopper, 64, 32, 1, Roles::kCooperative, true},
    {"swapped_ping_pong", Family::kHopper, 64, 72, 2, Roles::kPingPong, true},
    {"pair", Family::kHopper, 64, 64, 1, Roles::kCooperative, false, 2},
};

inline GemmSchedule schedule_of(const Tile& tile) {
  GemmSchedule schedule;
  schedule.family = tile.family;
  schedule.block_m = tile.block_m, schedule.block_n = tile.block_n;
  if (tile.family != Family::kHopper) return schedule;
  schedule.math_warpgroups = tile.warpgroups;
  schedule.roles = tile.roles;
  schedule.swap_ab = tile.swap_ab;
  schedule.cluster = ClusterShape{tile.cluster, 1};
  schedule.stages = 4;
  return schedule;
}

inline GemmProblem gemm_problem(DType operands, DType result, int n, int k, const char* epilogue = "acc",
                                ScaleKind scales = ScaleKind::kNone) {
  GemmProblem problem;
  problem.n = n;
  problem.k = k;
  problem.dtype = {operands, operands, result, DType::kBf16};
  problem.epilogue = epilogue;
  problem.scales = scales;
  return problem;
}

}  // namespace kernelwright::test
