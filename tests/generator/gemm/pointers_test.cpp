// Groups whose matrices b a launch gives by their addresses: what is planned, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/validate.h"

namespace kernelwright::pointers_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GemmConfig experts() {
  GemmConfig config;
  config.name = "pointers";
  config.problem.n = 2048, config.problem.k = 768;
  config.problem.groups = {.kind = GroupKind::kMasked, .count = 128, .bounds = GroupBounds::kCounts, .pointers = true};
  return config;
}

std::vector<std::string> refusals(const std::function<void(GemmConfig&)>& change, Arch arch = Arch::kSm90a) {
  GemmConfig config = experts();
  change(config);
  std::vector<std::string> texts;
  for (const Violation& violation : validate(config, arch)) texts.push_back(violation.text());
  return texts;
}

TEST(GemmPointersPlan, FieldsThatDoNotFitAreRefused) {
  EXPECT_THAT(refusals([](GemmConfig&) {}), IsEmpty());
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.groups.gather = c.problem.groups.scatter = true; }), IsEmpty());
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.groups = {.pointers = true}; }),
              Contains(HasSubstr("/problem/groups/pointers: true is given and no kind; rows or masked")));
  EXPECT_THAT(
      refusals([](GemmConfig& c) { c.problem.groups = {.kind = GroupKind::kBatch, .count = 4, .pointers = true}; }),
      Contains(HasSubstr("/problem/groups/pointers: true does not go with kind \"batch\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.problem.groups = {.kind = GroupKind::kK, .count = 4, .pointers = true};
                c.problem.layout = OperandLayout::kTn;
              }),
              Contains(HasSubstr("/problem/groups/pointers: true does not go with kind \"k\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.k = 0; }),
              Contains(HasSubstr("/problem/k: 0 leaves nothing that pointers lead to; it takes 1 or more")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.schedule.family = Family::kHopper;
                c.schedule.cluster = ClusterShape{2, 1};
              }),
              Contains(HasSubstr("/schedule/cluster: [2, 1] with pointers")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.schedule.family = Family::kHopper;
                c.schedule.swizzle = Swizzle::k64B;
              }),
              Contains(HasSubstr("/schedule/swizzle: ")));
  const auto blackwell = [](auto change) {
    return refusals(
        [&](GemmConfig& c) {
          c.schedule.family = Family::kBlackwell;
          change(c.schedule);
        },
        Arch::kSm100a);
  };
  EXPECT_THAT(blackwell([](GemmSchedule& s) {
                s.cluster = ClusterShape{1, 2};
              }),
              Contains(HasSubstr("/schedule/cluster: [1, 2] with pointers")));
  EXPECT_THAT(blackwell([](GemmSchedule& s) { s.swizzle = Swizzle::k64B; }),
              Contains(HasSubstr("/schedule/swizzle: ")));
  EXPECT_THAT(blackwell([](GemmSchedule& s) { s.cta_group = 2; }), Contains(HasSubstr("/schedule/cta_group: 2")));
}

TEST(GemmPointersPlan, EveryFamilyServes) {
  for (const auto& [arch, family] : {std::pair{Arch::kSm90a, Family::kHopper}, {Arch::kSm100a, Family::kBlackwell}})
    for (const GemmVariant& variant : plan_by_model(experts().problem, {}, arch).variants) {
      EXPECT_EQ(variant.spec.family, family);
      EXPECT_TRUE(variant.spec.pointers);
      EXPECT_EQ(variant.spec.cluster(), 1);
    }
  EXPECT_EQ(plan_by_model(experts().problem, {}, Arch::kSm80).variants.back().spec.family, Family::kPortable);
}

}  // namespace
}  // namespace kernelwright::pointers_test
