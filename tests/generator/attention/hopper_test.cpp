// The hopper family from problem and schedule to Spec, shared memory and launch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "contract/attention_sm90.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

AttentionProblem prefill(int head_dim_qk, int head_dim_v) {
  AttentionProblem problem;
  problem.head_dim = {head_dim_qk, head_dim_v};
  problem.heads = {32, 8};
  return problem;
}

AttentionSchedule hopper() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  return schedule;
}

AttentionSpec planned(const AttentionProblem& problem, const AttentionSchedule& schedule = hopper()) {
  return plan_attention(problem, schedule, Arch::kSm90a).main;
}
AttentionSpec planned(int head_dim_qk, int head_dim_v) { return planned(prefill(head_dim_qk, head_dim_v)); }

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

AttentionSchedule in_clusters(int size) {
  AttentionSchedule schedule = hopper();
  schedule.cluster = ClusterShape{size, 1};
  return schedule;
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
        problem.scales = ScaleKind::kPerTensor;
        problem.head_dim = {100, 260};
        schedule.splits = 2;
        schedule.cluster = ClusterShape{2, 2};
        schedule.math_warpgroups = 4;
        schedule.num_warps = 8;
      }),
      ElementsAre(
          "/problem/dtype/kv: \"e4m3\" is not built yet for the hopper family; it has bf16",
          "/problem/dtype/out: \"f32\" is not built yet for the hopper family; it has bf16",
          "/problem/head_dim/qk: 100 is not built yet for the hopper family; it has multiples of 8 from 16 to 256",
          "/problem/head_dim/v: 260 is not built yet for the hopper family; it has multiples of 8 from 16 to 256",
          "/problem/scales: \"per_tensor\" is not built yet for the hopper family; it has none",
          "/schedule/num_warps: the hopper family has no num_warps; its fields are arch, family, block_m, block_n, "
          "token_gen, q_stages, num_kv_stages, num_qk_stages, num_mma_stages, kv_ring, math_warpgroups, overlap, "
          "swizzle, cluster, scheduler, pack_gqa, splits, rescale",
          "/schedule/splits: 2 is not built yet for the hopper family; it has 1",
          "/schedule/cluster: [2, 2] is not built yet for the hopper family; it has [1, 1], [2, 1], [4, 1]",
          "/schedule/math_warpgroups: 4 is not built yet for the hopper family; it has 1, 2, 3"));
  EXPECT_THAT(
      refused([](auto& problem, auto&) {
        problem.head_dim = {64, 128};
      }),
      ElementsAre("/problem/head_dim/v: 128 is not built yet for the hopper family; it has values no wider than "
                  "keys, 64; the portable family takes this problem"));
  EXPECT_THAT(refused([](auto& problem, auto&) { problem.rope.width = 64; }),
              ElementsAre("/problem/rope/width: 64 is not built yet for the hopper family; it has 0, no rotary part; "
                          "sm_100a and sm_103a take this problem"));
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

TEST(HopperLayout, PlacesSlotsOn1024AndBarriersBehindThem) {
  for (const bool shared_ring : {false, true})
    for (const int depth_qk : {16, 72, 128, 192, 256})
      for (const int block_n : {16, 80, 112, 128}) {
        const int stages = 3, q_stages = 2, depth_v = depth_qk - 8;
        const contract::HopperLayout map =
            contract::hopper_layout(128, block_n, depth_qk, depth_v, q_stages, stages, 1, shared_ring);
        for (const int offset : {map.keys, map.values, map.barriers, map.query_slot, map.key_slot, map.value_slot})
          EXPECT_EQ(offset % 1024, 0);
        EXPECT_EQ(map.query_slot, 128 * contract::padded_depth(depth_qk, 128) * 2);
        EXPECT_EQ(map.keys, q_stages * map.query_slot);
        EXPECT_EQ(map.values, shared_ring ? map.keys : map.keys + stages * map.key_slot);
        EXPECT_EQ(map.barriers, map.values + stages * map.value_slot);
        EXPECT_EQ(map.items % 16, 0) << "records are read by vectors";
        const int barriers = 2 * q_stages + (shared_ring ? 2 : 4) * stages;
        EXPECT_EQ(map.items, map.barriers + (barriers * 8 + 15) / 16 * 16);
        EXPECT_EQ(map.total, map.items + (q_stages + 2) * 64);
      }
}

// The kernel has slots of whole tiles (pipeline/kv_rings.cuh), whatever a narrow slab's come to.
TEST(HopperLayout, PlacesNarrowSlotsOneBehindTheOtherWhereTheirSwizzleBegins) {
  for (const int swizzle : {0, 32, 64})
    for (const int block_n : {16, 48, 80, 104})
      for (const bool shared_ring : {false, true}) {
        const contract::HopperLayout map =
            contract::hopper_layout(64, block_n, 96, 32, 1, 3, 1, shared_ring, false, 1, swizzle);
        EXPECT_EQ(map.key_slot, block_n * 96 * 2);
        EXPECT_EQ(map.value_slot, block_n * (shared_ring ? 96 : 32) * 2);
        for (const int offset : {map.keys, map.values, map.key_slot, map.value_slot})
          EXPECT_EQ(offset % (8 * contract::slab_width(swizzle)), 0) << swizzle << " bytes, " << block_n << " keys";
      }
}

TEST(HopperLayout, NumbersEveryBarrierOnce) {
  const contract::HopperBarriers split = contract::hopper_barriers(2, 3, 2, false);
  EXPECT_EQ(split.query_empty, 2);
  EXPECT_EQ(split.key_full, 4);
  EXPECT_EQ(split.key_empty, 10);
  EXPECT_EQ(split.value_full, 16);
  EXPECT_EQ(split.value_empty, 19);
  EXPECT_EQ(split.count, 22);
  const contract::HopperBarriers shared = contract::hopper_barriers(1, 5, 1, true);
  EXPECT_EQ(shared.key_full, 2);
  EXPECT_EQ(shared.value_full, shared.key_full);
  EXPECT_EQ(shared.value_empty, shared.key_empty);
  EXPECT_EQ(shared.count, 12);
}

TEST(HopperLayout, HasABarrierForEachSubStageOfEachSlot) {
  const contract::HopperBarriers split = contract::hopper_barriers(2, 3, 1, false, true, 4);
  EXPECT_EQ(split.key_full, 4);
  EXPECT_EQ(split.key_empty, 7);
  EXPECT_EQ(split.value_full, 10);
  EXPECT_EQ(split.value_empty, 22);
  EXPECT_EQ(split.gather_posted, 34);
  const contract::HopperBarriers shared = contract::hopper_barriers(1, 5, 2, true, false, 2);
  EXPECT_EQ(shared.key_full, 2);
  EXPECT_EQ(shared.key_empty, 12);
  EXPECT_EQ(shared.value_full, shared.key_full);
  EXPECT_EQ(shared.count, 22);
  const int tiles = contract::hopper_layout(128, 64, 128, 128, 1, 5, 1, true).barriers;
  const contract::HopperLayout map = contract::hopper_layout(128, 64, 128, 128, 1, 5, 2, true, false, 2);
  EXPECT_EQ(map.barriers, tiles) << "sub-stages are parts of the same slots";
  EXPECT_EQ(map.items, map.barriers + 22 * 8);
}

TEST(HopperLayout, HasWhatGatherersAreToldBehindTheRest) {
  for (const bool shared_ring : {false, true})
    for (const int q_stages : {1, 2, 3}) {
      const contract::HopperBarriers without = contract::hopper_barriers(q_stages, 3, 1, shared_ring),
                                     barriers = contract::hopper_barriers(q_stages, 3, 1, shared_ring, true);
      EXPECT_EQ(barriers.gather_posted, without.count);
      EXPECT_EQ(barriers.count, without.count + q_stages + 2);
      const contract::HopperLayout map = contract::hopper_layout(128, 80, 128, 128, q_stages, 3, 1, shared_ring, true);
      EXPECT_GE(map.items, map.barriers + barriers.count * 8);
      EXPECT_EQ(map.gathers, map.items + (q_stages + 2) * 64);
      EXPECT_EQ(map.gather_rows, map.gathers + (q_stages + 2) * 16);
      EXPECT_EQ(map.gather_rows % 16, 0) << "two addresses are read at once";
      EXPECT_EQ(map.total, map.gather_rows + 3 * 80 * 8);
    }
}

TEST(HopperLayout, HasKeysGatheredWherePagesAreNoMultipleOfTheSwizzlesRows) {
  for (const int page : {1, 2, 3, 4, 7, 12, 20, 129}) EXPECT_TRUE(contract::hopper_gathers_kv(page)) << page;
  for (const int page : {0, 8, 24, 64, 256}) EXPECT_FALSE(contract::hopper_gathers_kv(page)) << page;
}

TEST(HopperLayout, TakesTheWidestBoxThatEndsWithThePage) {
  EXPECT_EQ(contract::hopper_kv_box_rows(128, 0), 128);
  EXPECT_EQ(contract::hopper_kv_box_rows(128, 64), 64);
  EXPECT_EQ(contract::hopper_kv_box_rows(112, 64), 16);
  EXPECT_EQ(contract::hopper_kv_box_rows(80, 256), 16);
  EXPECT_EQ(contract::hopper_kv_box_rows(128, 24), 8);
}

TEST(HopperSharedMap, CoversEveryByteOnce) {
  for (const KvRing ring : {KvRing::kSplit, KvRing::kShared})
    for (const int q_stages : {1, 2}) {
      AttentionSchedule schedule = hopper();
      schedule.kv_ring = ring;
      schedule.q_stages = q_stages;
      schedule.num_kv_stages = 3;
      schedule.block_n = 64;
      const AttentionSpec spec = planned(prefill(128, 128), schedule);
      std::uint32_t end = 0;
      for (const SharedRegion& region : shared_map(spec)) {
        if (region.name == "items") end = (end + 15) / 16 * 16;
        EXPECT_EQ(region.offset, end) << region.name;
        end = region.offset + region.bytes;
      }
      EXPECT_EQ(end, shared_bytes(spec));
    }
}

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
  AttentionExtent budget = extent(3, 300);
  budget.sm_budget = 101;
  EXPECT_EQ(plan_launch(spec, budget, 132, 0).main.grid[0], 100u);
  budget.sm_budget = 1;
  EXPECT_EQ(plan_launch(spec, budget, 132, 0).main.grid[0], 2u) << "a cluster at least";
  EXPECT_EQ(plan_launch(planned(128, 128), extent(3, 300), 132, 0).main.cluster, 1u);
  schedule.scheduler = Scheduler::kGrid;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(plan_launch(spec, extent(3, 300), 132, 0).main.grid[0], 3u * 32 * 2 * 2) << "CTAs";
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
}  // namespace kernelwright
