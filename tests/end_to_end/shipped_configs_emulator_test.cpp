// Every shipped config on the emulator, at its check shapes, with the hazard checks on: right against the fp64
// reference, the same twice, and not one report. Through the command, as a person would. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "kernelwright/generator/config_json.h"
#include "kernelwright/generator/validate.h"
#include "kernelwright/runtime/nvrtc_path.h"
#include "support/command.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

/// Names of the configs that a kernel exists for.
std::vector<std::string> shipped_configs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "configs" / "problems"))
    if (entry.path().extension() == ".json" && !why_no_kernel(read_config_file(entry.path().string())))
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class ShippedConfigOnEmulator : public testing::TestWithParam<std::string> {};

TEST_P(ShippedConfigOnEmulator, IsRightAndWithoutAHazard) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const std::string config = (test::source_dir() / "configs" / "problems" / (GetParam() + ".json")).string();
  const CommandResult result = run_command({"run", config, "--device", "emulator", "--hazards"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr("on emulated sm_"));
}

INSTANTIATE_TEST_SUITE_P(All, ShippedConfigOnEmulator, testing::ValuesIn(shipped_configs()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace kernelwright
