// Programmatic dependent launch of GEMMs: weights may be loaded before the kernel ahead has ended, and nothing else.
// On the emulator, where nothing overlaps, the checker says what would go wrong if it did.
#include <gtest/gtest.h>

#include "kernelwright/runtime/compiler.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine.h"
#include "kernelwright/verify/gemm_device.h"
#include "support/ptx_store.h"

namespace kernelwright {
namespace {

/// Two layers of a network: the second's a is the first's d.
struct Layers : ::testing::TestWithParam<bool> {
  static constexpr int kRows = 72, kWidth = 192;

  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  static EngineOptions options() {
    EngineOptions options;
    options.backend = "emulator";
    options.emulator.arch = Arch::kSm90a;
    options.emulator.hazards = true;
    options.emulator.num_sms = 4;
    options.custom_store = test::ptx_store();
    return options;
  }
  static GemmProblem problem() {
    GemmProblem problem;
    problem.n = problem.k = kWidth;
    return problem;
  }
  static GemmSchedule schedule() {
    GemmSchedule schedule;
    schedule.block_m = 64, schedule.block_n = 64, schedule.math_warpgroups = 1, schedule.k_group = 1;
    schedule.roles = Roles::kCooperative;
    schedule.swap_ab = GetParam();
    return schedule;
  }

  Engine engine{options()};
  std::vector<emulator::KernelHazard> reports() {
    return dynamic_cast<EmulatorBackend&>(engine.backend()).take_reports();
  }
  /// The second layer's d. Its weights are the first's d where `written` says so.
  GemmOutput run(bool pdl, bool written) {
    const GemmCase call = make_gemm_inputs(problem(), {.name = "layers", .m = written ? kWidth : kRows});
    const GemmKernel kernel = engine.prepare(problem(), schedule());
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
  EXPECT_FALSE(found.empty());
  for (const auto& [kernel, report] : found)
    EXPECT_EQ(report.kind, emulator::HazardKind::kGridDependency) << report.text();
}

INSTANTIATE_TEST_SUITE_P(, Layers, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "swapped" : "as_they_are"; });

}  // namespace
}  // namespace kernelwright
