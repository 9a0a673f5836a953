// Kernels that Triton compiled (make_triton_ptx.py), under every completion policy: right results, and no report that
// is graded error.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/hazard_rule.h"
#include "runtime/emulator/launches/ptx_case.h"
#include "runtime/emulator/triton/triton_references.h"
#include "support/paths.h"

namespace kernelwright::test {
namespace {

using emulator::Completion;

std::string launches_file() { return source_dir() / "tests/runtime/emulator/triton/ptx/launches.json"; }

PtxCase triton_case(const std::string& name) {
  for (PtxCase& test : read_ptx_cases(launches_file(), name))
    if (test.name == name) return std::move(test);
  throw Error(launches_file() + " has no case " + name);
}

/// $KERNELWRIGHT_EMULATOR_SEEDS, else 2.
std::uint64_t num_seeds() {
  const char* text = std::getenv("KERNELWRIGHT_EMULATOR_SEEDS");
  return text ? std::strtoull(text, nullptr, 10) : 2;
}

void expect_near(const std::map<std::string, Expected>& expected, const PtxCaseRun& run) {
  for (const auto& [name, result] : expected) {
    const std::vector<double> found = run.after.at(name).values();
    ASSERT_EQ(found.size(), result.value.size()) << name;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::abs(found[i] - result.value[i]) <= result.allowed[i]) continue;
      if (wrong++ == 0)
        ADD_FAILURE() << name << "[" << i << "] is " << found[i] << "; " << result.value[i] << " +- "
                      << result.allowed[i] << " is expected";
    }
    EXPECT_EQ(wrong, 0u) << name << " has " << found.size() << " elements";
  }
}

/// By name: every process of this binary makes the list of tests, and reads the PTX of none but its own.
class TritonKernels : public testing::TestWithParam<std::string> {};

TEST_P(TritonKernels, AreRightAndWithoutErrorsUnderEveryPolicy) {
  const PtxCase test = triton_case(GetParam());
  std::map<std::string, Expected> expected;
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    for (std::uint64_t seed = 1; seed <= num_seeds(); ++seed) {
      SCOPED_TRACE("completion " + std::to_string(static_cast<int>(completion)) + ", seed " + std::to_string(seed));
      const PtxCaseRun run = run_ptx_case(
          test, test.ptx, {.hazards = true, .completion = completion, .seed = seed, .shuffle = true, .threads = 1});
      ASSERT_EQ(run.fault, "");
      for (const emulator::HazardReport& report : run.hazards)
        EXPECT_NE(emulator::row_of(report.rule).grade, emulator::HazardGrade::kError) << report.text();
      if (expected.empty()) expected = triton_expected(test, run.before);
      expect_near(expected, run);
    }
}
INSTANTIATE_TEST_SUITE_P(Compiled, TritonKernels, testing::ValuesIn(ptx_case_names(launches_file())),
                         [](const auto& test) { return test.param; });

/// A reference that a case lacks, or an output that a reference lacks, would go unseen.
TEST(TritonCases, HaveAReferenceForEachOutput) {
  for (const PtxCase& test : read_ptx_cases(launches_file())) {
    const PtxCaseRun run = run_ptx_case(test, test.ptx, {.threads = 1});
    const auto expected = triton_expected(test, run.before);
    for (const auto& [name, buffer] : run.before)
      EXPECT_EQ(buffer.output != OutputKind::kNone, expected.count(name) == 1) << test.name << ", " << name;
  }
}

}  // namespace
}  // namespace kernelwright::test
