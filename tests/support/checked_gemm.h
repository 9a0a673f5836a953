/// A fixture for tests of GEMMs on the emulator, with every check on. Needs NVRTC and no GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/emulated_gemm.h"

namespace kernelwright::test {

class CheckedGemm : public testing::Test {
 protected:
  explicit CheckedGemm(emulator::Completion completion = emulator::Completion::kEager, Arch arch = Arch::kSm90a)
      : engine_(make_checking_engine(4, completion, 1, arch)) {}
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  GemmOutput run(const GemmCase& call, const GemmSchedule& schedule, const TensorChange& change = {}) {
    return run_checked(engine_, call, schedule, change);
  }
  void expect_right(const GemmProblem& problem, const GemmShape& shape, const GemmSchedule& schedule,
                    const GemmInputOptions& options = {.seed = 3, .padding = 5}) {
    SCOPED_TRACE(problem.epilogue);
    const GemmCase call = make_gemm_inputs(problem, shape, options);
    test::expect_right(call, run(call, schedule));
  }
  void expect_right(const GemmProblem& problem, const GemmShape& shape, const Tile& tile, int padding = 0) {
    SCOPED_TRACE(tile.name);
    expect_right(problem, shape, schedule_of(tile), {.seed = 5, .padding = padding});
  }
  /// What preparing the problem says; nothing if it is taken.
  std::string refusal(const GemmProblem& problem, const GemmSchedule& schedule = {}) {
    try {
      engine_.prepare(problem, schedule);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  Engine engine_;
};

}  // namespace kernelwright::test
