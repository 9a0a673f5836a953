// Values in columns: which problems and families take them, and what the hopper family plans for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
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
  problem.dtype = {q, DType::kE4m3, q == DType::kF16 ? q : DType::kBf16};
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
              ElementsAre("/problem/v_layout: \"columns\" is not built yet for the portable family; it has rows; "
                          "the hopper family takes this problem"));
  EXPECT_THAT(texts(columns(), of(Family::kBlackwell), Arch::kSm100a),
              ElementsAre("/problem/v_layout: \"columns\" is not built yet for the blackwell family; it has rows; "
                          "sm_90a takes this problem"));
  EXPECT_THAT(texts(columns(DType::kBf16), {}, Arch::kSm80),
              testing::Contains("/problem/v_layout: \"columns\" is not built yet for the portable family; it has rows; "
                                "sm_90a takes this problem"));
  for (const DType q : {DType::kF16, DType::kBf16, DType::kE4m3})
    EXPECT_THAT(texts(columns(q), of(Family::kHopper)), IsEmpty());
}

TEST(ValueColumns, AreLoadedWholeByEachCtaAndBesideARingOfKeys) {
  const auto refused = [](const std::function<void(AttentionSchedule&)>& change,
                          DType q = DType::kE4m3) -> std::string {
    AttentionSchedule schedule = of(Family::kHopper);
    change(schedule);
    try {
      plan_by_model(columns(q), schedule, Arch::kSm90a);
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
  // Converted, they pass through a ring of either kind.
  for (const KvRing ring : {KvRing::kSplit, KvRing::kShared})
    EXPECT_EQ(refused([&](AttentionSchedule& schedule) { schedule.kv_ring = ring; }, DType::kF16), "");
  EXPECT_EQ(refused(
                [](AttentionSchedule& schedule) {
                  schedule.cluster = ClusterShape{2, 1};
                },
                DType::kBf16),
            "/schedule/cluster: [2, 1]: tiles of e4m3 are converted by each CTA for itself; [1, 1] would do");
  EXPECT_EQ(refused([](AttentionSchedule& schedule) { schedule.num_mma_stages = 2; }, DType::kBf16),
            "/schedule/num_mma_stages: 2: tiles of e4m3 are converted whole; 1 would do");
  EXPECT_EQ(refused([](AttentionSchedule& schedule) { schedule.swizzle = Swizzle::kNone; }, DType::kBf16),
            "/schedule/swizzle: \"none\": tiles of e4m3 are converted by pieces of 16 bytes in rows of two at least; "
            "\"32B\" would do");
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

// Converted, keys are two bytes each, and the slabs do not follow the pages.
TEST(ValueColumns, BecomeSlabsAsWideAsATileMayHave) {
  EXPECT_EQ(contract::converted_slab_bytes(64), 128);
  EXPECT_EQ(contract::converted_slab_bytes(96), 64);
  EXPECT_EQ(contract::converted_slab_bytes(80), 32);
  AttentionSchedule schedule;
  schedule.kv_ring = KvRing::kSplit, schedule.block_n = 96, schedule.math_warpgroups = 2;
  const auto uses_of = [&](DType q) {
    std::map<std::string, std::string> uses;
    for (const SharedRegion& region : shared_map(plan_by_model(columns(q, 64), schedule, Arch::kSm90a).main))
      uses[region.name] = region.use;
    return uses;
  };
  auto converted = uses_of(DType::kF16), stored = uses_of(DType::kBf16);
  EXPECT_THAT(converted["values"], testing::EndsWith("of [3][128][32], columns"));
  EXPECT_EQ(converted["keys and values as they came"],
            "4 slots of [2][96][64] of K and [3][128][32] of V in turn, e4m3");
  EXPECT_THAT(stored["keys"], testing::EndsWith("of [1][96][128] e4m3"));
  EXPECT_THAT(stored["values"], testing::EndsWith("of [3][128][32], columns"));
  EXPECT_EQ(stored["values as they came"], "2 slots of [3][128][32] e4m3");
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
