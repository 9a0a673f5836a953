// The grid of a hopper kernel, and the order in which its CTAs walk the items.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/attention_sm90.h"
#include "generator/attention/hopper_plans.h"
#include "kernelwright/generator/attention/launch.h"

namespace kernelwright::hopper_launch_test {
namespace {

using test::hopper_plans::hopper;
using test::hopper_plans::in_clusters;
using test::hopper_plans::planned;
using test::hopper_plans::prefill;

AttentionExtent extent(int batch, int q_len) {
  return {.batch = batch, .q_heads = 32, .kv_heads = 8, .q_len = q_len, .kv_len = 500, .q_tokens = batch * q_len};
}

/// Two tiles of 128 rows for 130 queries, whatever the planner would take.
AttentionSchedule rows_of_128() {
  AttentionSchedule schedule = hopper();
  schedule.block_m = 128;
  schedule.pack_gqa = false;
  return schedule;
}

TEST(HopperLaunch, HasACtaAnSmThatWalksTheItems) {
  const AttentionSpec spec = planned(prefill(128, 128), rows_of_128());
  const AttentionLaunch launch = plan_launch(spec, extent(3, 130), 132, 0);
  EXPECT_EQ(launch.num_m_blocks, 2);
  EXPECT_EQ(launch.num_items, 3 * 32 * 2);
  EXPECT_EQ(launch.main.grid[0], 132u);
  EXPECT_EQ(launch.main.block, 384u);
  EXPECT_EQ(launch.main.shared_bytes, shared_bytes(spec));
  EXPECT_EQ(launch.num_splits, 1);
  EXPECT_EQ(launch.workspace_bytes, 8u) << "the queue";
  EXPECT_EQ(plan_launch(spec, extent(1, 130), 132, 0).main.grid[0], 64u) << "no CTA without an item";
  EXPECT_EQ(plan_launch(spec, extent(3, 130), 132, 8).num_splits, 1) << "nothing to force";
}

TEST(HopperLaunch, OfPackedHeadsCountsTheirRowsTogether) {
  AttentionSchedule schedule = rows_of_128();
  schedule.pack_gqa = true;
  const AttentionLaunch launch = plan_launch(planned(prefill(128, 128), schedule), extent(3, 130), 132, 0);
  EXPECT_EQ(launch.num_m_blocks, 5) << "130 queries of 4 heads";
  EXPECT_EQ(launch.num_items, 5 * 8 * 3);
}

TEST(HopperLaunch, WalksPairAfterPairWhereTilesAreAlike) {
  const AttentionLaunch launch = plan_launch(planned(128, 128), extent(2, 8192), 132, 0);
  EXPECT_EQ(launch.m_chunk, launch.num_m_blocks);
}

TEST(HopperLaunch, WalksAFewLongTilesOfEachPairWhereTheyAreUneven) {
  AttentionProblem problem = prefill(128, 128);
  problem.mask.kind = MaskKind::kCausal;
  AttentionSchedule schedule = hopper();
  schedule.pack_gqa = false;
  const auto chunk = [&](int q_heads, int kv_heads, int batch, int q_len) {
    problem.heads = {q_heads, kv_heads};
    AttentionExtent e = extent(batch, q_len);
    e.q_heads = q_heads, e.kv_heads = kv_heads;
    return plan_launch(planned(problem, schedule), e, 132, 0).m_chunk;
  };
  EXPECT_EQ(chunk(16, 16, 4, 8192), 4) << "four tiles read the same keys at a time";
  EXPECT_EQ(chunk(32, 16, 4, 8192), 2) << "each KV head has two readers already";
  EXPECT_EQ(chunk(64, 8, 8, 8192), 1);
  EXPECT_EQ(chunk(32, 32, 1, 8192), 1) << "32 KV heads have four readers each among 132 SMs";
  EXPECT_EQ(chunk(16, 16, 4, 1), 1) << "no more than there are";
  EXPECT_EQ(chunk(16, 16, 4, 0), 1) << "the kernel divides by it";
  schedule.pack_gqa = true;
  EXPECT_EQ(chunk(64, 16, 4, 8192), 4) << "a group's heads are in one tile";
}

TEST(HopperLaunch, TakesItemsFromAQueueInTheWorkspaceIfAsked) {
  AttentionProblem problem = prefill(128, 128);
  AttentionSchedule schedule = rows_of_128();
  schedule.scheduler = Scheduler::kLongestFirst;
  const AttentionExtent many = extent(2, 8192);
  const auto launch_of = [&] { return plan_launch(planned(problem, schedule), many, 132, 0); };
  EXPECT_FALSE(launch_of().queued);
  EXPECT_EQ(launch_of().workspace_bytes, 0u);
  schedule.scheduler = Scheduler::kQueued;
  EXPECT_EQ(planned(problem, schedule).scheduler, Scheduler::kQueued);
  EXPECT_TRUE(launch_of().queued);
  EXPECT_EQ(launch_of().workspace_bytes, 8u);
  EXPECT_EQ(launch_of().main.grid[0], 132u);
  EXPECT_EQ(launch_of().m_chunk, launch_of().num_m_blocks) << "tiles are alike: pair after pair";
  problem.mask.kind = MaskKind::kCausal;
  const int chunk = launch_of().m_chunk;
  EXPECT_LT(chunk, launch_of().num_m_blocks);
  schedule.scheduler = Scheduler::kLongestFirst;
  EXPECT_EQ(launch_of().m_chunk, chunk) << "the same order";
}

TEST(HopperLaunch, HasACtaAnItemWhereTheScheduleAsksForAGrid) {
  AttentionSchedule schedule = rows_of_128();
  schedule.scheduler = Scheduler::kGrid;
  const AttentionLaunch launch = plan_launch(planned(prefill(128, 128), schedule), extent(3, 130), 132, 0);
  EXPECT_EQ(launch.main.grid[0], 192u);
  EXPECT_EQ(launch.num_items, 192);
}

TEST(HopperLaunch, HandsItemsToWholeClusters) {
  AttentionSchedule schedule = rows_of_128();
  schedule.cluster = ClusterShape{2, 1};
  AttentionSpec spec = planned(prefill(128, 128), schedule);
  AttentionLaunch launch = plan_launch(spec, extent(3, 300), 132, 0);
  EXPECT_EQ(launch.num_m_blocks, 3);
  EXPECT_EQ(launch.num_items, 3 * 32 * 2) << "three tiles are two items of two";
  EXPECT_EQ(launch.main.cluster, 2u);
  EXPECT_EQ(launch.main.grid[0], 132u);
  EXPECT_EQ(launch.m_chunk, 2);
  EXPECT_EQ(plan_launch(spec, extent(3, 300), 133, 0).main.grid[0], 132u) << "an SM is left over";
  EXPECT_EQ(plan_launch(spec, extent(1, 130), 132, 0).main.grid[0], 64u) << "no cluster without an item";
  EXPECT_TRUE(launch.persistent) << "any number of clusters would do";
  EXPECT_EQ(plan_launch(spec, extent(3, 300), 1, 0).main.grid[0], 2u) << "a cluster at least";
  EXPECT_EQ(plan_launch(planned(128, 128), extent(3, 300), 132, 0).main.cluster, 1u);
  schedule.scheduler = Scheduler::kGrid;
  spec = planned(prefill(128, 128), schedule);
  launch = plan_launch(spec, extent(3, 300), 132, 0);
  EXPECT_EQ(launch.main.grid[0], 3u * 32 * 2 * 2) << "CTAs";
  EXPECT_FALSE(launch.persistent);
}

TEST(HopperLaunch, OfClustersHasFewerOfThemReadTheSameKeys) {
  AttentionProblem problem = prefill(128, 128);
  problem.mask.kind = MaskKind::kCausal;
  problem.heads = {16, 16};
  AttentionExtent e = extent(4, 8192);
  e.q_heads = e.kv_heads = 16;
  for (const auto& [size, chunk] : {std::pair{1, 4}, std::pair{2, 2}, std::pair{4, 1}})
    EXPECT_EQ(plan_launch(planned(problem, in_clusters(size)), e, 132, 0).m_chunk, chunk) << size;
}

TEST(HopperLaunch, AsksForAGridThatTheDriverRefusesRatherThanAWrappedOne) {
  AttentionExtent huge = extent(1 << 20, 256);
  huge.q_heads = 4096;
  huge.kv_heads = 4096;
  EXPECT_GT(plan_launch(planned(128, 128), huge, 132, 0).main.grid[0], 0x7fffffffu);  // 2^33 tiles and more
  EXPECT_GT(plan_launch(planned(prefill(128, 128), in_clusters(4)), huge, 132, 0).main.grid[0], 0x7fffffffu);
}

}  // namespace
}  // namespace kernelwright::hopper_launch_test
