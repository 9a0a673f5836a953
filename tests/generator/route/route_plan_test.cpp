// Which kernels choose experts, what is refused, and how many CTAs a launch has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "contract/route.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/route/plan.h"

namespace kernelwright::route_plan_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RouteProblem router(int experts = 256, int top_k = 8) {
  RouteProblem problem;
  problem.experts = experts, problem.top_k = top_k;
  return problem;
}

std::vector<std::string> refusals(const std::function<void(RouteConfig&)>& change) {
  RouteConfig config{"", router(), {}, {}};
  change(config);
  std::vector<std::string> texts;
  for (const Violation& violation : validate(config, Arch::kSm90a)) texts.push_back(violation.text());
  if (!texts.empty()) return texts;
  try {
    plan_route(config.problem, config.schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    texts.push_back(error.what());
  }
  return texts;
}

TEST(PlanRoute, DealsWholeLanesToGroups) {
  for (int groups = 1; groups <= 32; ++groups) {
    const int lanes = contract::lanes_of_group(groups);
    EXPECT_LE(lanes * groups, 32);
    EXPECT_GT(2 * lanes * groups, 32);
    for (const int of_group : {1, 2, 7, 30}) {
      const int own = contract::experts_of_lane(groups * of_group, groups);
      EXPECT_GE(own * lanes, of_group);
      const int load = contract::logits_of_load(groups * of_group, groups, 2);
      EXPECT_TRUE(own % load == 0 && of_group % load == 0) << groups << " " << of_group;
    }
  }
  EXPECT_EQ(contract::logits_of_load(256, 8, 4), 4);
  EXPECT_EQ(contract::logits_of_load(256, 1, 2), 8);
  EXPECT_EQ(contract::logits_of_load(60, 1, 2), 2);
}

TEST(PlanRoute, HasOneKernelForFewTokensAndASortForMany) {
  const RoutePlan plan = plan_route(router(), {}, Arch::kSm90a);
  ASSERT_TRUE(plan.sort);
  EXPECT_EQ(plan.spec.warps, 16);
  EXPECT_EQ(plan_route(router(1024), {}, Arch::kSm90a).spec.warps, 8);
  EXPECT_FALSE(plan_launch(plan.spec, 0).sorts_apart);
  EXPECT_FALSE(plan_launch(plan.spec, 16).sorts_apart);
  EXPECT_EQ(plan_launch(plan.spec, 16).workspace_bytes, 0u);
  const RouteLaunch some = plan_launch(plan.spec, 512);
  EXPECT_TRUE(some.sorts_apart);
  EXPECT_EQ(some.main.grid[0], 64u);
  EXPECT_EQ(some.workspace_bytes, 64u * 256 * 2) << "counts have 16 bits";
  const RouteSpec words = plan_route(router(16), {}, Arch::kSm90a).spec;
  for (const std::int64_t tokens : {std::int64_t{8192}, std::int64_t{8193}, most_tokens(words)}) {
    const RouteLaunch launch = plan_launch(words, tokens);
    EXPECT_LE(launch.main.grid[0], 128u);
    const std::int64_t of_cta = std::int64_t{launch.tokens_per_warp} * launch.main.block / 32;
    EXPECT_GE(launch.main.grid[0] * of_cta, tokens);
    EXPECT_LT((launch.main.grid[0] - 1) * of_cta, tokens);
  }
  RouteProblem chosen = router();
  chosen.sort = false;
  EXPECT_FALSE(plan_route(chosen, {}, Arch::kSm90a).sort);
}

TEST(PlanRoute, GivesCountsOf16BitsMoreCtasForMoreTokens) {
  const RouteSpec spec = plan_route(router(), {}, Arch::kSm90a).spec;
  ASSERT_TRUE(spec.short_counts);
  EXPECT_EQ(plan_launch(spec, 1 << 20).main.grid[0], 129u);
  for (const std::int64_t tokens : {std::int64_t{8192}, std::int64_t{1} << 20, most_tokens(spec)}) {
    const RouteLaunch launch = plan_launch(spec, tokens);
    const std::int64_t of_cta = std::int64_t{launch.tokens_per_warp} * launch.main.block / 32;
    EXPECT_LE(of_cta * contract::kRowsOfShortSum, 65535) << "a sum of rows has 16 bits";
    EXPECT_GE(launch.main.grid[0] * of_cta, tokens);
    EXPECT_EQ(launch.workspace_bytes, std::uint64_t{launch.main.grid[0]} * 256 * 2);
  }
}

TEST(PlanRoute, SpreadsFewTokensOverMoreCtas) {
  const RouteSpec spec = plan_route(router(), {}, Arch::kSm90a).spec;
  const auto shape = [&](std::int64_t tokens) {
    const LaunchPlan launch = plan_launch(spec, tokens).main;
    return std::pair(launch.grid[0], launch.block / 32);
  };
  EXPECT_EQ(shape(8), std::pair(1u, 8u));
  EXPECT_EQ(shape(9), std::pair(1u, 16u)) << "one CTA has all, and no kernel follows";
  EXPECT_EQ(shape(16), std::pair(1u, 16u));
  EXPECT_EQ(shape(17), std::pair(3u, 8u));
  EXPECT_EQ(shape(1024), std::pair(128u, 8u));
  EXPECT_EQ(shape(1025), std::pair(65u, 16u));
  RouteSchedule schedule;
  schedule.warps = 16;
  EXPECT_EQ(plan_launch(plan_route(router(), schedule, Arch::kSm90a).spec, 512).main.grid[0], 32u);
}

TEST(PlanRoute, AWorkspaceForMoreTokensServesFewer) {
  for (const int experts : {16, 256, 1024}) {
    const RouteSpec spec = plan_route(router(experts), {}, Arch::kSm90a).spec;
    std::uint64_t needed = 0;
    for (std::int64_t tokens = 0; tokens < 5000; ++tokens) {
      needed = std::max(needed, plan_launch(spec, tokens).workspace_bytes);
      ASSERT_EQ(most_workspace_bytes(spec, tokens), needed) << tokens;
    }
    EXPECT_EQ(most_workspace_bytes(spec, 8192), needed);
    EXPECT_GE(most_workspace_bytes(spec, 1 << 22), needed);
  }
}

TEST(PlanRoute, TakesABoundForManyExpertsOfWhichManyAreChosen) {
  const auto bounded = [](const RouteProblem& problem) { return plan_route(problem, {}, Arch::kSm90a).spec.bounded; };
  EXPECT_TRUE(bounded(router(256, 8)));
  EXPECT_TRUE(bounded(router(128, 8)));
  EXPECT_FALSE(bounded(router(32, 4)));
  EXPECT_FALSE(bounded(router(256, 2)));
  RouteProblem groups = router();
  groups.n_group = 8, groups.topk_group = 4;
  EXPECT_TRUE(bounded(groups));
  groups.topk_group = 1;
  EXPECT_FALSE(bounded(groups)) << "four lanes have experts of the group, and eight are chosen";
  groups.score = RouteScore::kGiven, groups.n_group = groups.topk_group = 1;
  EXPECT_FALSE(bounded(groups));
  RouteSchedule rounds;
  rounds.choice = RouteChoice::kRounds, rounds.counts = RouteCounts::kU32;
  const RoutePlan plan = plan_route(router(), rounds, Arch::kSm90a);
  EXPECT_FALSE(plan.spec.bounded || plan.spec.short_counts || plan.sort->short_counts);
  EXPECT_EQ(plan.choices.back().reason, "the schedule says so");
}

TEST(PlanRoute, RefusesFieldsThatContradictEachOther) {
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.n_group = 7; }),
              ElementsAre("/problem/n_group: 7 does not divide 256 experts; groups have equal numbers of them"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.n_group = 8, c.problem.topk_group = 9; }),
              ElementsAre("/problem/topk_group: 9 groups are more than n_group, which is 8"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.n_group = 32, c.problem.topk_group = 1, c.problem.top_k = 9; }),
              ElementsAre("/problem/top_k: 9 is more than the 8 experts of topk_group groups"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.experts = 4; }),
              ElementsAre("/problem/top_k: 8 is more than the 4 experts"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.group_score = GroupScore::kMax; }),
              ElementsAre("/problem/group_score: \"max\" has no meaning for one group"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.score = RouteScore::kNone, c.problem.renormalize = true; }),
              ElementsAre("/problem/renormalize: true is for scores, whose sum is not below 0: softmax or sigmoid"));
  EXPECT_THAT(
      refusals([](RouteConfig& c) { c.problem.order = RouteOrder::kTopKFirst, c.problem.renormalize = true; }),
      ElementsAre("/problem/renormalize: true has no meaning for a softmax of the chosen experts, whose sum is 1"));
  EXPECT_THAT(
      refusals([](RouteConfig& c) { c.problem.score = RouteScore::kNone, c.problem.order = RouteOrder::kTopKFirst; }),
      ElementsAre("/problem/order: \"top_k_first\" has no meaning for score \"none\"; leave it out"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.sort = false, c.problem.alignment = 8; }),
              ElementsAre("/problem/alignment: 8 has no meaning without sort"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.sort = false, c.problem.local_experts = 8; }),
              ElementsAre("/problem/local_experts: 8 has no meaning without sort"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.local_experts = 300; }),
              ElementsAre("/problem/local_experts: 300 is more than the 256 experts"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.dtype = DType::kE4m3; }),
              ElementsAre("/problem/dtype: \"e4m3\" does not fit; it takes f16, bf16 or f32"));
}

TEST(PlanRoute, GivenExpertsLeaveNothingToChoose) {
  const auto refusals_of = [](const std::function<void(RouteProblem&)>& change) {
    return refusals([&](RouteConfig& c) {
      c.problem.score = RouteScore::kGiven;
      change(c.problem);
    });
  };
  EXPECT_THAT(refusals_of([](RouteProblem&) {}), IsEmpty());
  EXPECT_THAT(refusals_of([](RouteProblem& p) { p.sort = false; }),
              ElementsAre("/problem/sort: false leaves nothing to do where experts are given"));
  EXPECT_THAT(
      refusals_of([](RouteProblem& p) { p.bias = p.renormalize = true, p.factor = 2; }),
      ElementsAre("/problem/bias: true has no meaning where experts are given; leave it out",
                  "/problem/renormalize: true has no meaning where experts are given; leave it out",
                  "/problem/factor: another number than 1 has no meaning where experts are given; leave it out"));
}

TEST(PlanRoute, RefusesSchedulesThatDoNotFit) {
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.experts = 1024, c.schedule.counts = RouteCounts::kU16; }),
              ElementsAre("/schedule/counts: \"u16\" takes 49200 bytes of shared memory for 1024 experts and 8 warps, "
                          "and a CTA has 49152; \"u32\" is accepted"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.sort = false, c.schedule.counts = RouteCounts::kU16; }),
              ElementsAre("/schedule/counts: \"u16\" has no meaning without sort; leave it out"));
  EXPECT_THAT(
      refusals([](RouteConfig& c) { c.problem.score = RouteScore::kGiven, c.schedule.choice = RouteChoice::kBound; }),
      ElementsAre("/schedule/choice: \"bound\" has no meaning where experts are given; leave it out"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.problem.experts = 1024, c.schedule.warps = 16; }),
              ElementsAre("/schedule/warps: 16 warps are too many for 1024 experts; 8 would do"));
  EXPECT_THAT(refusals([](RouteConfig& c) { c.schedule.family = Family::kHopper; }),
              ElementsAre("/schedule/family: \"hopper\" has no kernel that routes; portable has one for every "
                          "architecture"));
}

TEST(RouteJson, ReadsWhatItWrites) {
  RouteConfig config{"route", router(), {}, {{.name = "one", .tokens = 1}}};
  config.problem.score = RouteScore::kSigmoid;
  config.problem.n_group = 8, config.problem.topk_group = 4;
  config.problem.factor = 2.5;
  config.schedule.warps = 8;
  config.schedule.choice = RouteChoice::kBound, config.schedule.counts = RouteCounts::kU16;
  EXPECT_EQ(std::get<RouteConfig>(read_config(write_config(config))), config);
}

}  // namespace
}  // namespace kernelwright::route_plan_test
