// The blackwell family: the launch of a plan, and the candidates of the tuner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "contract/attention_sm100.h"
#include "generator/attention/blackwell_plans.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::blackwell_launch_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::blackwell;
using test::planned;
using test::prefill;

// ---- the launch ----

AttentionExtent extent(int batch, int q_len) {
  return {.batch = batch, .q_heads = 32, .kv_heads = 8, .q_len = q_len, .kv_len = 500, .q_tokens = batch * q_len};
}

TEST(BlackwellLaunch, HasACtaAnItem) {
  AttentionSchedule schedule = blackwell();
  schedule.pack_gqa = false;
  const AttentionSpec spec = planned(prefill(128, 128), schedule);
  const AttentionLaunch launch = plan_launch(spec, extent(3, 257), 148, 0);
  EXPECT_EQ(launch.num_m_blocks, 2) << "256 rows, and one";
  EXPECT_EQ(launch.main.grid[0], 3u * 32 * 2);
  EXPECT_EQ(launch.main.block, 512u);
  EXPECT_EQ(launch.main.shared_bytes, shared_bytes(spec));
  EXPECT_EQ(launch.num_splits, 1);
  EXPECT_EQ(launch.workspace_bytes, 0u);
  EXPECT_EQ(plan_launch(spec, extent(3, 257), 148, 8).num_splits, 1) << "nothing to force";
  schedule.pack_gqa = true;
  const AttentionLaunch packed = plan_launch(planned(prefill(128, 128), schedule), extent(3, 257), 148, 0);
  EXPECT_EQ(packed.num_m_blocks, 5) << "257 queries of 4 heads";
  EXPECT_EQ(packed.main.grid[0], 3u * 8 * 5);
}

TEST(BlackwellLaunch, HasAClusterForEveryPair) {
  AttentionSchedule schedule = blackwell();
  schedule.pack_gqa = false;
  schedule.cta_group = 2;
  const AttentionSpec spec = planned(prefill(128, 128), schedule);
  for (const auto& [q_len, ctas] : {std::pair{1, 2}, {512, 2}, {513, 4}, {1025, 6}}) {
    const AttentionLaunch launch = plan_launch(spec, extent(3, q_len), 148, 0);
    EXPECT_EQ(launch.num_m_blocks, ctas) << q_len << ": the second CTA of a pair may have no rows";
    EXPECT_EQ(launch.main.grid[0], 3u * 32 * static_cast<unsigned>(ctas));
    EXPECT_EQ(launch.main.cluster, 2u);
  }
  schedule.cta_group = 1;
  EXPECT_EQ(plan_launch(planned(prefill(128, 128), schedule), extent(3, 513), 148, 0).main.cluster, 1u);
}

TEST(BlackwellLaunch, WalksPairAfterPairOrTheLongestOfASectionFirst) {
  AttentionSchedule schedule = blackwell();
  schedule.scheduler = Scheduler::kGrid;
  EXPECT_EQ(plan_launch(planned(prefill(128, 128), schedule), extent(2, 4096), 148, 0).head_section, 1);
  schedule.scheduler = Scheduler::kLongestFirst;
  EXPECT_EQ(plan_launch(planned(prefill(128, 128), schedule), extent(2, 4096), 148, 0).head_section, 16)
      << "all KV heads of both sequences: their keys fit the L2";
}

TEST(BlackwellLaunch, OfAQueueIsTheGridsFromWhichCtasTakeItems) {
  AttentionProblem problem = prefill(128, 128);
  AttentionSchedule schedule = blackwell();
  for (const MaskKind mask : {MaskKind::kNone, MaskKind::kCausal}) {
    problem.mask.kind = mask;
    schedule.scheduler = Scheduler::kQueued;
    const AttentionLaunch queued = plan_launch(planned(problem, schedule), extent(2, 4096), 148, 0);
    schedule.scheduler = mask == MaskKind::kNone ? Scheduler::kGrid : Scheduler::kLongestFirst;
    const AttentionLaunch grid = plan_launch(planned(problem, schedule), extent(2, 4096), 148, 0);
    EXPECT_EQ(queued.main.grid[0], grid.main.grid[0]);
    EXPECT_EQ(queued.head_section, grid.head_section) << "the same order";
    EXPECT_EQ(queued.workspace_bytes, 0u) << "the hardware keeps the queue";
    EXPECT_FALSE(queued.queued);
  }
}

TEST(BlackwellLaunch, AsksForAGridThatTheDriverRefusesRatherThanAWrappedOne) {
  AttentionExtent huge = extent(1 << 20, 1024);
  huge.q_heads = huge.kv_heads = 4096;
  EXPECT_GT(plan_launch(planned(128, 128), huge, 148, 0).main.grid[0], 0x7fffffffu);
}

// ---- the tuner's candidates ----

TEST(BlackwellCandidates, VaryKeysRingsAndEmulatedExponentials) {
  const AttentionShape shape{.name = "s", .batch = 1, .q_len = 4096, .kv_len = 4096};
  const Candidates all = enumerate_candidates(prefill(64, 64), blackwell(), Arch::kSm100a, {shape},
                                              {.num_sms = 148, .most = 0, .within = 1e9});
  std::set<int> keys, emulated;
  std::set<KvRing> rings;
  for (const Candidate& candidate : all.kept) {
    EXPECT_EQ(candidate.plan.main.family, Family::kBlackwell);
    keys.insert(candidate.plan.main.block_n);
    emulated.insert(candidate.plan.main.exp2_emulated);
    rings.insert(candidate.plan.main.kv_ring);
  }
  EXPECT_THAT(keys, ElementsAre(64, 80, 96, 112, 128));
  EXPECT_THAT(emulated, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(rings, testing::SizeIs(2));
  EXPECT_EQ(all.kept[0].schedule.exp2_emulated.value(), 3.0 / 16);
}

TEST(BlackwellCandidates, PairCtasWhereValuesHaveHalvesAndRowsFillThem) {
  const AttentionShape shape{.name = "s", .batch = 1, .q_len = 4096, .kv_len = 4096};
  const auto groups = [&](const AttentionProblem& problem) {
    std::set<int> seen;
    for (const Candidate& candidate :
         enumerate_candidates(problem, blackwell(), Arch::kSm100a, {shape}, {.num_sms = 148, .most = 0, .within = 1e9})
             .kept)
      seen.insert(candidate.plan.main.cta_group);
    return seen;
  };
  EXPECT_THAT(groups(prefill(128, 128)), ElementsAre(1, 2));
  EXPECT_THAT(groups(prefill(64, 64)), ElementsAre(1));
  AttentionProblem few = prefill(128, 128);
  few.max_q_len = 256;
  EXPECT_THAT(groups(few), ElementsAre(1));
  few.max_q_len = 0;
  few.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  EXPECT_THAT(groups(few), ElementsAre(1)) << "half of 128 columns of 8 bits is half of a slab";
}

TEST(BlackwellCandidates, OfEightBitsTakeStepsOf32Keys) {
  AttentionProblem problem = prefill(128, 128);
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  const AttentionShape shape{.name = "s", .batch = 1, .q_len = 4096, .kv_len = 4096};
  std::set<int> keys;
  for (const Candidate& candidate :
       enumerate_candidates(problem, blackwell(), Arch::kSm100a, {shape}, {.num_sms = 148, .most = 0, .within = 1e9})
           .kept)
    keys.insert(candidate.plan.main.block_n);
  EXPECT_THAT(keys, ElementsAre(64, 96, 128));
}

TEST(BlackwellCandidates, SpellOutAFractionOfTheModelsChoice) {
  const AttentionPlan plan = plan_by_model(prefill(128, 128), blackwell(), Arch::kSm100a);
  EXPECT_EQ(with_values_of(plan, {}, {"exp2_emulated"}).exp2_emulated.value(), 3.0 / 16);
}

}  // namespace
}  // namespace kernelwright::blackwell_launch_test
