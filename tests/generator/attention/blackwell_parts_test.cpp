// Split keys of the blackwell family: which plans have them, how a launch counts parts, and which arguments are
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "contract/attention_params.h"
#include "contract/attention_sm100.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::blackwell_parts_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Field;

AttentionProblem prefill(int max_q_len = 0) {
  AttentionProblem problem;
  problem.head_dim = {128, 128};
  problem.heads = {32, 8};
  problem.max_q_len = max_q_len;
  return problem;
}
AttentionSchedule blackwell() {
  AttentionSchedule schedule;
  schedule.family = Family::kBlackwell;
  return schedule;
}
AttentionSchedule with(const std::function<void(AttentionSchedule&)>& change) {
  AttentionSchedule schedule = blackwell();
  change(schedule);
  return schedule;
}
AttentionSchedule cluster_of(int ctas) {
  return with([&](auto& s) { s.cluster = ClusterShape{1, ctas}; });
}
AttentionPlan planned(const AttentionProblem& problem, const AttentionSchedule& schedule) {
  return plan_attention(problem, schedule, Arch::kSm100a);
}
std::vector<std::string> refused(const std::function<void(AttentionSchedule&)>& change,
                                 const AttentionProblem& problem = prefill()) {
  std::vector<std::string> lines;
  try {
    planned(problem, with(change));
  } catch (const ConfigError& error) {
    for (const Violation& violation : error.violations()) lines.push_back(violation.text());
  }
  return lines;
}

// ---- the plan ----

TEST(BlackwellParts, AreLeftToTheLaunchWhereRowsAreFew) {
  AttentionPlan plan = planned(prefill(32), blackwell());
  EXPECT_TRUE(plan.main.split_keys);
  EXPECT_EQ(plan.splits, 0);
  EXPECT_EQ(plan.main.merge, Merge::kCombine);
  ASSERT_TRUE(plan.combine);
  EXPECT_EQ(*plan.combine, (CombineSpec{Arch::kSm100a, DType::kBf16, 128, false}));
  for (const int max_q_len : {0, 33}) {
    plan = planned(prefill(max_q_len), blackwell());
    EXPECT_FALSE(plan.main.split_keys) << max_q_len;
    EXPECT_EQ(plan.splits, 1);
    EXPECT_FALSE(plan.combine);
  }
  AttentionProblem fixed = prefill(32);
  fixed.batch_invariant = true;
  EXPECT_EQ(planned(fixed, blackwell()).splits, 1) << "parts that follow the batch would change sums";
}

TEST(BlackwellParts, FollowTheSchedule) {
  AttentionPlan plan = planned(prefill(), with([](auto& s) { s.splits = 3; }));
  EXPECT_TRUE(plan.main.split_keys);
  EXPECT_EQ(plan.main.num_q, 2);
  EXPECT_EQ(plan.splits, 3);
  EXPECT_TRUE(plan.combine);
  plan = planned(prefill(), with([](auto& s) { s.merge = Merge::kInKernel; }));
  EXPECT_EQ(plan.splits, 0) << "who says who merges wants parts";
  EXPECT_EQ(plan.main.merge, Merge::kInKernel);
  EXPECT_FALSE(plan.combine);
  EXPECT_FALSE(planned(prefill(32), with([](auto& s) { s.splits = 1; })).main.split_keys);
}

TEST(BlackwellParts, OfAClusterAreItsCtas) {
  for (const int ctas : {2, 4, 8}) {
    const AttentionPlan plan = planned(prefill(), cluster_of(ctas));
    EXPECT_EQ(plan.main.cluster_n, ctas);
    EXPECT_EQ(plan.main.cluster_m, 1);
    EXPECT_EQ(plan.main.num_q, 1);
    EXPECT_FALSE(plan.main.split_keys);
    EXPECT_EQ(plan.splits, ctas);
    EXPECT_FALSE(plan.combine);
    EXPECT_THAT(plan.choices, Contains(Field(&Choice::field, "cluster")));
  }
  AttentionSchedule schedule = cluster_of(4);
  schedule.splits = 4;
  EXPECT_EQ(planned(prefill(), schedule).main.cluster_n, 4);
}

TEST(BlackwellParts, OfAClusterFitBelowWhatIsStillRead) {
  for (int qk = 16; qk <= 128; qk += 8)
    for (int v = 16; v <= qk; v += 8)
      for (const int keys : {64, 128})
        for (const KvRing ring : {KvRing::kShared, KvRing::kSplit}) {
          AttentionProblem problem = prefill();
          problem.head_dim = {qk, v};
          AttentionSchedule schedule = cluster_of(2);
          schedule.block_n = keys;
          schedule.kv_ring = ring;
          schedule.num_kv_stages = 2;
          schedule.swizzle = Swizzle::k128B;  // narrower slots of so few keys are too short: refused, as num_kv_stages
          const AttentionSpec spec = planned(problem, schedule).main;
          const contract::BlackwellShape shape{1, keys, qk, v, 2, 1, ring == KvRing::kShared, 1, false, false, 2};
          const contract::BlackwellLayout layout = contract::blackwell_layout(shape);
          EXPECT_LE((v + 31) / 32 * 128 * 128, layout.factors) << qk << " and " << v;
          EXPECT_EQ(layout.barriers - layout.published, 2 * 128 * 4);
          EXPECT_EQ(static_cast<int>(shared_bytes(spec)), layout.total);
        }
}

TEST(BlackwellParts, AreOnTheMapOfSharedMemory) {
  for (const AttentionSchedule& schedule :
       {cluster_of(2), with([](auto& s) { s.splits = 2; }), with([](auto& s) { s.merge = Merge::kInKernel; })}) {
    const AttentionSpec spec = planned(prefill(), schedule).main;
    std::uint32_t end = 0;
    std::set<std::string> names;
    for (const SharedRegion& region : shared_map(spec)) {
      EXPECT_EQ(region.offset, end) << region.name;
      end = region.offset + region.bytes;
      names.insert(region.name);
    }
    EXPECT_EQ((end + 15) / 16 * 16, shared_bytes(spec));
    EXPECT_EQ(names.count("published"), spec.cluster_n > 1);
    EXPECT_EQ(names.count("arrived last"), spec.merge == Merge::kInKernel);
  }
}

// ---- refusals ----

TEST(BlackwellParts, RefuseWhatTheyDoNotGoTogetherWith) {
  EXPECT_THAT(refused([](auto& s) {
                s.cluster = ClusterShape{1, 4};
                s.splits = 3;
              }),
              ElementsAre("/schedule/splits: 3 beside a cluster of [1, 4], of which each CTA takes a part of the keys; "
                          "4 would do"));
  EXPECT_THAT(refused([](auto& s) {
                s.cluster = ClusterShape{1, 2};
                s.merge = Merge::kCombine;
              }),
              ElementsAre("/schedule/merge: \"combine\" beside a cluster of [1, 2], whose CTAs merge their parts "
                          "themselves; \"auto\" would do"));
  EXPECT_THAT(refused([](auto& s) {
                s.cluster = ClusterShape{1, 2};
                s.num_q = 2;
              }),
              ElementsAre("/schedule/num_q: 2: the CTAs of a cluster of [1, 2] share one query tile; 1 would do"));
  EXPECT_THAT(refused([](auto& s) {
                s.cluster = ClusterShape{1, 3};
              }),
              ElementsAre("/schedule/cluster: [1, 3] is not built yet for the blackwell family; it has [1, 1], [1, 2], "
                          "[1, 4], [1, 8] with cta_group 1"));
  EXPECT_THAT(refused([](auto& s) {
                s.cluster = ClusterShape{1, 2};
                s.scheduler = Scheduler::kQueued;
              }),
              ElementsAre("/schedule/cluster: [1, 2]: the queue hands out whole items; [1, 1], or scheduler "
                          "\"longest_first\", would do"));
  for (const bool by_launch : {false, true})
    EXPECT_THAT(refused([&](auto& s) {
                  s.cta_group = 2;
                  if (by_launch)
                    s.merge = Merge::kCombine;
                  else
                    s.splits = 2;
                }),
                ElementsAre("/schedule/splits: keys in parts: CTAs that share products (cta_group 2) take all keys; "
                            "splits 1 would do"));
}

TEST(BlackwellParts, OfAClusterRefuseSlotsThatDoNotHoldTheirOutput) {
  AttentionProblem narrow = prefill();
  narrow.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  const auto cluster_with = [](int stages) {
    return [stages](auto& s) {
      s.cluster = ClusterShape{1, 2};
      s.block_n = 64;
      s.kv_ring = KvRing::kShared;
      s.num_kv_stages = stages;
    };
  };
  EXPECT_THAT(
      refused(cluster_with(5), narrow),
      ElementsAre("/schedule/num_kv_stages: 5: the slots of Q, K and V are 8192 bytes short of the f32 output of "
                  "a cluster's part, which lies over them at the end; 6 would do"));
  EXPECT_THAT(refused(cluster_with(6), narrow), ElementsAre());
  EXPECT_THAT(refused(cluster_with(2)), ElementsAre()) << "16 bits";
}

// ---- the launch ----

AttentionExtent extent(int batch, int q_len, int kv_len) {
  return {.batch = batch, .q_heads = 32, .kv_heads = 8, .q_len = q_len, .kv_len = kv_len, .q_tokens = batch * q_len};
}

TEST(BlackwellPartsLaunch, FillsTheMachineFromItemsAndKeys) {
  const AttentionSpec spec = planned(prefill(32), blackwell()).main;
  AttentionLaunch launch = plan_launch(spec, extent(1, 32, 65536), 148, 0);
  EXPECT_EQ(launch.num_splits, 18) << "8 items on 148 SMs";
  EXPECT_EQ(launch.main.grid[0], 8u * 18);
  EXPECT_EQ(launch.main.cluster, 1u);
  EXPECT_EQ(launch.combine.grid[0], 32u * 32 / 4);
  EXPECT_EQ(launch.partial_lse_offset, std::uint64_t{18} * 32 * 32 * 128 * 4);
  EXPECT_EQ(launch.workspace_bytes, launch.partial_lse_offset + 18 * 32 * 32 * 4);
  EXPECT_EQ(launch.merge_counters_offset, 0u);
  EXPECT_EQ(plan_launch(spec, extent(64, 32, 65536), 148, 0).num_splits, 1) << "enough items";
  EXPECT_EQ(plan_launch(spec, extent(1, 32, 128), 148, 0).num_splits, 1) << "one tile of keys";
  EXPECT_EQ(plan_launch(spec, extent(1, 32, 65536), 148, 5).num_splits, 5) << "the schedule's";
}

TEST(BlackwellPartsLaunch, CountsArrivalsWhereTheLastCtaMerges) {
  const AttentionSpec spec = planned(prefill(), with([](auto& s) { s.merge = Merge::kInKernel; })).main;
  const AttentionLaunch launch = plan_launch(spec, extent(1, 70, 8192), 148, 4);
  EXPECT_EQ(launch.num_m_blocks, 2);
  EXPECT_EQ(launch.workspace_bytes, launch.merge_counters_offset + 8 * 2 * 8);
}

TEST(BlackwellPartsLaunch, OfAClusterNeedsNoWorkspace) {
  const AttentionSpec spec = planned(prefill(), cluster_of(4)).main;
  const AttentionLaunch launch = plan_launch(spec, extent(2, 33, 300), 148, 4);
  EXPECT_EQ(launch.num_m_blocks, 2);
  EXPECT_EQ(launch.num_splits, 4);
  EXPECT_EQ(launch.main.cluster, 4u);
  EXPECT_EQ(launch.main.grid[0], 2u * 8 * 2 * 4);
  EXPECT_EQ(launch.workspace_bytes, 0u);
}

// ---- the tuner's candidates ----

TEST(BlackwellPartsCandidates, AreClustersWhereRowsAreFew) {
  const AttentionShape shape{.name = "s", .batch = 1, .q_len = 32, .kv_len = 8192};
  const auto clusters = [&](int max_q_len) {
    std::set<int> sizes;
    for (const Candidate& candidate : enumerate_candidates(prefill(max_q_len), blackwell(), Arch::kSm100a, {shape},
                                                           {.num_sms = 148, .most = 0, .within = 1e9})
                                          .kept)
      sizes.insert(candidate.plan.main.cluster_n);
    return sizes;
  };
  EXPECT_THAT(clusters(32), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(clusters(0), ElementsAre(1));
}

}  // namespace
}  // namespace kernelwright::blackwell_parts_test
