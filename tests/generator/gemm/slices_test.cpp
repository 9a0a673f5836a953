// How GEMMs of groups of kind k are planned, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/validate.h"

namespace kernelwright::slices_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The gradients of 128 experts' weights [2048, 768].
GemmConfig gradients() {
  GemmConfig config;
  config.name = "slices";
  config.problem.n = 768, config.problem.k = 512;
  config.problem.layout = OperandLayout::kTn;
  config.problem.groups = {.kind = GroupKind::kK, .count = 128};
  return config;
}

std::vector<std::string> refusals(const std::function<void(GemmConfig&)>& change, Arch arch = Arch::kSm90a) {
  GemmConfig config = gradients();
  change(config);
  std::vector<std::string> texts;
  for (const Violation& violation : validate(config, arch)) texts.push_back(violation.text());
  return texts;
}

TEST(GemmSlicesPlan, FieldsThatDoNotFitAreRefused) {
  EXPECT_THAT(refusals([](GemmConfig&) {}), IsEmpty());
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.groups.bounds = GroupBounds::kEnds; }), IsEmpty());
  EXPECT_THAT(
      refusals([](GemmConfig& c) { c.problem.groups.bounds = GroupBounds::kCounts; }),
      Contains(HasSubstr("/problem/groups/bounds: \"counts\" does not go with kind \"k\"; it takes starts or")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.groups.gather = true; }),
              Contains(HasSubstr("/problem/groups/gather: true does not go with kind \"k\"")));
  EXPECT_THAT(
      refusals([](GemmConfig& c) { c.problem.layout = OperandLayout::kNt; }),
      Contains(HasSubstr("/problem/layout: \"nt\" has k side by side, and groups of kind \"k\" have rows of a")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.k = 0; }),
              Contains(HasSubstr("/problem/k: 0 rows of a group are expected of kind \"k\"; it takes 1 or more")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.scales = ScaleKind::kPerTensor; }),
              Contains(HasSubstr("/problem/scales: \"per_tensor\" does not go with groups of kind \"k\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.problem.dtype.d = DType::kE4m3;
                c.problem.epilogue = "d = quantize(acc, e4m3, per=token_group(128), scale=s)";
              }),
              Contains(HasSubstr("quantises, which does not go with groups of kind \"k\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.schedule.roles = Roles::kPingPong; }),
              Contains(HasSubstr("/schedule/roles: \"ping_pong\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.schedule.swap_ab = true; }),
              Contains(HasSubstr("/schedule/swap_ab: true with groups of kind \"k\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.schedule.cluster = ClusterShape{2, 1};
              }),
              Contains(HasSubstr("/schedule/cluster: [2, 1] with groups of kind \"k\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.schedule.split_k = 2; }), Contains(HasSubstr("/schedule/split_k: 2")));
}

TEST(GemmSlicesPlan, ShapesSayWhichRowsOfAAndBGroupsHave) {
  const auto of = [](GemmShape shape) { return refusals([&](GemmConfig& c) { c.shapes = {std::move(shape)}; }); };
  GemmShape shape{"some", 128 * 64};
  EXPECT_EQ(rows_of_bounds(gradients().problem, shape), 128 * 512);
  EXPECT_THAT(of(shape), IsEmpty());
  shape.rows = 300, shape.source_rows = 200;
  EXPECT_THAT(of(shape), Contains(HasSubstr("/shapes/0/rows: 300 is more than the rows of a and b, 200")));
  shape = {"odd", 130};
  EXPECT_THAT(of(shape),
              ElementsAre(HasSubstr("/shapes/0/m: 130 rows are not the same number for each of 128 groups")));
}

TEST(GemmSlicesPlan, WarpgroupsShareATile) {
  const GemmPlan plan = plan_by_model(gradients().problem, {}, Arch::kSm90a);
  for (const GemmVariant& variant : plan.variants) {
    EXPECT_EQ(variant.spec.roles, Roles::kCooperative);
    EXPECT_EQ(variant.spec.cluster(), 1);
    EXPECT_FALSE(variant.spec.swap_ab);
  }
  const GemmExtent extent = extent_of(gradients().problem, {"all", 128 * 2048});
  EXPECT_EQ(extent.groups, 128);
  EXPECT_EQ(count_items(plan.variants.back().spec, extent), 128 * 16 * 3);
}

TEST(GemmSlicesPlan, BlackwellHasPairsAndNoLargerClusters) {
  for (const GemmVariant& variant : plan_by_model(gradients().problem, {}, Arch::kSm100a).variants) {
    EXPECT_EQ(variant.spec.family, Family::kBlackwell);
    EXPECT_EQ(variant.spec.cluster(), variant.spec.cta_group);
    EXPECT_EQ(variant.spec.scheduler, Scheduler::kPersistent);
  }
  GemmConfig config = gradients();
  config.schedule.family = Family::kBlackwell;
  config.schedule.cta_group = 2, config.schedule.cluster = ClusterShape{4, 2};
  try {
    plan_gemm(config.problem, config.schedule, Arch::kSm100a);
    ADD_FAILURE() << "no refusal";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/schedule/cluster: [4, 2] with groups of kind \"k\" is not built yet for the "
                                        "blackwell family; it has [2, 1] with cta_group 2"));
  }
}

}  // namespace
}  // namespace kernelwright::slices_test
