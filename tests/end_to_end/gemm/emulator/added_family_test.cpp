// A family is one row: a toy family that stands in a file of its own is added, planned, launched and run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "end_to_end/gemm/emulator/copy_family.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "kernelwright/runtime/engine/notes.h"

namespace kernelwright::added_family_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRows = 70, kWidth = 136;  // no whole tiles either way

GemmProblem square(int width = kWidth) {
  GemmProblem problem;
  problem.n = problem.k = width;
  return problem;
}

std::vector<std::string> texts(const std::vector<Violation>& violations) {
  std::vector<std::string> lines;
  for (const Violation& violation : violations) lines.push_back(violation.text());
  return lines;
}

TEST(AddedFamily, PlansWhatItTakesAndLeavesTheRestToTheOthers) {
  GemmProblem oblong = square();
  oblong.n = 2 * kWidth;
  const GemmPlan before = plan_by_model(square(), {}, Arch::kSm90a);
  EXPECT_EQ(before.variants.back().spec.family, Family::kHopper);
  {
    const detail::AddedGemmFamily added(test::kCopyRow);
    for (const Arch arch : {Arch::kSm80, Arch::kSm90a, Arch::kSm100a}) {
      const GemmPlan plan = plan_by_model(square(), {}, arch);
      ASSERT_EQ(plan.variants.size(), 1U);
      EXPECT_EQ(plan.variants[0].spec.family, test::kCopyFamily);
      EXPECT_EQ(kernel_name(plan.variants[0].spec), "toy_copy");
    }
    EXPECT_EQ(plan_by_model(oblong, {}, Arch::kSm90a).variants.back().spec.family, Family::kHopper);
    GemmSchedule tall;
    tall.block_m = 128;
    EXPECT_THAT([&] { plan_by_model(square(), tall, Arch::kSm90a); },
                testing::ThrowsMessage<ConfigError>(HasSubstr("a CTA copies 64 rows at most")));
    EXPECT_THAT(texts(validate(GemmConfig{"", square(), {}, {}}, Arch::kSm90a)), ElementsAre());
  }
  const GemmPlan after = plan_by_model(square(), {}, Arch::kSm90a);
  EXPECT_EQ(after.variants, before.variants);
}

TEST(AddedFamily, IsSpecialisedCompiledAndRunOnTheEmulator) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const detail::AddedGemmFamily added(test::kCopyRow);
  const GemmSpec spec = plan_by_model(square(), {}, Arch::kSm90a).variant_for(kRows).spec;
  const KernelNotes notes = notes_of(spec);
  ASSERT_EQ(notes.roles.size(), 1U);
  EXPECT_EQ(notes.roles[0].name, "copy");
  EXPECT_TRUE(notes.shared.empty());

  const SourceUnit unit = specialize(spec, test::copy_closure());
  EXPECT_THAT(unit.spec_header, HasSubstr("kFamily = Family(64);"));
  const std::string ptx = Compiler().compile_with_lines(unit);

  EmulatorBackendOptions options;
  options.hazards = true;
  const auto backend = make_emulator_backend(options);
  Device& device = backend->device(0);
  std::vector<std::uint16_t> a(std::size_t{kRows} * kWidth), d(a.size(), 0);
  std::iota(a.begin(), a.end(), std::uint16_t{1});
  const std::size_t bytes = a.size() * sizeof(a[0]);
  const DevicePtr a_at = device.allocate(bytes), d_at = device.allocate(bytes);
  device.copy_to_device(a_at, a.data(), bytes);
  device.copy_to_device(d_at, d.data(), bytes);

  const LaunchPlan plan = plan_launch(spec, {kRows, kWidth, kWidth, 0}, device.info().num_sms, 0);
  EXPECT_EQ(plan.grid[0], 3U * 3U) << "tiles of 32 rows and 64 columns, one each";
  EXPECT_EQ(plan.block, 128U);
  const auto kernel = device.load(KernelImage(std::string_view(ptx)), unit.entry, plan.shared_bytes);
  LaunchConfig config;
  config.grid[0] = plan.grid[0];
  config.block = plan.block;
  const test::CopyParams params{reinterpret_cast<const void*>(a_at), reinterpret_cast<void*>(d_at), kRows, kWidth};
  device.launch(*kernel, config, &params, sizeof params, nullptr);
  device.copy_to_host(d.data(), d_at, bytes);
  EXPECT_EQ(d, a);
  for (const auto& [name, report] : backend->take_reports()) ADD_FAILURE() << name << ": " << report.text();
  device.free(a_at);
  device.free(d_at);
}

}  // namespace
}  // namespace kernelwright::added_family_test
