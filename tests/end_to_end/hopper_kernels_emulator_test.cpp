// The Hopper kernels on the emulator: TMA, mbarriers, clusters, wgmma and their ordering, from the PTX that NVRTC
// emits. They must match the fp64 reference, cause no report under every completion policy and many schedules, and give
// the same bits each time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <ostream>

#include "kernelwright/runtime/engine/emulated_machine.h"
#include "runtime/emulator/kernels/hopper_cases.h"

namespace kernelwright::hopper_kernels_emulator_test {
namespace {

using emulator::Completion;
using test::HopperCase;
using test::HopperOutcome;

Compiler& compiler() {
  static Compiler one;
  return one;
}

std::string texts(EmulatorBackend& backend) {
  std::string all;
  for (const emulator::KernelHazard& hazard : backend.take_reports())
    all += hazard.kernel + ": " + hazard.report.text() + "\n";
  return all;
}

class HopperKernelsOnTheEmulator : public testing::TestWithParam<const HopperCase*> {
 protected:
  void SetUp() override {
    if (compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(HopperKernelsOnTheEmulator, MatchTheReferenceWithoutAReportHoweverTheyAreScheduled) {
  const Binary binary = test::compile_hopper(compiler(), *GetParam(), /*line_info=*/true);
  // Three seeds under each policy, one of the many cases of a kernel that ships; a longer run takes more from the
  // environment.
  const char* asked = std::getenv("KERNELWRIGHT_EMULATOR_SEEDS");
  const int seeds = asked ? std::atoi(asked) : GetParam()->of_templates ? 1 : 3;
  std::vector<std::byte> first;
  for (int seed = 0; seed < seeds; ++seed)
    for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom}) {
      const auto backend =
          make_emulator_backend({.hazards = true, .completion = completion, .seed = static_cast<std::uint64_t>(seed)});
      Device& device = backend->device(0);
      const KernelImage image = test::hopper_image(device, *GetParam(), binary);
      const HopperOutcome outcome = GetParam()->run(device, image, 1);
      EXPECT_EQ(outcome.failure, "") << "seed " << seed << ", completion " << static_cast<int>(completion);
      EXPECT_EQ(texts(*backend), "") << "seed " << seed << ", completion " << static_cast<int>(completion);
      if (first.empty()) first = outcome.output;
      EXPECT_EQ(first, outcome.output) << "seed " << seed << ", completion " << static_cast<int>(completion);
      if (HasFailure()) return;  // one schedule that fails says enough
    }
}

INSTANTIATE_TEST_SUITE_P(Emulator, HopperKernelsOnTheEmulator, testing::ValuesIn(test::pointers_to_hopper_cases()),
                         [](const testing::TestParamInfo<const HopperCase*>& info) { return info.param->name; });

}  // namespace
}  // namespace kernelwright::hopper_kernels_emulator_test
