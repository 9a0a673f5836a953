/// A fixture for tests of GEMMs on the emulator, with every check on. Needs NVRTC and no GPU.
#pragma once

#include <gtest/gtest.h>

#include "support/emulated_gemm.h"

namespace kernelwright::test {

class CheckedGemm : public testing::Test {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  void expect_right(const GemmProblem& problem, const GemmShape& shape, const GemmSchedule& schedule,
                    const GemmInputOptions& options = {.seed = 3, .padding = 5}) {
    SCOPED_TRACE(problem.epilogue);
    const GemmCase call = make_gemm_inputs(problem, shape, options);
    test::expect_right(call, run_checked(engine_, call, schedule));
  }
  Engine engine_ = make_checking_engine(4, emulator::Completion::kEager, 1);
};

}  // namespace kernelwright::test
