// Kernels with the traits of other people's kernels. They must match a reference in fp64 under every completion policy
// and several schedules, give the same bits each time, and cause no report.
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernelwright/runtime/engine/emulated_machine.h"
#include "runtime/emulator/foreign/foreign_cases.h"

namespace kernelwright::foreign_test {
namespace {

using emulator::Completion;
using test::HopperCase;
using test::HopperOutcome;

Compiler& compiler() {
  static Compiler one;
  return one;
}

class ForeignKernels : public testing::TestWithParam<HopperCase> {
 protected:
  void SetUp() override {
    if (compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

std::string texts(EmulatorBackend& backend) {
  std::string all;
  for (const emulator::KernelHazard& hazard : backend.take_reports()) {
    const emulator::HazardRuleRow& row = row_of(hazard.report.rule);
    all += std::string(name_of(row.grade)) + " " + std::string(row.name) + ": " + hazard.report.text() + "\n";
  }
  return all;
}

TEST_P(ForeignKernels, MatchTheReferenceWithoutAReportHoweverTheyAreScheduled) {
  const HopperCase& test = GetParam();
  const Binary binary = test::compile_hopper(compiler(), test, /*line_info=*/true);
  const char* asked = std::getenv("KERNELWRIGHT_EMULATOR_SEEDS");  // a longer run takes more from the environment
  const int seeds = asked ? std::atoi(asked) : test.name.ends_with("_long") ? 1 : 3;
  std::vector<std::byte> first;
  for (int seed = 0; seed < seeds; ++seed)
    for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", completion " + std::to_string(static_cast<int>(completion)));
      const auto backend = make_emulator_backend({.arch = test.arch,
                                                  .hazards = true,
                                                  .completion = completion,
                                                  .seed = static_cast<std::uint64_t>(seed),
                                                  .threads = 1});
      Device& device = backend->device(0);
      const HopperOutcome outcome = test.run(device, test::hopper_image(device, test, binary), 1);
      EXPECT_EQ(outcome.failure, "");
      EXPECT_EQ(texts(*backend), "");  // of any grade
      if (first.empty()) first = outcome.output;
      EXPECT_EQ(first, outcome.output);
      if (HasFailure()) return;  // one schedule that fails says enough
    }
}

INSTANTIATE_TEST_SUITE_P(Emulator, ForeignKernels, testing::ValuesIn(test::foreign_cases()),
                         [](const testing::TestParamInfo<HopperCase>& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright::foreign_test
