// The stages of the portable family's KV buffer, and how warps share a tile: planned, counted, refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::portable_stages_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

AttentionProblem prefill(DType kv = DType::kBf16, int depth = 128) {
  AttentionProblem problem;
  problem.dtype.kv = kv;
  problem.head_dim = {depth, depth};
  problem.heads = {32, 8};
  return problem;
}
AttentionProblem decode(DType kv = DType::kBf16, int depth = 128) {
  AttentionProblem problem = prefill(kv, depth);
  problem.max_q_len = 1;
  return problem;
}
AttentionSchedule portable() {
  AttentionSchedule schedule;
  schedule.family = Family::kPortable;
  return schedule;
}
AttentionSchedule staged(Staging staging) {
  AttentionSchedule schedule = portable();
  schedule.staging = staging;
  return schedule;
}

std::vector<std::string> refused(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                 Arch arch = Arch::kSm80) {
  std::vector<std::string> lines;
  try {
    plan_attention(problem, schedule, arch);
  } catch (const ConfigError& error) {
    for (const Violation& violation : error.violations()) lines.push_back(violation.text());
  }
  return lines;
}
AttentionSpec planned(const AttentionProblem& problem, const AttentionSchedule& schedule) {
  return plan_attention(problem, schedule, Arch::kSm80).main;
}

TEST(PortableStagePlan, AreSlotsUnlessKeysAreConverted) {
  for (const AttentionProblem& problem : {prefill(), decode()})
    EXPECT_EQ(planned(problem, portable()).staging, Staging::kCpAsync);
  for (const AttentionProblem& problem : {prefill(DType::kE4m3), decode(DType::kE5m2)}) {
    EXPECT_EQ(planned(problem, portable()).staging, Staging::kRegisters);
    EXPECT_EQ(planned(problem, portable()).num_stages, 1);
  }
}

TEST(PortableStagePlan, AreAsManyAsTheirFormHasByDefault) {
  for (const int depth : {64, 80, 128, 256}) {
    const int slots = depth <= 64 ? 2 : 1;
    EXPECT_EQ(planned(prefill(DType::kBf16, depth), portable()).num_stages, slots) << depth;
    const AttentionSpec decoding = planned(decode(DType::kBf16, depth), portable());
    EXPECT_TRUE(decoding.token_gen);
    EXPECT_GE(decoding.num_stages, 2) << depth;
    EXPECT_LE(decoding.num_stages, 4) << depth;
    for (const AttentionProblem& problem : {prefill(DType::kBf16, depth), decode(DType::kBf16, depth)})
      EXPECT_EQ(planned(problem, staged(Staging::kRegisters)).num_stages, 1) << depth;
  }
}

TEST(PortableStagePlan, OfRegistersTakeOneSlotHoweverManyThereAre) {
  AttentionSchedule schedule = staged(Staging::kRegisters);
  for (const AttentionProblem& problem : {prefill(DType::kBf16, 64), decode(DType::kBf16, 64)}) {
    std::vector<std::uint32_t> bytes;
    for (const int stages : {1, 2, 3}) {
      schedule.num_stages = stages;
      const AttentionSpec spec = planned(problem, schedule);
      EXPECT_EQ(spec.num_stages, stages);
      bytes.push_back(shared_bytes(spec));
      for (const SharedRegion& region : shared_map(spec)) EXPECT_EQ(region.stage_bytes, 0u) << region.name;
    }
    EXPECT_EQ(bytes, std::vector(3, bytes[0]));
  }
}

TEST(PortableStagePlan, AreRefusedWhereTheyCannotBe) {
  EXPECT_THAT(
      refused(prefill(DType::kE4m3), staged(Staging::kCpAsync)),
      ElementsAre("/schedule/staging: cp_async, but e4m3 keys become bf16 on the way, which cp.async cannot do; "
                  "registers would do"));
  AttentionSchedule schedule = staged(Staging::kRegisters);
  schedule.num_stages = 5;
  EXPECT_THAT(refused(prefill(), schedule),
              ElementsAre("/schedule/num_stages: 5 stages of 64 keys in registers take 160 a thread beside 128 for "
                          "products, 240 in all; 3 stages would fit"));
  schedule.num_stages = 3;
  EXPECT_THAT(refused(prefill(), schedule), IsEmpty());
  schedule.num_stages = 1;
  schedule.block_n = 256;
  EXPECT_THAT(refused(prefill(), schedule),
              ElementsAre("/schedule/block_n: 1 stage of 256 keys in registers take 128 a thread beside 224 for "
                          "products, 240 in all; block_n 144 would fit"));
  schedule.block_n = 144;
  EXPECT_THAT(refused(prefill(), schedule), IsEmpty());
  schedule = staged(Staging::kRegisters);
  schedule.num_stages = 2;
  EXPECT_THAT(refused(decode(DType::kE4m3, 256), schedule),
              ElementsAre("/schedule/num_stages: 2 stages, but beside heads of 256 and 256 no tile waits in registers; "
                          "1 would do"));
  schedule = portable();
  schedule.num_stages = 1;
  EXPECT_THAT(refused(decode(), schedule),
              ElementsAre("/schedule/num_stages: 1 stage, but the decode form fills one slot while it reads another; 2 "
                          "would do"));
  schedule.family = Family::kHopper;
  schedule.num_stages = {};
  schedule.staging = Staging::kRegisters;
  ASSERT_EQ(refused(prefill(), schedule, Arch::kSm90a).size(), 1u);
  EXPECT_THAT(refused(prefill(), schedule, Arch::kSm90a)[0],
              testing::StartsWith("/schedule/staging: the hopper family has no staging;"));
}

TEST(PortableWarpTiles, AreTheWholeTileUnlessTheScheduleSplitsIt) {
  EXPECT_EQ(planned(prefill(), portable()).warp_n, 64);
  EXPECT_EQ(planned(decode(), portable()).warp_n, 16);
  AttentionSchedule schedule = portable();
  schedule.warp_n = 32;
  const AttentionSpec spec = planned(prefill(), schedule);
  EXPECT_EQ(spec.num_warps_n(), 2);
  EXPECT_EQ(spec.num_warps, 8) << "32 rows a warp stay";
  EXPECT_EQ(spec.block_m, 128);
}

TEST(PortableWarpTiles, LeavePartialOutputsInSharedMemory) {
  AttentionSchedule schedule = portable();
  schedule.warp_n = 16;
  const AttentionSpec spec = planned(prefill(), schedule);
  ASSERT_EQ(spec.num_warps_n(), 4);
  const std::vector<SharedRegion> map = shared_map(spec);
  ASSERT_EQ(map.size(), 5u);
  EXPECT_EQ(map[3].name, "statistics");
  EXPECT_EQ(map[3].offset, map[1].offset) << "over the keys";
  EXPECT_EQ(map[3].bytes, 4u * 2 * spec.block_m * 4);
  EXPECT_EQ(map[4].name, "partial outputs");
  EXPECT_EQ(map[4].bytes, static_cast<std::uint32_t>(spec.block_m * 128 * 4));
  EXPECT_EQ(shared_bytes(spec), map[4].offset + map[4].bytes);
}

TEST(PortableWarpTiles, AreRefusedWhereWarpsCannotShare) {
  AttentionSchedule schedule = portable();
  schedule.warp_n = 48;
  schedule.num_warps = 4;
  EXPECT_THAT(refused(prefill(), schedule),
              ElementsAre("/schedule/warp_n: 48 does not divide block_n, 64; 64 would do"));
  schedule.warp_n = 16;
  schedule.num_warps = 6;
  EXPECT_THAT(refused(prefill(), schedule),
              ElementsAre("/schedule/warp_n: 6 warps are no multiple of 4, which 16 of 64 keys make; 32 would do"));
  schedule = portable();
  schedule.warp_n = 64;
  EXPECT_THAT(refused(decode(), schedule),
              ElementsAre("/schedule/warp_n: 64, but in the decode form each of 4 warps walks its part of 64 keys; 16 "
                          "would do"));
  // 132 KB of partial outputs do not fit, and the tile without them does.
  schedule = portable();
  schedule.warp_n = 32, schedule.block_m = 256, schedule.num_warps = 16;
  EXPECT_THAT(refused(prefill(), schedule, Arch::kSm86),
              ElementsAre("/schedule/warp_n: attention_portable: needs 200704 shared bytes and sm_86 has 101376; "
                          "warp_n 64 would fit"));
  schedule.warp_n = 64;
  EXPECT_THAT(refused(prefill(), schedule, Arch::kSm86), IsEmpty());
}

TEST(PortableCandidates, HaveEachKindOfStageAndSplitTiles) {
  for (const bool decodes : {false, true}) {
    const AttentionShape shape{.name = "s", .batch = 4, .q_len = decodes ? 1 : 512, .kv_len = 2048};
    std::set<Staging> stagings;
    std::set<int> in_registers, columns;
    for (const Candidate& candidate : enumerate_candidates(decodes ? decode() : prefill(), portable(), Arch::kSm80,
                                                           {shape}, {.most = 0, .within = 1e9})
                                          .kept) {
      const AttentionSpec& spec = candidate.plan.main;
      if (spec.token_gen != decodes) continue;
      stagings.insert(spec.staging);
      if (spec.staging == Staging::kRegisters) in_registers.insert(spec.num_stages);
      if (!decodes) columns.insert(spec.num_warps_n());
    }
    EXPECT_EQ(stagings.size(), 2u);
    EXPECT_EQ(in_registers.size(), decodes ? 2u : 3u) << "three tiles of a decode do not fit";
    EXPECT_EQ(columns, decodes ? std::set<int>{} : (std::set{1, 2, 4, 8}));
  }
}

}  // namespace
}  // namespace kernelwright::portable_stages_test
