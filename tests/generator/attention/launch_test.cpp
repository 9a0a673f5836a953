#include "kernelwright/generator/attention/launch.h"

#include <gtest/gtest.h>

#include "contract/attention_params.h"
#include "contract/attention_portable.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::launch_test {
namespace {

/// A plan of the portable family; hopper_test.cpp tests the other family.
AttentionSpec planned(int head_dim, int max_q_len, Arch arch = Arch::kSm90a) {
  AttentionProblem problem;
  problem.head_dim = {head_dim, head_dim};
  problem.heads = {32, 8};
  problem.max_q_len = max_q_len;
  AttentionSchedule portable;
  portable.family = Family::kPortable;
  return plan_attention(problem, portable, arch).main;
}

TEST(LaunchPlan, GivesAPrefillTileToEachBlockOfRowsOfEachHead) {
  const AttentionExtent extent{.batch = 3, .q_heads = 32, .kv_heads = 8, .q_len = 130, .kv_len = 500, .q_tokens = 390};
  const AttentionLaunch launch = plan_launch(planned(128, 0), extent, 132, 0);
  EXPECT_EQ(launch.num_m_blocks, 2);
  EXPECT_EQ(launch.main.grid[0], 3u * 32 * 2);
  EXPECT_EQ(launch.num_splits, 1);
  EXPECT_EQ(launch.workspace_bytes, 0u);
}

TEST(LaunchPlan, KeepsHeadsOfOneKvHeadInOneSection) {
  const AttentionExtent extent{
      .batch = 4, .q_heads = 32, .kv_heads = 8, .q_len = 65536, .kv_len = 65536, .q_tokens = 262144};
  const AttentionLaunch launch = plan_launch(planned(128, 0), extent, 132, 0);
  EXPECT_EQ(launch.head_section % 4, 0) << "a group shares its keys";
  EXPECT_LT(launch.head_section, 128) << "more would not fit the L2";
}

TEST(LaunchPlan, SplitsTheKeysOfASmallBatchAndNotOfALargeOne) {
  const AttentionExtent one{.batch = 1, .q_heads = 32, .kv_heads = 8, .q_len = 1, .kv_len = 8192, .q_tokens = 1};
  const AttentionLaunch small = plan_launch(planned(128, 1), one, 132, 0);
  EXPECT_GT(small.num_splits, 1);
  EXPECT_LE(small.num_splits * 8, 132) << "one wave";
  EXPECT_EQ(small.main.grid[0], 8u * small.num_splits);
  EXPECT_EQ(small.workspace_bytes, small.num_splits * 32u * (128 + 1) * 4 + 8 * sizeof(std::uint64_t))
      << "the parts, their LSEs, and a counter for each KV head";
  AttentionExtent many = one;
  many.batch = 512, many.q_tokens = 512;
  EXPECT_EQ(plan_launch(planned(128, 1), many, 132, 0).num_splits, 1);
}

TEST(LaunchPlan, NeverMakesMorePartsThanTheMergeCanTake) {
  const AttentionExtent extent{.batch = 1, .q_heads = 32, .kv_heads = 8, .q_len = 1, .kv_len = 1 << 24, .q_tokens = 1};
  EXPECT_LE(plan_launch(planned(128, 1), extent, 100'000, 0).num_splits, contract::kMaxSplits);
  EXPECT_EQ(plan_launch(planned(128, 1), extent, 132, 100'000).num_splits, contract::kMaxSplits);
}

TEST(LaunchPlan, AsksForAGridThatTheDriverRefusesRatherThanAWrappedOne) {
  const AttentionExtent extent{.batch = 1 << 20,
                               .q_heads = 4096,
                               .kv_heads = 1024,
                               .q_len = 256,
                               .kv_len = 1,
                               .q_tokens = std::int64_t{1} << 28};
  EXPECT_GT(plan_launch(planned(128, 0), extent, 132, 0).main.grid[0], 0x7fffffffu);  // 2^33 tiles
}

TEST(LaunchPlan, FitsEveryPlannedTileToItsArchitecture) {
  for (const ArchInfo& arch : all_archs())
    for (const int head_dim : {64, 80, 96, 128, 192, 256})
      for (const int max_q_len : {0, 1, 4})
        EXPECT_LE(static_cast<int>(shared_bytes(planned(head_dim, max_q_len, arch.arch))), arch.shared_bytes_per_cta)
            << arch.name << " head_dim " << head_dim << " max_q_len " << max_q_len;
}

TEST(Planner, SaysWhyForEveryField) {
  AttentionProblem problem;
  problem.heads = {8, 8};
  AttentionSchedule schedule;
  schedule.block_n = 32;
  for (const Choice& choice : plan_attention(problem, schedule, Arch::kSm80).choices) {
    EXPECT_FALSE(choice.reason.empty()) << choice.field;
    if (choice.field == "block_n") {
      EXPECT_EQ(choice.value, "32");
      EXPECT_EQ(choice.reason, "the schedule says so");
    }
  }
}

TEST(Planner, NamesTheNearestTileThatFits) {
  AttentionProblem problem;
  problem.head_dim = {128, 128};
  AttentionSchedule schedule;
  schedule.num_stages = 4;
  try {
    plan_attention(problem, schedule, Arch::kSm86);
    FAIL() << "160 KiB do not fit 99 KiB";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "/schedule/num_stages: attention_portable: needs 163840 shared bytes and sm_86 has 101376; 2 stages would fit");
  }
}

TEST(Planner, RefusesATileThatWarpsCannotShare) {
  AttentionProblem problem;
  AttentionSchedule schedule;
  schedule.block_m = 80;
  schedule.splits = 4;
  try {
    plan_attention(problem, schedule, Arch::kSm90a);
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.violations().size(), 2u) << error.what();
    EXPECT_EQ(error.violations()[0].path, "/schedule/block_m");
    EXPECT_EQ(error.violations()[1].path, "/schedule/splits");
  }
}

}  // namespace
}  // namespace kernelwright::launch_test
