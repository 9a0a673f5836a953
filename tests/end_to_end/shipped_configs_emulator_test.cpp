// Every shipped config on the emulator, at its check shapes, with the hazard checks on. It must match the fp64
// reference and cause no report. It runs once through the command, as a person would run it, and in this process under
// every completion policy and other schedules, with the same bits each time. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/compile/nvrtc_path.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "support/command.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

std::string path_of(const std::string& name) {
  return (test::source_dir() / "configs" / "problems" / (name + ".json")).string();
}

/// Names of the configs; of attention only, or of all kinds. Empty without a repository: a carried binary can still run
/// its other tests.
std::vector<std::string> shipped_configs(bool attention_alone = false) {
  std::vector<std::string> names;
  std::filesystem::path folder;
  try {
    folder = test::source_dir() / "configs" / "problems";
  } catch (const std::runtime_error&) {
    return names;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    if (attention_alone && !std::holds_alternative<AttentionConfig>(read_config_file(entry.path().string()))) continue;
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ShippedConfigOnEmulator : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(ShippedConfigOnEmulator, IsRightAndWithoutAHazard) {
  const CommandResult result = run_command({"run", path_of(GetParam()), "--device", "emulator", "--hazards"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr("on emulated sm_"));
}

INSTANTIATE_TEST_SUITE_P(All, ShippedConfigOnEmulator, testing::ValuesIn(shipped_configs()), test_name);

class ShippedAttentionOnEmulator : public ShippedConfigOnEmulator {};

// The number of heads is a run-time parameter and each (KV head, query tile) a cluster of its own: two KV heads run the
// config's own kernel with all that it can do, at a fraction of the time.
TEST_P(ShippedAttentionOnEmulator, GivesTheSameBitsWithoutAReportHoweverItIsScheduled) {
  const auto config = std::get<AttentionConfig>(read_config_file(path_of(GetParam())));
  AttentionProblem problem = config.problem;
  problem.heads.kv = std::min(problem.heads.kv, 2);
  problem.heads.q = problem.heads.kv * config.problem.group();
  const Arch arch = config.schedule.arch.value_or(Arch::kSm90a);
  // One seed, with the same inputs for all; the environment may ask for more seeds. Seed 0 shuffles nothing.
  const char* asked = std::getenv("KERNELWRIGHT_EMULATOR_SEEDS");
  const std::uint64_t seeds = asked ? std::strtoull(asked, nullptr, 10) : 1;
  ASSERT_GT(seeds, 0u) << "KERNELWRIGHT_EMULATOR_SEEDS is no number of seeds: " << asked;

  const auto store = std::make_shared<KernelStore>();
  std::vector<AttentionCase> calls;
  for (const AttentionShape& shape : config.shapes)
    if (shape.check) calls.push_back(make_inputs(problem, shape));
  ASSERT_FALSE(calls.empty()) << "the config has no check shape";
  std::vector<AttentionOutput> first(calls.size());
  int launches = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    for (const emulator::Completion completion :
         {emulator::Completion::kEager, emulator::Completion::kLazy, emulator::Completion::kRandom}) {
      SCOPED_TRACE(fmt::format("seed {}, completion {}", seed, static_cast<int>(completion)));
      const std::shared_ptr<EmulatorBackend> backend =
          make_emulator_backend({.arch = arch, .hazards = true, .completion = completion, .seed = seed});
      EngineOptions options;
      options.custom_backend = backend;
      options.custom_store = store;
      options.custom_rows = std::make_shared<const TunedTable>();  // a neighbour's distance counts heads
      Engine engine(options);
      const AttentionKernel kernel = engine.prepare(problem, config.schedule);
      for (std::size_t i = 0; i < calls.size(); ++i, ++launches) {
        DeviceCase on_device(engine.device(0), calls[i], kernel);
        on_device.poison();
        on_device.launch();
        AttentionOutput output = on_device.download();
        EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written, call " << i;
        if (launches < static_cast<int>(calls.size())) {
          EXPECT_TRUE(kernel.plan().main == plan_by_model(config.problem, config.schedule, arch).main)
              << "fewer heads made another kernel than the config's";
          const Verdict verdict = verify(calls[i], output);
          EXPECT_TRUE(verdict.passed) << "call " << i << ": " << verdict.text;
          first[i] = std::move(output);
        } else {
          EXPECT_TRUE(output == first[i]) << "other bits than under seed 1 and eager completion, call " << i;
        }
      }
      for (const emulator::KernelHazard& hazard : backend->take_reports())
        ADD_FAILURE() << hazard.kernel << ": " << hazard.report.text();
      if (HasFailure()) return;  // one schedule that fails says enough
    }
  RecordProperty("launches", launches);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedAttentionOnEmulator, testing::ValuesIn(shipped_configs(true)), test_name);

}  // namespace
}  // namespace kernelwright
