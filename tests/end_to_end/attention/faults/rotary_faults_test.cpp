// Deliberate mistakes in how attention_sm90 takes a rotary part in tensors of its own. The emulator must find each.
// Needs NVRTC.
#include <gmock/gmock.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/kernel_faults.h"

namespace kernelwright::rotary_faults_test {
namespace {

using test::change;

struct Fault {
  const char* name;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // "deadlock", "race", ..: must be among the findings
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

/// 40 plain columns, whose slab is filled up with zeros, and 16 rotary ones, of which keys have one for both heads.
CudaCase call_of_two_heads() {
  CudaCase test;
  test.problem = heads(dims(default_problem(), 56, 24), 2, 2);
  test.problem.rope.width = 16;
  test.schedule.family = Family::kHopper;
  test.schedule.math_warpgroups = 1;
  test.schedule.block_n = 48;
  test.shape = lists({}, {100, 120});
  test.shape.q_len = 60;
  test.options.one_rope = true;
  return test;
}

const Fault kFaults[] = {
    {"right", {}, nullptr},
    {"rotary_columns_counted_from_the_heads_first",
     {change("slab_source", "rope", "(slab - kPlainSlabs)", "slab")},
     "wrong result"},
    {"rotary_part_from_the_other_map", {change("slab_source", "rope", "rope", "plain")}, "wrong result"},
    {"all_slabs_from_the_rotary_map", {change("slab_source", "if", "slab < kPlainSlabs", "false")}, "wrong result"},
    {"rotary_keys_of_each_head",
     {change("slab_source", "rope_head_step", "* maps.rope_head_step", "")},
     "wrong result"},
    {"rotary_queries_of_the_first_head",
     {change("query_maps", "q_rope", "1", "params.rope_head_step")},
     "wrong result"},
    {"products_over_the_zeros_of_the_plain_part",
     {change("MathWarpgroup::issue_scores", "score_depth", "shape().score_depth()", "spec::kHeadDimQk")},
     "wrong result"},
    {"rotary_queries_not_expected", {change("load", "expect_bytes", "kSlabsQk", "kSlabsPlain")}, "race"},
    {"rotary_keys_not_loaded", {change("load", "load_keys", "kLoadedKeySlabs", "kSlabsPlain")}, "deadlock"},
};

class RotaryFaults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(RotaryFaults, AreFound) {
  const Fault& fault = GetParam();
  const test::Findings findings =
      test::run_with_edits("attention_sm90", call_of_two_heads(), fault.edits, Arch::kSm90a);
  if (fault.found)
    EXPECT_THAT(findings.found, testing::Contains(fault.found)) << findings.text;
  else
    EXPECT_EQ(findings.text, "");
}

INSTANTIATE_TEST_SUITE_P(Each, RotaryFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::rotary_faults_test
