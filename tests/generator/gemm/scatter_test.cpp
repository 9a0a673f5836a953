// Groups whose rows a launch scatters: what is planned, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/validate.h"

namespace kernelwright::scatter_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GemmConfig scattered() {
  GemmConfig config;
  config.name = "scatter";
  config.problem.n = 2048, config.problem.k = 768;
  config.problem.groups = {.kind = GroupKind::kRows, .count = 128, .scatter = true};
  return config;
}

std::vector<std::string> refusals(const std::function<void(GemmConfig&)>& change, Arch arch = Arch::kSm90a) {
  GemmConfig config = scattered();
  change(config);
  std::vector<std::string> texts;
  for (const Violation& violation : validate(config, arch)) texts.push_back(violation.text());
  return texts;
}

TEST(GemmScatterPlan, FieldsThatDoNotFitAreRefused) {
  EXPECT_THAT(refusals([](GemmConfig&) {}), IsEmpty());
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.groups.gather = true; }), IsEmpty());
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.groups = {.scatter = true}; }),
              Contains(HasSubstr("/problem/groups/scatter: true is given and no kind; rows or masked")));
  EXPECT_THAT(refusals([](GemmConfig& c) { c.problem.groups.kind = GroupKind::kBatch; }),
              Contains(HasSubstr("/problem/groups/scatter: true does not go with kind \"batch\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.problem.groups.kind = GroupKind::kK;
                c.problem.layout = OperandLayout::kTn;
              }),
              Contains(HasSubstr("/problem/groups/scatter: true does not go with kind \"k\"")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.problem.dtype.d = DType::kE4m3;
                c.problem.epilogue = "d = quantize(acc, e4m3, per=token_group(128), scale=s)";
              }),
              Contains(HasSubstr("/problem/groups/scatter: true does not go with an epilogue that quantises")));
  EXPECT_THAT(refusals([](GemmConfig& c) {
                c.problem.groups.scatter = false;
                c.shapes = {{"one", 128}};
                c.shapes[0].result_rows = 3;
              }),
              Contains(HasSubstr("/shapes/0/result_rows: has no meaning without scatter")));
}

TEST(GemmScatterPlan, EveryFamilyServes) {
  for (const auto& [arch, family] : {std::pair{Arch::kSm90a, Family::kHopper}, {Arch::kSm100a, Family::kBlackwell}})
    for (const GemmVariant& variant : plan_by_model(scattered().problem, {}, arch).variants) {
      EXPECT_EQ(variant.spec.family, family);
      EXPECT_TRUE(variant.spec.scatter);
    }
  EXPECT_EQ(plan_by_model(scattered().problem, {}, Arch::kSm80).variants.back().spec.family, Family::kPortable);
}

}  // namespace
}  // namespace kernelwright::scatter_test
