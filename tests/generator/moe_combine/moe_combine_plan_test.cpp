// Which kernel adds up the rows of a token's experts, what is refused, and how many CTAs a launch has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/moe_combine/plan.h"

namespace kernelwright::moe_combine_plan_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

MoeCombineProblem rows(int width, int top_k) {
  MoeCombineProblem problem;
  problem.width = width, problem.top_k = top_k;
  return problem;
}

std::vector<std::string> refusals(const std::function<void(MoeCombineConfig&)>& change) {
  MoeCombineConfig config{"", rows(4096, 8), {}, {}};
  change(config);
  std::vector<std::string> texts;
  try {
    plan_moe_combine(config.problem, config.schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    for (const Violation& violation : error.violations()) texts.push_back(violation.text());
  }
  return texts;
}

TEST(PlanMoeCombine, SpreadsATokenOverCtasAndKeepsAllRowsInFlight) {
  const auto threads = [](int width, int top_k) {
    return plan_moe_combine(rows(width, top_k), {}, Arch::kSm90a).spec.threads();
  };
  EXPECT_EQ(threads(7168, 8), 128);
  EXPECT_EQ(threads(7168, 24), 128);
  EXPECT_EQ(threads(7168, 32), 96) << "parts of 32 rows fill the shared memory";
  EXPECT_EQ(plan_launch(plan_moe_combine(rows(7168, 8), {}, Arch::kSm90a).spec, 1).grid[0], 7u);
  EXPECT_EQ(plan_launch(plan_moe_combine(rows(8, 8), {}, Arch::kSm90a).spec, 129).grid[0], 2u);
  MoeCombineSchedule narrow;
  narrow.threads = 32;
  EXPECT_EQ(plan_launch(plan_moe_combine(rows(16384, 8), narrow, Arch::kSm90a).spec, kMostCombinedTokens).grid[0],
            1u << 30);
}

TEST(PlanMoeCombine, RefusesFieldsByName) {
  EXPECT_THAT(refusals([](MoeCombineConfig&) {}), IsEmpty());
  EXPECT_THAT(refusals([](MoeCombineConfig& c) { c.problem.width = 1004; }),
              ElementsAre("/problem/width: 1004 is not in [8, 16384] in steps of 8"));
  EXPECT_THAT(refusals([](MoeCombineConfig& c) { c.problem.top_k = 33; }),
              ElementsAre("/problem/top_k: 33 is outside [1, 32]"));
  EXPECT_THAT(refusals([](MoeCombineConfig& c) {
                c.problem.dtype = {DType::kF32, DType::kE4m3};
              }),
              ElementsAre("/problem/dtype/in: \"f32\" does not fit; it takes f16 or bf16",
                          "/problem/dtype/out: \"e4m3\" does not fit; it takes f16, bf16 or f32"));
  EXPECT_THAT(refusals([](MoeCombineConfig& c) { c.problem.top_k = 1, c.problem.weighted = false; }),
              ElementsAre("/problem/weighted: false with a top_k of 1 and without a residual adds nothing up; rows are "
                          "only copied"));
  EXPECT_THAT(refusals([](MoeCombineConfig& c) { c.schedule.threads = 512; }),
              ElementsAre("/schedule/threads: 512 threads with a top_k of 8 need 65536 bytes of shared memory, and "
                          "49152 are the most; 384 would do"));
  EXPECT_THAT(refusals([](MoeCombineConfig& c) { c.schedule.family = Family::kHopper; }),
              ElementsAre("/schedule/family: \"hopper\" has no kernel that adds up rows of experts; portable has one "
                          "for every architecture"));
}

TEST(MoeCombineJson, ReadsWhatItWrites) {
  MoeCombineConfig config{"sums", rows(7168, 8), {}, {{.name = "one", .tokens = 1}}};
  config.problem.dtype = {DType::kF16, DType::kF32};
  config.problem.weighted = false, config.problem.residual = true;
  config.schedule.threads = 256;
  EXPECT_EQ(std::get<MoeCombineConfig>(read_config(write_config(config))), config);
}

}  // namespace
}  // namespace kernelwright::moe_combine_plan_test
