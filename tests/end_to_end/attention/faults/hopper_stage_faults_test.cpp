// Deliberate mistakes in how attention_sm90 takes tiles that come in sub-stages. The emulator must find each. Needs
// NVRTC.
#include <gmock/gmock.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/kernel_faults.h"

namespace kernelwright::hopper_stage_faults_test {
namespace {

using test::after, test::change, test::drop;

struct Fault {
  const char* name;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // "deadlock", "race", ..: must be among the findings
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

/// One ring whose slots have two sub-stages; a last tile with keys past the sequence's end.
CudaCase call_in_stages() {
  CudaCase test;
  test.problem = heads(default_problem(), 1, 1);
  test.schedule.family = Family::kHopper;
  test.schedule.math_warpgroups = 1;
  test.schedule.block_n = 64;
  test.schedule.kv_ring = KvRing::kShared;
  test.schedule.num_kv_stages = 2;
  test.schedule.num_mma_stages = 2;
  test.shape = lists({}, {170, 320});
  test.shape.q_len = 60;
  return test;
}

const Fault kFaults[] = {
    {"right", {}, nullptr},
    {"later_sub_stages_of_keys_not_waited_for",
     {change("MathWarpgroup::issue_scores", "wait_k", "wait_k", "k_tile")},
     "race"},
    {"later_sub_stages_of_values_not_waited_for",
     {change("MathWarpgroup::issue_output", "wait_v", "wait_v", "v_tile")},
     "race"},
    {"keys_let_go_of_as_soon_as_products_are_issued",
     {after("MathWarpgroup::issue_scores", "take_more", "tiles_.template release_k<kStage>();"),
      change("end_scores", "release_whole_k", "release_whole_k", "release_k")},
     "race"},
    {"later_sub_stages_not_let_go_of",
     {change("end_output", "release_whole_v", "release_whole_v", "template release_v<0>")},
     "deadlock"},
    {"16_bytes_of_a_sub_stage_not_expected",
     {change("get_tile", "tile_bytes", "tile_bytes", "kPart == 0 ? tile_bytes : tile_bytes - 16")},
     "deadlock"},
    {"cleaned_before_all_sub_stages_land", {drop("take_values", "wait_more_v")}, "race"},
};

class HopperStageFaults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(HopperStageFaults, AreFound) {
  const Fault& fault = GetParam();
  const test::Findings findings = test::run_with_edits("attention_sm90", call_in_stages(), fault.edits, Arch::kSm90a);
  if (fault.found)
    EXPECT_THAT(findings.found, testing::Contains(fault.found)) << findings.text;
  else
    EXPECT_EQ(findings.text, "");
}

INSTANTIATE_TEST_SUITE_P(Each, HopperStageFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::hopper_stage_faults_test
