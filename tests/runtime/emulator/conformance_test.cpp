/// Every conformance file on the emulator, against what the GPU wrote.
#include "runtime/emulator/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "support/paths.h"

namespace kernelwright::test {
namespace {

std::filesystem::path folder() { return source_dir() / "tests" / "runtime" / "emulator" / "ptx"; }

std::string test_name(const std::filesystem::path& file) {
  std::string name = file.parent_path().filename().string() + "_" + file.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

class Conformance : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Conformance, EmulatorAgreesWithWhatTheGpuWrote) {
  const ConformanceCase test = read_conformance_case(GetParam());
  const Outputs found = make_emulator_conformance_device()->run(test);
  const Recorded recorded = Recorded::read(recorded_file(test));
  const Outputs* truth = recorded.find(test);
  if (!truth) GTEST_SKIP() << "it runs; no GPU's outputs are recorded";
  for (const ConformanceBuffer& buffer : test.buffers) {
    if (buffer.role == ConformanceBuffer::Role::kIn) continue;
    const Agreement agreement = compare_output(buffer, found.at(buffer.name), truth->at(buffer.name));
    EXPECT_EQ(agreement.differing, 0u) << buffer.name << agreement.first;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Conformance, testing::ValuesIn(conformance_files(folder())),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace kernelwright::test
