// Programmatic dependent launch of GEMMs: a kernel may load weights before the kernel ahead has ended, and nothing
// else. On the emulator nothing overlaps, so the checker reports what would go wrong if it did.
#include <gtest/gtest.h>

#include <vector>

#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/ptx_store.h"

namespace kernelwright::gemm_dependent_launch_test {
namespace {

struct Form {
  const char* name;
  Arch arch;
  GemmSchedule schedule;
  bool early = true;  // whether weights come early; not so where clusters wait to be counted in a workspace
};

/// Two layers of a network: the second's a is the first's d.
struct Layers : ::testing::TestWithParam<Form> {
  static constexpr int kRows = 72, kWidth = 192;

  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  static EngineOptions options() {
    EngineOptions options;
    options.backend = "emulator";
    options.emulator.arch = GetParam().arch;
    options.emulator.hazards = true;
    options.emulator.num_sms = 8;
    options.custom_store = test::ptx_store();
    return options;
  }
  static GemmProblem problem() {
    GemmProblem problem;
    problem.n = problem.k = kWidth;
    return problem;
  }
  Engine engine{options()};
  std::vector<emulator::KernelHazard> reports() {
    return dynamic_cast<EmulatorBackend&>(engine.backend()).take_reports();
  }
  /// The second layer's d. Its weights are the first's d where `written` says so.
  GemmOutput run(bool pdl, bool written) {
    const GemmCase call = make_gemm_inputs(problem(), {.name = "layers", .m = written ? kWidth : kRows});
    const GemmKernel kernel = engine.prepare(problem(), GetParam().schedule);
    GemmDeviceCase first(engine.device(0), call, kernel), second(engine.device(0), call, kernel);
    first.poison();
    second.poison();
    second.use(first.stream());
    (written ? second.tensors().b : second.tensors().a) = first.tensors().d;
    (written ? second.tensors().b_stride : second.tensors().a_stride) = first.tensors().d_stride;
    for (GemmDeviceCase* layer : {&first, &second}) {
      layer->tensors().pdl = layer->tensors().constant_b = pdl;
      layer->launch();
    }
    return second.download();
  }
};

TEST_P(Layers, WeightsComeEarlyAndChangeNoBit) {
  const GemmOutput expected = run(false, false);
  EXPECT_TRUE(run(true, false) == expected);
  for (const auto& [kernel, report] : reports()) ADD_FAILURE() << kernel << ": " << report.text();
}

TEST_P(Layers, WeightsThatTheKernelAheadWritesAreReported) {
  run(true, true);
  const auto found = reports();
  EXPECT_EQ(found.empty(), !GetParam().early);
  for (const auto& [kernel, report] : found)
    EXPECT_EQ(report.kind, emulator::HazardKind::kGridDependency) << report.text();
}

std::vector<Form> forms() {
  const auto hopper = [](bool swap_ab) {
    GemmSchedule schedule;
    schedule.block_m = 64, schedule.block_n = 64, schedule.math_warpgroups = 1, schedule.k_group = 1;
    schedule.roles = Roles::kCooperative;
    schedule.swap_ab = swap_ab;
    return schedule;
  };
  const auto blackwell = [](int block_n, auto change) {
    GemmSchedule schedule;
    schedule.block_n = block_n, schedule.cta_group = 1, schedule.stages = 2;
    change(schedule);
    return schedule;
  };
  GemmSchedule turns = hopper(false);
  turns.split_k = 2, turns.split_mode = SplitMode::kTurnstile;
  return {{"hopper", Arch::kSm90a, hopper(false)},
          {"hopper_swapped", Arch::kSm90a, hopper(true)},
          {"hopper_turns", Arch::kSm90a, turns, false},
          {"blackwell", Arch::kSm100a, blackwell(64, [](GemmSchedule&) {})},
          {"blackwell_swapped", Arch::kSm100a, blackwell(32, [](GemmSchedule& s) { s.swap_ab = true, s.k_group = 1; })},
          {"blackwell_pair", Arch::kSm100a,
           blackwell(64,
                     [](GemmSchedule& s) {
                       s.cta_group = 2, s.cluster = ClusterShape{2, 2}, s.clc_depth = 2;
                     })},
          {"blackwell_groups", Arch::kSm100a, blackwell(64, [](GemmSchedule& s) { s.k_group = 2, s.stages = 4; })},
          {"blackwell_parts", Arch::kSm100a, blackwell(64, [](GemmSchedule& s) { s.split_k = 2; }), false}};
}

INSTANTIATE_TEST_SUITE_P(, Layers, ::testing::ValuesIn(forms()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright::gemm_dependent_launch_test
