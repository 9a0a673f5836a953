// How a batch of GEMMs is planned, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/validate.h"

namespace kernelwright::batch_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A product of a latent attention: each of 128 heads has a matrix [512, 128].
GemmConfig absorbed_q() {
  GemmConfig config;
  config.name = "batch";
  config.problem.n = 512, config.problem.k = 128;
  config.problem.groups = {.kind = GroupKind::kBatch, .count = 128};
  return config;
}

std::vector<std::string> refusals(const GemmConfig& config, Arch arch = Arch::kSm90a) {
  std::vector<std::string> texts;
  for (const Violation& violation : validate(config, arch)) texts.push_back(violation.text());
  return texts;
}

TEST(GemmBatchPlan, FieldsOfOtherGroupsAreRefused) {
  const auto of = [](const auto& change) {
    GemmConfig config = absorbed_q();
    change(config);
    return refusals(config);
  };
  EXPECT_TRUE(refusals(absorbed_q()).empty());
  EXPECT_THAT(of([](GemmConfig& c) { c.problem.groups.gather = true; }),
              Contains(HasSubstr("/problem/groups/gather: true does not go with kind \"batch\"")));
  EXPECT_THAT(of([](GemmConfig& c) { c.problem.groups.bounds = GroupBounds::kEnds; }),
              Contains(HasSubstr("/problem/groups/bounds: \"ends\" does not go with kind \"batch\"")));
  EXPECT_THAT(of([](GemmConfig& c) { c.problem.layout = OperandLayout::kTn; }),
              Contains(HasSubstr("/problem/layout: \"tn\" has rows of a side by side")));
  EXPECT_THAT(of([](GemmConfig& c) { c.schedule.split_k = 2; }),
              Contains(HasSubstr("/schedule/split_k: 2 parts of k of groups is not built yet")));
  EXPECT_THAT(
      of([](GemmConfig& c) { c.problem.dtype.a = c.problem.dtype.b = DType::kTf32, c.problem.dtype.d = DType::kF32; }),
      Contains(HasSubstr("/problem/dtype/a: \"tf32\" is not built yet for the hopper family")));
  EXPECT_THAT(of([](GemmConfig& c) {
                c.shapes = {{"odd", 130}};
              }),
              ElementsAre(HasSubstr("/shapes/0/m: 130 rows are not the same number for each of 128 groups; 256")));
  EXPECT_THAT(of([](GemmConfig& c) {
                GemmShape shape{"few", 256};
                shape.rows = 3, shape.active = 2;
                c.shapes = {shape};
              }),
              ElementsAre(HasSubstr("/shapes/0/rows: has no meaning for a batch"),
                          HasSubstr("/shapes/0/active: has no meaning for a batch")));
}

TEST(GemmBatchPlan, BlackwellServesItInEveryDtype) {
  GemmConfig config = absorbed_q();
  for (const DType dtype : {DType::kBf16, DType::kTf32, DType::kMxfp8, DType::kNvfp4}) {
    config.problem.dtype.a = config.problem.dtype.b = dtype;
    config.problem.scales = is_block_scaled(dtype) ? ScaleKind::kPerBlock : ScaleKind::kNone;
    for (const GemmVariant& variant : plan_by_model(config.problem, {}, Arch::kSm100a).variants)
      EXPECT_EQ(variant.spec.family, Family::kBlackwell);
  }
}

TEST(GemmBatchPlan, FewTokensHaveSwappedTilesAsNarrowAsTheyAreFew) {
  const GemmPlan plan = plan_by_model(absorbed_q().problem, {}, Arch::kSm90a);
  for (const auto& [rows, columns] : {std::pair{1, 8}, {8, 8}, {16, 16}, {32, 32}}) {
    const GemmSpec& spec = plan.variant_for(rows).spec;
    EXPECT_TRUE(spec.swap_ab) << rows;
    EXPECT_EQ(spec.block_n, columns) << rows;
  }
  EXPECT_FALSE(plan.variant_for(4096).spec.swap_ab);
  for (const GemmVariant& variant : plan.variants) EXPECT_EQ(variant.spec.split_k, 1);
}

/// No CTA reads bounds, so a launch has the fewest CTAs that end in the same round, as a dense one has.
TEST(GemmBatchPlan, ALaunchCountsTheTilesOfAllGroups) {
  const GemmProblem problem = absorbed_q().problem;
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_m = 128, schedule.block_n = 128, schedule.math_warpgroups = 2;
  const GemmSpec spec = plan_by_model(problem, schedule, Arch::kSm90a).variant_for(1).spec;
  const auto ctas = [&](int rows) {
    return plan_launch(spec, extent_of(problem, {"rows", rows * problem.groups.count}), 132, 0).grid[0];
  };
  EXPECT_EQ(ctas(0), 0u);
  EXPECT_EQ(ctas(1), 128u) << "512 tiles in 4 rounds";
  EXPECT_EQ(ctas(128), ctas(1));
  EXPECT_EQ(ctas(129), 128u) << "1024 tiles in 8 rounds";
  EXPECT_EQ(count_items(spec, extent_of(problem, {"rows", 129 * 128})), 1024);
}

TEST(GemmBatchPlan, ATileOfOneWarpgroupLeavesRoomForTwoCtas) {
  const ArchInfo& arch = arch_info(Arch::kSm90a);
  for (const int k : {64, 128, 512, 4096}) {
    GemmProblem problem = absorbed_q().problem;
    problem.k = k;
    const GemmPlan plan = plan_by_model(problem, {}, Arch::kSm90a);
    int shared = 0;
    for (const GemmVariant& variant : plan.variants) {
      if (variant.spec.math_warpgroups > 1) continue;
      ++shared;
      const int of_cta = static_cast<int>(shared_bytes(variant.spec)) + arch.reserved_shared_bytes_per_cta;
      EXPECT_LE(2 * of_cta, arch.shared_bytes_per_sm) << k << ", to " << variant.most_m << " rows";
    }
    EXPECT_GT(shared, 0) << k;
  }
}

TEST(GemmBatchPlan, SlotsAreWholeGroupsOfSlabs) {
  for (const int group : {1, 2, 4}) {
    GemmSchedule schedule;
    schedule.family = Family::kHopper, schedule.k_group = group;
    for (const GemmVariant& variant : plan_by_model(absorbed_q().problem, schedule, Arch::kSm90a).variants)
      EXPECT_EQ(variant.spec.stages % group, 0) << group;
  }
}

TEST(GemmBatchPlan, CtasShareAnSmIfEachHasTwoTiles) {
  const GemmSpec spec = plan_by_model(absorbed_q().problem, {}, Arch::kSm90a).variants.front().spec;  // 64 columns
  const auto grid = [&](int groups, int budget) {
    const GemmExtent extent{.m = groups, .n = 512, .k = 128, .sm_budget = budget, .groups = groups};
    return plan_launch(spec, extent, 132, 4 * 132).grid[0];
  };
  EXPECT_EQ(grid(16, 0), 128u);   // 128 tiles, one for each CTA
  EXPECT_EQ(grid(128, 0), 512u);  // 1024 tiles, two for each CTA
  EXPECT_EQ(grid(65, 0), 130u);   // 520 tiles: with two for each CTA, some SMs would have twice as many as others
  EXPECT_EQ(grid(66, 0), 264u);   // 528 tiles
  EXPECT_EQ(grid(128, 8), 8u);    // a budget is of SMs, and two CTAs may land on two
}

}  // namespace
}  // namespace kernelwright::batch_test
