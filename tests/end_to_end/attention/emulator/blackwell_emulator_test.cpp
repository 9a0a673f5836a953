// attention_sm100 on the emulator, with every check on. Each case must match the fp64 reference, cause no report, and
// give the same bits under every schedule. This is its only run: there is no such GPU here. Needs NVRTC.
#include <gtest/gtest.h>

#include <map>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "support/emulated_attention.h"

namespace kernelwright {
namespace {

using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;
using test::verdict_of;

/// Cases by the first word of their names, so that a test takes a few seconds.
const std::map<std::string, std::vector<CudaCase>>& cases_by_name() {
  static const std::map<std::string, std::vector<CudaCase>> groups = [] {
    std::map<std::string, std::vector<CudaCase>> made;
    for (const CudaCase& test : blackwell_cases()) {
      const std::string name = test.name.substr(test.name.find('_') + 1);
      made[name.substr(0, std::min(name.find('_'), name.find_first_of("0123456789")))].push_back(test);
    }
    return made;
  }();
  return groups;
}
std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const auto& [name, cases] : cases_by_name()) list.push_back(name);
  return list;
}

class BlackwellAttentionOnTheEmulator : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(BlackwellAttentionOnTheEmulator, IsRightHoweverItIsScheduled) {
  Engine random = make_checking_engine(4, emulator::Completion::kRandom, 7, Arch::kSm100a),
         lazy = make_checking_engine(148, emulator::Completion::kLazy, 0, Arch::kSm100a);
  for (const CudaCase& test : cases_by_name().at(GetParam())) {
    SCOPED_TRACE(test.name);
    const AttentionCase call = inputs_of(test);
    const AttentionOutput output = run_checked(random, test, call);
    EXPECT_TRUE(output == run_checked(lazy, test, call)) << "two machines differ";
    const Verdict verdict = verdict_of(call, output);
    EXPECT_TRUE(verdict.passed) << verdict.text;
  }
}

INSTANTIATE_TEST_SUITE_P(, BlackwellAttentionOnTheEmulator, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kernelwright
