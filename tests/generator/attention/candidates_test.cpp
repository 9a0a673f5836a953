// The schedules that the tuner measures: all feasible, all different, and the model's own among them.
#include "kernelwright/generator/attention/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernelwright/generator/error.h"
#include "support/tuned_rows.h"

namespace kernelwright::candidates_test {
namespace {

using test::paged_decode;
using test::prefill_of;

AttentionShape shape(int batch, int q_len, int kv_len) {
  return {.name = "s", .batch = batch, .q_len = q_len, .kv_len = kv_len};
}
const CandidateOptions kAll{.num_sms = 132, .most = 0, .within = 1e9};

class CandidatesOf : public ::testing::TestWithParam<bool> {
 protected:
  AttentionProblem problem() const { return GetParam() ? paged_decode() : prefill_of(); }
  std::vector<AttentionShape> shapes() const {
    return {GetParam() ? shape(16, 1, 8192) : shape(1, 8192, 8192),
            GetParam() ? shape(1, 1, 8192) : shape(8, 512, 512)};
  }
};
INSTANTIATE_TEST_SUITE_P(PrefillAndDecode, CandidatesOf, ::testing::Bool());

TEST_P(CandidatesOf, EveryOneIsPlannedAsItSaysAndNoTwoAreOneKernel) {
  const Candidates all = enumerate_candidates(problem(), {}, Arch::kSm90a, shapes(), kAll);
  EXPECT_GT(all.kept.size(), 50u);
  EXPECT_EQ(all.cut, 0u);
  EXPECT_GT(all.infeasible, 0u) << "the values are named without asking what fits";
  std::set<std::string> seen;
  for (const Candidate& candidate : all.kept) {
    const AttentionPlan plan = plan_by_model(problem(), candidate.schedule, Arch::kSm90a);
    EXPECT_EQ(plan.main, candidate.plan.main);
    EXPECT_TRUE(seen.insert(canonical_text(Spec(plan.main)) + std::to_string(plan.splits)).second);
    EXPECT_GT(candidate.cost, 0);
  }
}

TEST_P(CandidatesOf, TheModelsChoiceIsFirstWithItsFieldsSpeltOut) {
  const Candidates few = enumerate_candidates(problem(), {}, Arch::kSm90a, shapes(), {.most = 4});
  ASSERT_EQ(few.kept.size(), 4u);
  EXPECT_GT(few.cut, 0u);
  EXPECT_EQ(few.kept[0].plan.main, plan_by_model(problem(), {}, Arch::kSm90a).main);
  EXPECT_EQ(few.kept[0].schedule.family.value(), few.kept[0].plan.main.family);
  EXPECT_FALSE(few.kept[0].schedule.block_n.is_auto());
  for (std::size_t i = 2; i < few.kept.size(); ++i) EXPECT_LE(few.kept[i - 1].cost, 1.2 * few.kept[i].cost);
}

TEST_P(CandidatesOf, TheTimelineOrdersThemAndLeavesNoneOut) {
  std::vector<Candidate> kept = enumerate_candidates(problem(), {}, Arch::kSm90a, shapes(), {.most = 48}).kept;
  const std::vector<Candidate> before = kept;
  order_by_prediction(kept, problem(), shapes());
  ASSERT_EQ(kept.size(), before.size());
  EXPECT_EQ(kept[0].plan.main, before[0].plan.main) << "the model's own choice stays first";
  double last = 0;
  std::size_t known = 0;
  for (std::size_t i = 1; i < kept.size(); ++i) {
    if (kept[i].predicted_us == 0) {
      EXPECT_EQ(kept[i].plan.main, before[i].plan.main) << "no timeline: it keeps its place";
      continue;
    }
    EXPECT_GE(kept[i].predicted_us, last);
    last = kept[i].predicted_us;
    ++known;
  }
  EXPECT_GT(known, 10u);
  const auto names = [](const std::vector<Candidate>& candidates) {
    std::multiset<std::string> all;
    for (const Candidate& one : candidates) all.insert(canonical_text(Spec(one.plan.main)));
    return all;
  };
  EXPECT_EQ(names(kept), names(before));
}

TEST(Candidates, TryAQueueBesideTheModelsOrder) {
  const Candidates near = enumerate_candidates(prefill_of(), {}, Arch::kSm90a, {shape(1, 8192, 8192)}, {.most = 12});
  std::set<Scheduler> orders;
  for (const Candidate& candidate : near.kept)
    if (candidate.plan.main.family == Family::kHopper) orders.insert(candidate.plan.main.scheduler);
  EXPECT_TRUE(orders.contains(Scheduler::kQueued));
  EXPECT_EQ(orders.size(), 2u);
}

TEST(Candidates, KeepTheFieldsThatAreGiven) {
  AttentionSchedule schedule;
  schedule.block_n = 64;
  schedule.family = Family::kPortable;
  for (const Candidate& candidate :
       enumerate_candidates(prefill_of(), schedule, Arch::kSm80, {shape(1, 512, 512)}, kAll).kept)
    EXPECT_EQ(candidate.plan.main.block_n, 64);
}

TEST(Candidates, AreInClustersWhereSequencesAreLong) {
  const auto clusters = [](AttentionProblem problem, int max_q_len) {
    problem.max_q_len = max_q_len;
    std::set<int> sizes;
    for (const Candidate& candidate :
         enumerate_candidates(problem, {}, Arch::kSm90a, {shape(1, 8192, 8192)}, kAll).kept)
      if (candidate.plan.main.form() == AttentionForm::kHopperPrefill) sizes.insert(candidate.plan.main.cluster_m);
    return sizes;
  };
  EXPECT_EQ(clusters(prefill_of(), 0), (std::set{1, 2})) << "any length";
  EXPECT_EQ(clusters(prefill_of(), 4096), (std::set{1, 2}));
  EXPECT_EQ(clusters(prefill_of(), 2048), std::set{1});
  AttentionProblem windowed = prefill_of();
  windowed.mask = {MaskKind::kSlidingWindow, {128, 0}, 0, {}};
  EXPECT_EQ(clusters(windowed, 0), std::set{1}) << "few keys, and fewer of them the neighbour's";
}

TEST(Candidates, AreRefusedWithTheModel) {
  AttentionSchedule schedule;
  schedule.block_m = 80;
  EXPECT_THROW(enumerate_candidates(prefill_of(), schedule, Arch::kSm90a, {shape(1, 512, 512)}), ConfigError);
}

TEST(Candidates, TheEstimateCutsWhatIsFarFromTheLeast) {
  const Candidates all = enumerate_candidates(prefill_of(), {}, Arch::kSm90a, {shape(1, 8192, 8192)}, kAll);
  const Candidates near =
      enumerate_candidates(prefill_of(), {}, Arch::kSm90a, {shape(1, 8192, 8192)}, {.most = 0, .within = 1.2});
  EXPECT_LT(near.kept.size(), all.kept.size());
  EXPECT_EQ(near.kept.size() + near.cut, all.kept.size());
  double least = all.kept[0].cost;
  for (const Candidate& candidate : all.kept) least = std::min(least, candidate.cost);
  for (std::size_t i = 1; i < near.kept.size(); ++i) EXPECT_LE(near.kept[i].cost, 1.2 * least);
}

TEST(ScheduleCost, CountsPaddingAndTheLastWave) {
  AttentionSchedule schedule;
  schedule.num_warps = 4, schedule.block_m = 128, schedule.block_n = 64;
  const AttentionPlan plan = plan_by_model(prefill_of(8, 8), schedule, Arch::kSm90a);
  const auto cost = [&](int q_len, int kv_len, int batch = 1) {
    return schedule_cost(plan, prefill_of(8, 8), shape(batch, q_len, kv_len), 132);
  };
  EXPECT_DOUBLE_EQ(cost(128, 64), cost(1, 1)) << "a tile is a tile";
  EXPECT_DOUBLE_EQ(cost(128, 128), 2 * cost(128, 64));
  EXPECT_GT(cost(128, 64, 132), cost(128, 64, 66)) << "twice the items";
  EXPECT_EQ(cost(128, 64, 0), 0) << "no work";
}

TEST(ScheduleCost, CountsTheCtasOfAClusterThatHaveNoRows) {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_m = 128, schedule.pack_gqa = false;
  const auto cost = [&](int cluster, int q_len) {
    schedule.cluster = ClusterShape{cluster, 1};
    return schedule_cost(plan_by_model(prefill_of(132, 132), schedule, Arch::kSm90a), prefill_of(132, 132),
                         shape(1, q_len, 640), 132);
  };
  EXPECT_DOUBLE_EQ(cost(2, 256), cost(1, 256));
  EXPECT_DOUBLE_EQ(cost(2, 384), cost(1, 512)) << "three tiles take two clusters of two";
}

TEST(ScheduleCost, WantsBytesInFlightOfADecode) {
  AttentionSchedule shallow, deep;
  shallow.num_stages = 2, deep.num_stages = 4;
  shallow.num_warps = deep.num_warps = 1;
  shallow.block_n = deep.block_n = 16;
  shallow.splits = deep.splits = 1;  // eight CTAs: an SM holds one at most
  const AttentionShape one = shape(1, 1, 8192);
  const auto cost = [&](const AttentionSchedule& schedule) {
    return schedule_cost(plan_by_model(paged_decode(), schedule, Arch::kSm90a), paged_decode(), one, 132);
  };
  EXPECT_NEAR(cost(shallow) / cost(deep), 3, 1e-9) << "8 KB on their way, and 24";
}

TEST(WithValuesOf, CopiesTheNamedFieldsAlone) {
  AttentionSchedule schedule;
  schedule.block_n = 32;
  const AttentionPlan plan = plan_by_model(prefill_of(), {}, Arch::kSm90a);
  const AttentionSchedule filled = with_values_of(plan, schedule, {"block_m", "block_n"});
  EXPECT_EQ(filled.block_m.value(), plan.main.block_m);
  EXPECT_EQ(filled.block_n.value(), 32) << "what is given stays";
  EXPECT_TRUE(filled.num_warps.is_auto());
}

}  // namespace
}  // namespace kernelwright::candidates_test
