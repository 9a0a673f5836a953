// The hopper family's decode form from problem and schedule to Spec, shared memory and launch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::hopper_decode_test {
namespace {

using testing::ElementsAre;

AttentionProblem decode(int head_dim) {
  AttentionProblem problem;
  problem.head_dim = {head_dim, head_dim};
  problem.heads = {32, 8};
  problem.max_q_len = 1;
  return problem;
}

AttentionSchedule hopper_decode() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.token_gen = true;
  return schedule;
}

AttentionSpec planned(const AttentionProblem& problem, const AttentionSchedule& schedule = hopper_decode()) {
  return plan_attention(problem, schedule, Arch::kSm90a).main;
}

std::vector<std::string> refused(const AttentionProblem& problem, const AttentionSchedule& schedule) {
  std::vector<std::string> lines;
  try {
    plan_attention(problem, schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    for (const Violation& violation : error.violations()) lines.push_back(violation.text());
  }
  return lines;
}

TEST(HopperDecodePlan, FillsSharedMemoryWithStages) {
  for (const int head_dim : {64, 80, 128, 192, 256}) {
    const AttentionSpec spec = planned(decode(head_dim));
    EXPECT_EQ(kernel_name(spec), "attention_decode_sm90");
    EXPECT_EQ(spec.merge, Merge::kInKernel);
    EXPECT_EQ(spec.threads(), 32 * spec.num_warps);
    EXPECT_GE(spec.num_stages, 2) << head_dim;
    EXPECT_LE(shared_bytes(spec), static_cast<std::uint32_t>(arch_info(Arch::kSm90a).shared_bytes_per_cta)) << head_dim;
    AttentionSpec deeper = spec;
    ++deeper.num_stages;
    EXPECT_TRUE(spec.num_stages == 4 ||
                shared_bytes(deeper) > static_cast<std::uint32_t>(arch_info(Arch::kSm90a).shared_bytes_per_cta))
        << head_dim;
  }
}

TEST(HopperDecodePlan, AsksForTheCtasThatItsSharedMemoryHolds) {
  AttentionSchedule schedule = hopper_decode();
  schedule.num_stages = 4;
  EXPECT_EQ(planned(decode(128), schedule).min_ctas, 1) << "132 KiB each";
  schedule.num_stages = 2;
  schedule.block_n = 64;
  EXPECT_EQ(planned(decode(128), schedule).min_ctas, 3) << "68 KiB each, 168 registers a thread";
  schedule.block_n = 128;
  EXPECT_EQ(planned(decode(128), schedule).min_ctas, 1) << "32 keys a warp take more registers";
}

TEST(HopperDecodePlan, MapsSharedMemoryWithoutGaps) {
  const AttentionSpec spec = planned(decode(80));
  const auto map = shared_map(spec);
  ASSERT_EQ(map.size(), 1u + 2u * static_cast<std::size_t>(spec.num_warps) + 3u);
  EXPECT_EQ(map.back().name, "barriers");
  EXPECT_EQ(map.back().offset + map.back().bytes, shared_bytes(spec));
  EXPECT_EQ(map.back().bytes, static_cast<std::uint32_t>(spec.num_warps * spec.num_stages * 16));
  // Boxes begin where the swizzle's pattern does, and columns are padded to whole slabs.
  for (std::size_t i = 1; i <= 2u * static_cast<std::size_t>(spec.num_warps); ++i) {
    EXPECT_EQ(map[i].offset % 1024, 0u) << map[i].name;
    EXPECT_EQ(map[i].stage_bytes, 32u * 128 * 2) << map[i].name;
  }
  EXPECT_GE(map.back().offset, map[map.size() - 2].offset + map[map.size() - 2].bytes);
}

TEST(HopperDecodePlan, SplitsKeysLikeThePortableOne) {
  const AttentionSpec spec = planned(decode(128));
  const AttentionExtent extent{.batch = 1, .q_heads = 32, .kv_heads = 8, .q_len = 1, .kv_len = 8192, .q_tokens = 1};
  const AttentionLaunch launch = plan_launch(spec, extent, 132, 0);
  EXPECT_GT(launch.num_splits, 1);
  EXPECT_EQ(launch.main.grid[0], 8u * static_cast<std::uint32_t>(launch.num_splits));
  EXPECT_EQ(launch.main.block, 128u);
  EXPECT_EQ(launch.workspace_bytes, launch.merge_counters_offset + 8 * 8);
}

TEST(HopperDecodePlan, FillsEachSmOnceWithPartsOfBytes) {
  AttentionProblem problem = decode(128);
  problem.dtype.kv = DType::kE4m3;
  const AttentionSpec spec = planned(problem);
  const auto splits = [&](int batch, int keys) {
    const AttentionExtent extent{
        .batch = batch, .q_heads = 32, .kv_heads = 8, .q_len = 1, .kv_len = keys, .q_tokens = batch};
    return plan_launch(spec, extent, 132, 0).num_splits;
  };
  EXPECT_EQ(splits(1, 131072), 16);
  EXPECT_EQ(splits(1, 8192), 16);
  EXPECT_EQ(splits(8, 8192), 2);
  EXPECT_EQ(splits(16, 8192), 1) << "128 items";
  EXPECT_EQ(splits(17, 8192), 1) << "more items than SMs";
}

TEST(HopperDecodePlan, RefusesWhatItLacksByName) {
  AttentionProblem problem = decode(72);
  AttentionSchedule schedule = hopper_decode();
  EXPECT_THAT(
      refused(problem, schedule),
      ElementsAre("/problem/head_dim/qk: 72 is not built yet for the hopper family; it has multiples of 16 from "
                  "16 to 256; the hopper family takes this problem, with a schedule of its own",
                  "/problem/head_dim/v: 72 is not built yet for the hopper family; it has multiples of 16 from "
                  "16 to 256"));
  schedule.math_warpgroups = 2;
  EXPECT_THAT(
      refused(decode(128), schedule),
      ElementsAre("/schedule/math_warpgroups: the hopper family has no math_warpgroups; its fields are arch, "
                  "family, block_m, block_n, token_gen, num_warps, num_stages, swizzle, pack_gqa, splits, merge, "
                  "rescale"));
  schedule = hopper_decode();
  schedule.swizzle = Swizzle::k64B;
  EXPECT_THAT(refused(decode(112), schedule),
              ElementsAre(testing::HasSubstr("/schedule/swizzle: \"64B\" spans 64 bytes")));
  schedule = hopper_decode();
  schedule.pack_gqa = false;
  EXPECT_THAT(refused(decode(128), schedule),
              ElementsAre("/schedule/pack_gqa: false, but the decode form packs the heads of a group; true would do"));
  schedule = hopper_decode();
  schedule.num_warps = 4;
  schedule.num_stages = 16;
  EXPECT_THAT(
      refused(decode(128), schedule),
      ElementsAre("/schedule/num_stages: attention_decode_sm90: needs 529408 shared bytes and sm_90a has 232448; "
                  "6 stages would fit"));
}

TEST(HopperDecodePlan, IsChosenWhereItWasMeasuredToBeFaster) {
  EXPECT_EQ(kernel_name(planned(decode(128), {})), "attention_decode_sm90");
  EXPECT_EQ(kernel_name(planned(decode(80), {})), "attention_decode_sm90");
  EXPECT_EQ(kernel_name(planned(decode(64), {})), "attention_decode_portable");
  EXPECT_EQ(kernel_name(planned(decode(256), {})), "attention_decode_portable");
  AttentionProblem problem = decode(128);
  problem.max_q_len = 5;
  EXPECT_EQ(kernel_name(planned(problem, {})), "attention_decode_portable") << "20 rows a KV head";
  problem = decode(128);
  problem.kv_layout = {KvLayoutKind::kPaged, 12};
  EXPECT_EQ(kernel_name(planned(problem, {})), "attention_decode_portable") << "no box lies within such a page";
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  EXPECT_EQ(kernel_name(planned(decode(128), schedule)), "attention_sm90") << "whose schedule it is, unless it says so";
}

}  // namespace
}  // namespace kernelwright::hopper_decode_test
