// The hopper family from problem and schedule to Spec. hopper_layout_test.cpp and hopper_launch_test.cpp have what
// follows from a Spec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "contract/attention_sm90.h"
#include "generator/attention/hopper_plans.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::hopper_test {
namespace {

using test::hopper_plans::hopper;
using test::hopper_plans::in_clusters;
using test::hopper_plans::planned;
using test::hopper_plans::prefill;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The rules that a hopper config with a tile breaks after `change`, each as text.
std::vector<std::string> refused(const std::function<void(AttentionProblem&, AttentionSchedule&)>& change) {
  AttentionProblem problem = prefill(128, 128);
  AttentionSchedule schedule = hopper();
  change(problem, schedule);
  std::vector<std::string> lines;
  try {
    plan_attention(problem, schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    for (const Violation& violation : error.violations()) lines.push_back(violation.text());
  }
  return lines;
}

TEST(HopperPlan, StartsFromTheTileOfItsHeadSize) {
  struct Expected {
    int qk, v, math_warpgroups, block_n, q_stages, num_kv_stages;
    KvRing kv_ring;
    Overlap overlap;
  };
  constexpr KvRing kSplit = KvRing::kSplit, kShared = KvRing::kShared;
  for (const Expected& e :
       {Expected{16, 16, 3, 128, 2, 4, kSplit, Overlap::kBoth}, Expected{64, 64, 3, 128, 2, 4, kSplit, Overlap::kBoth},
        Expected{72, 72, 3, 80, 2, 6, kShared, Overlap::kBoth},
        Expected{128, 128, 3, 80, 2, 6, kShared, Overlap::kBoth},
        Expected{192, 128, 2, 112, 1, 2, kSplit, Overlap::kIntra},
        Expected{192, 192, 2, 112, 1, 2, kSplit, Overlap::kIntra},
        Expected{256, 256, 2, 64, 1, 2, kSplit, Overlap::kBoth}}) {
    const AttentionSpec spec = planned(e.qk, e.v);
    SCOPED_TRACE("head dims " + std::to_string(e.qk) + " and " + std::to_string(e.v));
    EXPECT_EQ(kernel_name(spec), "attention_sm90");
    EXPECT_EQ(spec.math_warpgroups, e.math_warpgroups);
    EXPECT_EQ(spec.block_m, 64 * e.math_warpgroups);
    EXPECT_EQ(spec.block_n, e.block_n);
    EXPECT_EQ(spec.q_stages, e.q_stages);
    EXPECT_EQ(spec.num_kv_stages, e.num_kv_stages);
    EXPECT_EQ(spec.overlap, e.overlap);
    EXPECT_EQ(spec.kv_ring, e.kv_ring);
    EXPECT_EQ(spec.scheduler, Scheduler::kQueued);
  }
}

TEST(HopperPlan, TakesFewerRowsWhereSequencesAreShort) {
  AttentionProblem problem = prefill(128, 128);
  const auto rows = [&](MaskKind mask, int max_q_len) {
    problem.mask.kind = mask;
    problem.max_q_len = max_q_len;
    return planned(problem).block_m;
  };
  EXPECT_EQ(rows(MaskKind::kNone, 512), 128);
  EXPECT_EQ(rows(MaskKind::kNone, 513), 192);
  EXPECT_EQ(rows(MaskKind::kCausal, 2048), 128) << "most of a short causal sequence's tile is masked";
  EXPECT_EQ(rows(MaskKind::kCausal, 2049), 192);
  EXPECT_EQ(rows(MaskKind::kCausal, 0), 192) << "any length";
}

TEST(HopperPlan, FitsEveryHeadSize) {
  const int limit = arch_info(Arch::kSm90a).shared_bytes_per_cta;
  for (int qk = 16; qk <= 256; qk += 8)
    for (int v = 16; v <= qk; v += 8)
      for (const int page_size : {0, 1, 12, 48, 64}) {
        AttentionProblem problem = prefill(qk, v);
        if (page_size > 0) problem.kv_layout = {KvLayoutKind::kPaged, page_size};
        const AttentionSpec spec = planned(problem);
        EXPECT_LE(static_cast<int>(shared_bytes(spec)), limit) << qk << " and " << v;
        EXPECT_GE(spec.num_kv_stages, 2) << qk << " and " << v;
        EXPECT_GE(spec.block_n, 64) << qk << " and " << v;
        if (page_size > 0 && !contract::hopper_gathers_kv(page_size)) {
          EXPECT_GE(contract::hopper_kv_box_rows(spec.block_n, page_size), 8);
        }
      }
}

TEST(HopperPlan, HandsOutTilesToWhoeverIsFreeAndShortUnevenOnesLongestFirst) {
  AttentionProblem problem = prefill(128, 128);
  for (const MaskKind mask : {MaskKind::kCausal, MaskKind::kSlidingWindow}) {
    problem.mask.kind = mask;
    problem.max_q_len = 0;
    EXPECT_EQ(planned(problem).scheduler, Scheduler::kQueued);
    problem.max_q_len = 512;
    EXPECT_EQ(planned(problem).scheduler, Scheduler::kLongestFirst);
  }
  problem.max_q_len = 0;
  problem.mask.kind = MaskKind::kSlidingWindow;
  problem.mask.window = {127, 0};
  EXPECT_EQ(planned(problem).scheduler, Scheduler::kLongestFirst) << "two or three tiles of a narrow window";
  problem.mask.window = {4095, 0};
  EXPECT_EQ(planned(problem).scheduler, Scheduler::kQueued);
  problem.mask = {};
  problem.max_q_len = 512;
  EXPECT_EQ(planned(problem).scheduler, Scheduler::kQueued);
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  EXPECT_EQ(planned(problem).scheduler, Scheduler::kPersistent) << "registers are short where keys are gathered";
}

TEST(HopperPlan, TakesWholePartsOfAPage) {
  AttentionProblem problem = prefill(192, 192);
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  EXPECT_EQ(planned(problem).block_n, 96) << "112 would take boxes of 16 rows";
}

TEST(HopperPlan, FollowsTheScheduleAndFillsWhatItLeaves) {
  AttentionSchedule schedule = hopper();
  schedule.block_m = 192;
  AttentionSpec spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.math_warpgroups, 3);
  EXPECT_LT(spec.block_n, 128) << "three warpgroups have 160 registers a thread";
  schedule = hopper();
  schedule.math_warpgroups = 1;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.block_m, 64);
  EXPECT_EQ(spec.overlap, Overlap::kIntra);
  EXPECT_EQ(spec.threads(), 256);
  schedule = hopper();
  schedule.block_n = 128;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.math_warpgroups, 2) << "three have no registers for it";
  EXPECT_EQ(spec.num_kv_stages, 5) << "an odd count, which two rings cannot have";
  schedule = hopper();
  schedule.num_kv_stages = 1;
  schedule.q_stages = 1;
  schedule.num_qk_stages = 2;
  schedule.scheduler = Scheduler::kGrid;
  schedule.rescale = Rescale::kAlways;
  schedule.overlap = Overlap::kNone;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.num_kv_stages, 1);
  EXPECT_EQ(spec.q_stages, 1);
  EXPECT_EQ(spec.num_qk_stages, 2);
  EXPECT_EQ(spec.kv_ring, KvRing::kSplit) << "a shared slot is filled whole";
  EXPECT_EQ(spec.scheduler, Scheduler::kGrid);
  EXPECT_EQ(spec.rescale, Rescale::kAlways);
  EXPECT_EQ(spec.overlap, Overlap::kNone);
}

TEST(HopperPlan, CutsTilesOfKAndOfVIntoSubStages) {
  AttentionSchedule schedule = hopper();
  AttentionSpec spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.num_mma_stages, 1);
  schedule.num_mma_stages = 2;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.num_mma_stages, 2);
  EXPECT_EQ(spec.num_qk_stages, 2) << "K follows V";
  EXPECT_EQ(spec.kv_ring, KvRing::kShared) << "one count suits a ring for both";
  EXPECT_EQ(spec.block_n, 64) << "80 keys are not two times whole 16s";
  schedule.num_qk_stages = 1;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.num_qk_stages, 1);
  EXPECT_EQ(spec.kv_ring, KvRing::kSplit);
  schedule = hopper();
  schedule.num_mma_stages = 3;
  schedule.cluster = ClusterShape{4, 1};
  spec = planned(prefill(192, 128), schedule);
  EXPECT_EQ(spec.block_n % 96, 0) << "each CTA loads 8 keys of each sub-stage, or a multiple";
}

TEST(HopperPlan, CutsTilesWhereItWasFaster) {
  const auto stages = [](const AttentionProblem& problem, const AttentionSchedule& schedule = hopper()) {
    const AttentionSpec spec = planned(problem, schedule);
    return std::pair(spec.num_qk_stages, spec.num_mma_stages);
  };
  AttentionProblem problem = prefill(64, 64);
  EXPECT_EQ(stages(problem), std::pair(1, 2));
  EXPECT_EQ(stages(prefill(128, 128)), std::pair(1, 1));
  EXPECT_EQ(stages(prefill(256, 256)), std::pair(2, 2));
  problem.mask.kind = MaskKind::kCausal;
  EXPECT_EQ(stages(problem), std::pair(1, 2));
  problem.max_q_len = 512;
  EXPECT_EQ(stages(problem), std::pair(1, 1)) << "another tile, which lost";
  problem = prefill(64, 64);
  problem.mask = {MaskKind::kSlidingWindow, {127, 0}, 0, {}};
  EXPECT_EQ(stages(problem), std::pair(1, 1));
  problem = prefill(32, 32);
  EXPECT_EQ(stages(problem), std::pair(1, 2));
  problem.mask.kind = MaskKind::kCausal;
  EXPECT_EQ(stages(problem), std::pair(1, 1));
  // A schedule that names the fields on which sub-stages depend has whole tiles: its tiles need not divide.
  AttentionSchedule schedule = hopper();
  schedule.block_n = 80;
  EXPECT_EQ(stages(prefill(64, 64), schedule), std::pair(1, 1));
  schedule = hopper();
  schedule.kv_ring = KvRing::kShared;
  EXPECT_EQ(stages(prefill(64, 64), schedule), std::pair(1, 1));
}

TEST(HopperPlan, PlansAStepOfSubStagesWiderThanItsUsualTile) {
  // A cluster of four takes 32 keys of a sub-stage at a time: four sub-stages take 128, and the usual tile has 80.
  AttentionProblem problem = prefill(128, 128);
  problem.mask = {MaskKind::kSlidingWindow, {9, 31}, 0, {}};
  AttentionSchedule schedule = hopper();
  schedule.num_mma_stages = 4;
  schedule.num_qk_stages = 2;
  schedule.math_warpgroups = 2;
  schedule.cluster = ClusterShape{4, 1};
  EXPECT_EQ(planned(problem, schedule).block_n, 128);
}

TEST(HopperPlan, RefusesSubStagesThatDoNotDivideATile) {
  const auto stages = [](int count, int block_n, const std::function<void(AttentionSchedule&)>& change) {
    return refused([&](auto&, auto& schedule) {
      schedule.num_mma_stages = count;
      schedule.block_n = block_n;
      change(schedule);
    });
  };
  const auto nothing = [](auto&) {};
  EXPECT_THAT(
      stages(3, 96, nothing),
      ElementsAre("/schedule/num_mma_stages: 3 does not divide the 2 slabs of 64 columns of a key tile; 2 would "
                  "do"));
  EXPECT_THAT(
      stages(4, 64, nothing),
      ElementsAre("/schedule/num_mma_stages: 4 does not divide the 2 slabs of 64 columns of a key tile; 2 would "
                  "do"));
  EXPECT_THAT(stages(2, 80, nothing),
              ElementsAre("/schedule/num_mma_stages: 2: 80 keys of a tile are not 2 times whole 16s, which a product "
                          "with V takes at a time; 1, or block_n 64, would do"));
  EXPECT_THAT(stages(3, 64, [](auto& schedule) { schedule.num_qk_stages = 1; }),
              ElementsAre("/schedule/num_mma_stages: 3: 64 keys of a tile are not 3 times whole 16s, which a product "
                          "with V takes at a time; 2, or block_n 48, would do"));
  EXPECT_THAT(stages(2, 32,
                     [](auto& schedule) {
                       schedule.cluster = ClusterShape{4, 1};
                       schedule.scheduler = Scheduler::kGrid;
                     }),
              ElementsAre("/schedule/num_mma_stages: 2: 32 keys of a tile are not 2 times whole 32s, which a cluster "
                          "takes at a time; 1 would do"));
}

TEST(HopperPlan, HasClustersWhereTheScheduleAsksForThem) {
  EXPECT_EQ(planned(128, 128).cluster_m, 1);
  EXPECT_EQ(planned(128, 128).multicast, 1);
  for (const int size : {1, 2, 4})
    for (const int depth : {64, 128, 192, 256}) {
      const AttentionSpec spec = planned(prefill(depth, depth), in_clusters(size));
      EXPECT_EQ(spec.cluster_m, size);
      EXPECT_EQ(spec.multicast, size) << "each load serves all";
      EXPECT_EQ(spec.block_n % (8 * size), 0) << "a CTA's share begins where the swizzle does";
    }
  EXPECT_THAT(refused([](auto&, auto& schedule) {
                schedule = in_clusters(4);
                schedule.block_n = 80;
              }),
              ElementsAre("/schedule/block_n: 80 keys are not a multiple of 8 for each CTA of a cluster of 4; 96 would "
                          "do"));
  EXPECT_THAT(refused([](auto&, auto& schedule) { schedule = in_clusters(3); }),
              ElementsAre("/schedule/cluster: [3, 1] is not built yet for the hopper family; it has [1, 1], [2, 1], "
                          "[4, 1]"));
  EXPECT_THAT(refused([](auto& problem, auto& schedule) {
                problem.max_q_len = 1;
                schedule = in_clusters(2);
                schedule.token_gen = true;
              }),
              ElementsAre(HasSubstr("/schedule/cluster: the hopper family has no cluster; its fields are")))
      << "decode has no clusters";
}

TEST(HopperPlan, OfAClusterSeesAWindowFromAllOfItsRows) {
  AttentionProblem problem = prefill(64, 64);
  problem.mask.kind = MaskKind::kSlidingWindow;
  problem.mask.window = {20, 0};
  problem.heads = {64, 8};
  AttentionSchedule alone = in_clusters(1), pair = in_clusters(2);
  alone.block_m = pair.block_m = 192;
  EXPECT_EQ(planned(problem, alone).block_n, 48) << "24 tokens and 20 more";
  EXPECT_EQ(planned(problem, pair).block_n, 80) << "48 tokens and 20 more";
}

TEST(HopperPlan, SaysWhyForEveryField) {
  for (const Choice& choice : plan_attention(prefill(128, 128), hopper(), Arch::kSm90a).choices)
    EXPECT_FALSE(choice.reason.empty()) << choice.field;
}

TEST(HopperPlan, RefusesWhatTheKernelLacksAllAtOnce) {
  EXPECT_THAT(
      refused([](auto& problem, auto& schedule) {
        problem.dtype = {DType::kBf16, DType::kE4m3, DType::kF32};
        problem.scales = ScaleKind::kPerBlock;
        problem.head_dim = {100, 260};
        schedule.splits = 2;
        schedule.cluster = ClusterShape{2, 2};
        schedule.math_warpgroups = 4;
        schedule.num_warps = 8;
      }),
      ElementsAre(
          "/problem/dtype/out: \"f32\" is not built yet for the hopper family; it has bf16",
          "/problem/head_dim/qk: 100 is not built yet for the hopper family; it has multiples of 16 from 16 to 256",
          "/problem/head_dim/v: 260 is not built yet for the hopper family; it has multiples of 16 from 16 to 256",
          "/problem/scales: \"per_block\" is not built yet for the hopper family; it has none, per_tensor, per_head, "
          "per_page, per_token",
          "/schedule/num_warps: the hopper family has no num_warps; its fields are arch, family, block_m, block_n, "
          "token_gen, q_stages, num_kv_stages, num_qk_stages, num_mma_stages, kv_ring, math_warpgroups, overlap, "
          "swizzle, cluster, scheduler, pack_gqa, splits, rescale, pv_promote, pv_buffers, exp2_emulated",
          "/schedule/splits: 2 is not built yet for the hopper family; it has 1",
          "/schedule/cluster: [2, 2] is not built yet for the hopper family; it has [1, 1], [2, 1], [4, 1]",
          "/schedule/math_warpgroups: 4 is not built yet for the hopper family; it has 1, 2, 3"));
  EXPECT_THAT(
      refused([](auto& problem, auto&) {
        problem.head_dim = {64, 128};
      }),
      ElementsAre("/problem/head_dim/v: 128 is not built yet for the hopper family; it has values no wider than "
                  "keys, 64; the portable family takes this problem"));
}

TEST(HopperPlan, OfARotaryPartHasTheTileOfItsWholeHead) {
  AttentionProblem problem = prefill(192, 128);
  AttentionSpec whole = planned(problem);
  problem.rope.width = 64;
  const AttentionSpec parts = planned(problem);
  EXPECT_EQ(parts.rope_width, 64);
  whole.rope_width = 64;
  EXPECT_EQ(parts, whole);
}

TEST(HopperPlan, RefusesRotaryPartsThatItsProductsDoNotTake) {
  const auto rotary = [](auto& problem) {
    problem.head_dim = {192, 128};
    problem.rope.width = 64;
  };
  EXPECT_THAT(refused([&](auto& problem, auto&) {
                rotary(problem);
                problem.rope.dtype = DType::kF16;
              }),
              ElementsAre("/problem/rope/dtype: \"f16\" beside queries of bf16 is not built yet for the hopper family; "
                          "it has that of q, bf16; sm_100a and sm_103a take this problem"));
  EXPECT_THAT(refused([&](auto& problem, auto&) {
                rotary(problem);
                problem.dtype.kv = DType::kE4m3;
              }),
              ElementsAre("/problem/rope/width: 64 beside keys of e4m3 is not built yet for the hopper family; it has "
                          "0, no rotary part, or 16-bit queries and keys"));
  EXPECT_THAT(refused([&](auto& problem, auto&) {
                rotary(problem);
                problem.rope.width = 96;
              }),
              ElementsAre("/problem/rope/width: 96 is not built yet for the hopper family; it has 0 and multiples of "
                          "8 to 64"));
  EXPECT_THAT(refused([&](auto& problem, auto&) {
                rotary(problem);
                problem.kv_layout = {KvLayoutKind::kPaged, 4};
              }),
              ElementsAre(HasSubstr("/problem/kv_layout/page_size: 4 is not built yet for the hopper family; it has "
                                    "multiples of 8")));
  EXPECT_THAT(refused([&](auto& problem, auto& schedule) {
                rotary(problem);
                schedule.token_gen = true;
              }),
              ElementsAre(HasSubstr("/problem/rope/width: 64 is not built yet for the hopper family; it has 0, no "
                                    "rotary part")));
}

/// Keys that warps convert: whole tiles, which each CTA loads for itself, in rows of whole pieces.
TEST(HopperPlan, ConvertsFp8KeysWholeAndForItsOwnCta) {
  const auto narrow = [](auto& problem) { problem.dtype.kv = DType::kE4m3; };
  EXPECT_THAT(refused([&](auto& problem, auto& schedule) {
                narrow(problem);
                schedule.kv_ring = KvRing::kSplit;
                schedule.num_mma_stages = 2, schedule.num_qk_stages = 2;
                schedule.block_n = 64;
              }),
              ElementsAre("/schedule/num_mma_stages: 2: tiles of e4m3 are converted whole; 1 would do",
                          "/schedule/num_qk_stages: 2: tiles of e4m3 are converted whole; 1 would do"));
  EXPECT_THAT(refused([&](auto& problem, auto& schedule) {
                narrow(problem);
                schedule.cluster = ClusterShape{2, 1};
              }),
              ElementsAre("/schedule/cluster: [2, 1]: tiles of e4m3 are converted by each CTA for itself; [1, 1] would "
                          "do"));
  EXPECT_THAT(
      refused([&](auto& problem, auto& schedule) {
        narrow(problem);
        schedule.swizzle = Swizzle::kNone;
      }),
      ElementsAre("/schedule/swizzle: \"none\": tiles of e4m3 are converted by pieces of 16 bytes in rows of two at "
                  "least; \"32B\" would do"));
  EXPECT_THAT(refused([&](auto& problem, auto&) {
                narrow(problem);
                problem.kv_layout = {KvLayoutKind::kPaged, 4};
              }),
              ElementsAre(HasSubstr("/problem/kv_layout/page_size: 4 is not built yet for the hopper family; it has "
                                    "multiples of 8")));
}

/// Two rings of raw and converted tiles leave heads of 256 room for tiles of 64 keys.
TEST(HopperPlan, TakesKeysAsTheyAreStoredUnderBf16Queries) {
  AttentionProblem problem = prefill(256, 256);
  problem.dtype.kv = DType::kE4m3;
  const AttentionSpec spec = planned(problem);
  EXPECT_TRUE(spec.splits_q());
  EXPECT_EQ(std::tuple(spec.kv_ring, spec.block_n, spec.num_kv_stages), std::tuple(KvRing::kSplit, 80, 2));
  problem.head_dim = {128, 128};
  EXPECT_EQ(planned(problem).overlap, Overlap::kIntra) << "without turns";
  problem.dtype = {DType::kF16, DType::kE4m3, DType::kF16};
  EXPECT_FALSE(planned(problem).splits_q()) << "f16 has too many bits for two terms";
  problem.dtype = {DType::kBf16, DType::kBf16, DType::kBf16};
  EXPECT_FALSE(planned(problem).splits_q());
  EXPECT_THAT(refused([](auto& changed, auto& schedule) {
                changed.dtype.kv = DType::kE5m2;
                schedule.kv_ring = KvRing::kShared;
              }),
              ElementsAre("/schedule/kv_ring: \"shared\": TMA fills the slots of keys, and warps those of e5m2 values; "
                          "\"split\" would do"));
}

TEST(HopperPlan, ConvertsWideHeadsOfF16InOneRing) {
  AttentionProblem problem = prefill(256, 256);
  EXPECT_EQ(planned(problem).kv_ring, KvRing::kSplit);
  problem.dtype = {DType::kF16, DType::kE4m3, DType::kF16};
  const AttentionSpec one = planned(problem);
  EXPECT_EQ(std::tuple(one.kv_ring, one.block_n, one.num_kv_stages), std::tuple(KvRing::kShared, 80, 3));
  AttentionSchedule schedule = hopper();
  schedule.kv_ring = KvRing::kSplit;
  const AttentionSpec two = planned(problem, schedule);
  EXPECT_EQ(std::tuple(two.kv_ring, two.block_n, two.num_kv_stages), std::tuple(KvRing::kSplit, 64, 2));
}

TEST(HopperPlan, TransposesFp8ValuesWholeAndForItsOwnCta) {
  const auto narrow = [](auto& problem) { problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16}; };
  EXPECT_THAT(refused([&](auto& problem, auto& schedule) {
                narrow(problem);
                schedule.kv_ring = KvRing::kShared;
                schedule.block_n = 80;
              }),
              ElementsAre("/schedule/kv_ring: \"shared\": TMA fills the slots of keys, and warps those of e4m3 values; "
                          "\"split\" would do",
                          "/schedule/block_n: 80: products with values of e4m3 take 32 keys at a time; 96 would do"));
  EXPECT_THAT(refused([&](auto& problem, auto&) {
                narrow(problem);
                problem.dtype.out = DType::kE4m3;
                problem.head_dim = {256, 144};
              }),
              ElementsAre("/problem/dtype/out: \"e4m3\" is not built yet for the hopper family; it has f16, bf16",
                          HasSubstr("/problem/head_dim/v: 144 is not built yet for the hopper family; it has multiples "
                                    "of 16 to 128, and of 32 above")));
}

TEST(HopperPlan, RefusesTilesThatTheMachineCannotHoldAllAtOnce) {
  EXPECT_THAT(
      refused([](auto&, auto& schedule) {
        schedule.math_warpgroups = 1;
        schedule.block_m = 128;
        schedule.kv_ring = KvRing::kSplit;
        schedule.overlap = Overlap::kBoth;
        schedule.num_qk_stages = 3;
        schedule.block_n = 256;
        schedule.num_kv_stages = 2;
      }),
      ElementsAre(
          "/schedule/block_m: 128 is not 64 rows for each math warpgroup, of which there is 1; 64 would do",
          "/schedule/overlap: \"both\" has warpgroups take turns, and there is 1; intra would do",
          "/schedule/num_qk_stages: 3 does not divide the 2 slabs of 64 columns of a key tile; 2 would do",
          "/schedule/block_n: 256 keys and values of 128 need about 288 registers a thread, and 1 math warpgroup has "
          "256; block_n 208 would fit",
          "/schedule/num_kv_stages: attention_sm90: needs 328096 shared bytes and sm_90a has 232448; num_kv_stages 1 "
          "would fit"));
  EXPECT_THAT(
      refused([](auto&, auto& schedule) {
        schedule.kv_ring = KvRing::kShared;
        schedule.num_qk_stages = 2;
        schedule.num_kv_stages = 1;
      }),
      ElementsAre("/schedule/num_qk_stages: 2: a slot that K and V share has num_mma_stages sub-stages, 1; 1, or "
                  "kv_ring \"split\", would do",
                  "/schedule/num_kv_stages: 1: K and V of a tile are held at once; 2 would do"));
  EXPECT_THAT(refused([](auto& problem, auto& schedule) {
                problem.head_dim = {256, 256};
                schedule.math_warpgroups = 3;
                schedule.block_n = 16;
              }),
              testing::Contains(HasSubstr("/schedule/math_warpgroups: 16 keys and values of 256 need about 172")));
}

TEST(HopperPlan, NamesTheNearestTileInSharedMemory) {
  EXPECT_THAT(refused([](auto&, auto& schedule) {
                schedule.block_n = 128;
                schedule.num_kv_stages = 9;
              }),
              ElementsAre(HasSubstr("num_kv_stages 5 would fit")));
  EXPECT_THAT(refused([](auto& problem, auto& schedule) {
                problem.head_dim = {256, 256};
                schedule.block_n = 80;
                schedule.num_kv_stages = 1;
                schedule.q_stages = 2;
              }),
              IsEmpty());
  EXPECT_THAT(
      refused([](auto& problem, auto& schedule) {
        problem.head_dim = {192, 192};
        schedule.math_warpgroups = 1;
        schedule.block_n = 256;
        schedule.num_kv_stages = 1;
        schedule.q_stages = 2;
      }),
      testing::Contains(HasSubstr("/schedule/q_stages: attention_sm90: needs 246080 shared bytes and sm_90a has "
                                  "232448; q_stages 1 with num_kv_stages 1 would fit")));
}

}  // namespace
}  // namespace kernelwright::hopper_test
