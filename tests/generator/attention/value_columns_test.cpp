// Values in columns: which problems and families take them, and what the hopper family plans for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "contract/attention_sm90.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/attention/validate.h"

namespace kernelwright::value_columns_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

AttentionProblem columns(DType q = DType::kE4m3, int page = 128) {
  AttentionProblem problem;
  problem.dtype = {q, DType::kE4m3, DType::kBf16};
  problem.heads = {8, 2};
  problem.kv_layout = {KvLayoutKind::kPaged, page};
  problem.v_layout = VLayout::kColumns;
  return problem;
}

std::vector<std::string> texts(const AttentionProblem& problem, const AttentionSchedule& schedule = {},
                               Arch arch = Arch::kSm90a) {
  std::vector<std::string> lines;
  for (const Violation& violation : validate({"t", problem, schedule, {}}, arch)) lines.push_back(violation.text());
  return lines;
}

AttentionSchedule of(Family family) {
  AttentionSchedule schedule;
  schedule.family = family;
  return schedule;
}

TEST(ValueColumns, AreOfFp8InPagesOfWholeRuns) {
  EXPECT_THAT(texts(columns()), IsEmpty());
  AttentionProblem wide = columns(DType::kBf16, 24);
  wide.dtype.kv = DType::kBf16;
  wide.max_q_len = 1;
  const std::vector<std::string> found = texts(wide);
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0], "/problem/v_layout: \"columns\" does not fit bf16 values; it takes e4m3 or e5m2");
  EXPECT_EQ(found[1], "/problem/v_layout: \"columns\" needs pages of a multiple of 16 keys");
  AttentionProblem padded = columns();
  padded.kv_layout = {};
  EXPECT_THAT(texts(padded), ElementsAre("/problem/v_layout: \"columns\" needs pages of a multiple of 16 keys"));
}

TEST(ValueColumns, AreRefusedByNameWhereNoKernelReadsThem) {
  EXPECT_THAT(texts(columns(DType::kBf16), of(Family::kPortable), Arch::kSm90a),
              ElementsAre("/problem/v_layout: \"columns\" is not built yet for the portable family; it has rows"));
  EXPECT_THAT(texts(columns(), of(Family::kBlackwell), Arch::kSm100a),
              ElementsAre("/problem/v_layout: \"columns\" is not built yet for the blackwell family; it has rows; "
                          "sm_90a takes this problem"));
  EXPECT_THAT(
      texts(columns(DType::kBf16), of(Family::kHopper)),
      ElementsAre("/problem/v_layout: \"columns\" is not built yet for the hopper family; it has rows here, and "
                  "columns with e4m3 queries and in its decode form"));
}

TEST(ValueColumns, AreLoadedWholeByEachCtaAndBesideARingOfKeys) {
  const auto refused = [](const std::function<void(AttentionSchedule&)>& change) -> std::string {
    AttentionSchedule schedule = of(Family::kHopper);
    change(schedule);
    try {
      plan_by_model(columns(), schedule, Arch::kSm90a);
    } catch (const ConfigError& error) {
      return error.violations().front().text();
    }
    return "";
  };
  EXPECT_EQ(refused([](AttentionSchedule&) {}), "");
  EXPECT_EQ(refused([](AttentionSchedule& schedule) { schedule.kv_ring = KvRing::kShared; }),
            "/schedule/kv_ring: \"shared\": rows of ones stay behind the values of each slot; \"split\" would do");
  EXPECT_EQ(refused([](AttentionSchedule& schedule) {
              schedule.cluster = ClusterShape{2, 1};
            }),
            "/schedule/cluster: [2, 1]: tiles of e4m3 are loaded by each CTA for itself; [1, 1] would do");
}

// A box of keys lies within one page, and is a slab of its own.
TEST(ValueColumns, ComeInSlabsAsWideAsBoxesMayBe) {
  EXPECT_EQ(contract::column_slab_bytes(128, 128), 128);
  EXPECT_EQ(contract::column_slab_bytes(128, 256), 128);
  EXPECT_EQ(contract::column_slab_bytes(128, 64), 64);
  EXPECT_EQ(contract::column_slab_bytes(96, 128), 32);
  EXPECT_EQ(contract::column_slab_bytes(96, 48), 16) << "48 keys are no power of two";
  EXPECT_EQ(contract::column_slab_bytes(128, 16), 16);
}

TEST(ValueColumns, LeaveTheMemoryOfRawTilesAndTheRegistersOfConvertingWarps) {
  AttentionProblem rows = columns();
  rows.v_layout = VLayout::kRows;
  const AttentionSpec in_rows = plan_by_model(rows, {}, Arch::kSm90a).main;
  AttentionSpec in_columns = plan_by_model(columns(), {}, Arch::kSm90a).main;
  EXPECT_EQ(in_columns.family, Family::kHopper);
  EXPECT_GE(in_columns.num_kv_stages, in_rows.num_kv_stages);
  in_columns.num_kv_stages = in_rows.num_kv_stages;
  EXPECT_GE(shared_bytes(in_rows) - shared_bytes(in_columns), 2u * 128 * 128);
  for (const SharedRegion& region : shared_map(in_columns)) EXPECT_EQ(region.name.find("came"), std::string::npos);
  AttentionProblem decode = columns(DType::kBf16, 16);
  decode.max_q_len = 1;
  EXPECT_EQ(plan_by_model(decode, {}, Arch::kSm90a).main.form(), AttentionForm::kHopperDecode);
  decode.max_q_len = 12;  // more rows than those for which it was timed, and portable lacks columns
  EXPECT_EQ(plan_by_model(decode, {}, Arch::kSm90a).main.form(), AttentionForm::kHopperDecode);
}

}  // namespace
}  // namespace kernelwright::value_columns_test
