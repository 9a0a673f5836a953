// Deliberate mistakes in how attention_sm90 converts values in columns for 16-bit queries. The emulator must find each.
// Needs NVRTC.
#include <gmock/gmock.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/kernel_faults.h"

namespace kernelwright::hopper_columns_faults_test {
namespace {

using test::change;

struct Fault {
  const char* name;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // must be among the findings; null: there must be none
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

/// Heads of 48, three blocks of 16 elements. Tiles of 48 keys, three runs, of which the last is alone. Keys at both
/// ends that no row sees.
CudaCase call_in_columns() {
  CudaCase test;
  test.problem = causal(left_padded(paged(fp8(heads(dims(default_problem(), 48, 48), 1, 1), ScaleKind::kNone), 96)));
  test.problem.v_layout = VLayout::kColumns;
  test.schedule.family = Family::kHopper;
  test.schedule.math_warpgroups = 1;
  test.schedule.block_n = 48;
  test.schedule.num_kv_stages = 2;
  test.schedule.kv_ring = KvRing::kSplit;
  test.shape = lists({}, {170, 131});
  test.shape.q_len = 60;
  test.shape.kv_starts = {5, 53};
  return test;
}

const Fault kFaults[] = {
    {"right", {}, nullptr},
    {"halves_of_a_run_change_places",
     {change("WidenedColumns::store", "st_shared_v4 #1", "pieces[0]", "pieces[1]")},
     "wrong result"},
    {"second_piece_not_swizzled",
     {change("WidenedColumns::store", "st_shared_v4 #2", "at ^ contract::kPieceBytes", "at + contract::kPieceBytes")},
     "race"},
    {"unseen_keys_not_cleared", {change("ColumnTile::mask", "word", "0xffu", "0u")}, "wrong result"},
    {"unseen_keys_counted_in_the_order_of_bytes",
     {change("ColumnTile::mask", "kept", "2 * w + b / 2 * 8 + b % 2", "4 * w + b")},
     "wrong result"},
    {"unseen_keys_of_the_second_run_counted_as_the_first",
     {change("write_columns", "mask", "run + lane_run", "run")},
     "wrong result"},
    {"a_run_behind_the_last_one",
     {change("WidenedColumns::exists", "lane_run", "first_run(block) + lane_run < kRuns", "true")},
     "mbarrier misuse"},
    {"16_bytes_of_columns_not_expected",
     {change("ValueColumns::load", "get_tile", "spec::kHeadDimV * spec::kBlockN",
             "spec::kHeadDimV * spec::kBlockN - 16")},
     "deadlock"},
    {"boxes_from_the_start_of_a_page", {change("ValueColumns::load", "OwnBoxes", "key % kPage", "0")}, "wrong result"},
    {"columns_multiplied_as_rows",
     {change("MathWarpgroup::issue_output", "kValueSwizzleBytes", "!kKeysInside", "true")},
     "wrong result"},
};

class HopperColumnsFaults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(HopperColumnsFaults, AreFound) {
  const Fault& fault = GetParam();
  const test::Findings findings = test::run_with_edits("attention_sm90", call_in_columns(), fault.edits, Arch::kSm90a);
  if (fault.found)
    EXPECT_THAT(findings.found, testing::Contains(fault.found)) << findings.text;
  else
    EXPECT_EQ(findings.text, "");
}

INSTANTIATE_TEST_SUITE_P(Each, HopperColumnsFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::hopper_columns_faults_test
