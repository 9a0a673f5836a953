// The blackwell family from problem and schedule to Spec, shared memory, tensor memory and launch.
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

namespace kernelwright::blackwell_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::blackwell;
using test::planned;
using test::prefill;

/// The rules that a blackwell config with a tile breaks after `change`, each as text.
std::vector<std::string> refused(const std::function<void(AttentionProblem&, AttentionSchedule&)>& change) {
  AttentionProblem problem = prefill(128, 128);
  AttentionSchedule schedule = blackwell();
  change(problem, schedule);
  std::vector<std::string> lines;
  try {
    plan_attention(problem, schedule, Arch::kSm100a);
  } catch (const ConfigError& error) {
    for (const Violation& violation : error.violations()) lines.push_back(violation.text());
  }
  return lines;
}
std::vector<std::string> refused_schedule(const std::function<void(AttentionSchedule&)>& change) {
  return refused([&](AttentionProblem&, AttentionSchedule& schedule) { change(schedule); });
}

// ---- the plan ----

TEST(BlackwellPlan, HasTwoQueryTilesAndTheSlotsThatFit) {
  struct Expected {
    int qk, v, num_kv_stages;
    KvRing kv_ring;
  };
  for (const Expected& e :
       {Expected{16, 16, 4, KvRing::kSplit}, Expected{64, 64, 4, KvRing::kSplit}, Expected{80, 80, 5, KvRing::kShared},
        Expected{128, 64, 3, KvRing::kSplit}, Expected{128, 128, 5, KvRing::kShared}}) {
    SCOPED_TRACE("head dims " + std::to_string(e.qk) + " and " + std::to_string(e.v));
    const AttentionSpec spec = planned(e.qk, e.v);
    EXPECT_EQ(kernel_name(spec), "attention_sm100");
    EXPECT_EQ(spec.threads(), 512);
    EXPECT_EQ(spec.num_q, 2);
    EXPECT_EQ(spec.block_m, 256);
    EXPECT_EQ(spec.block_n, 128);
    EXPECT_EQ(spec.num_kv_stages, e.num_kv_stages);
    EXPECT_EQ(spec.num_qk_stages, 1);
    EXPECT_EQ(spec.kv_ring, e.kv_ring);
    EXPECT_EQ(spec.cta_group, 1);
    EXPECT_TRUE(spec.pack_gqa);
    EXPECT_EQ(spec.scheduler, Scheduler::kGrid);
  }
}

TEST(BlackwellPlan, FitsEveryHeadSize) {
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a})
    for (int qk = 16; qk <= 192; qk += 8)
      for (int v = 16; v <= std::min(qk, 128); v += 8)
        for (const int page_size : {0, 1, 8, 12, 48, 256}) {
          AttentionProblem problem = prefill(qk, v);
          if (page_size > 0) problem.kv_layout = {KvLayoutKind::kPaged, page_size};
          const AttentionSpec spec = planned(problem, blackwell(), arch);
          EXPECT_LE(static_cast<int>(shared_bytes(spec)), arch_info(arch).shared_bytes_per_cta) << qk << " and " << v;
          EXPECT_LE(tensor_memory_map(spec).used, 512) << qk << " and " << v;
          EXPECT_GE(spec.num_kv_stages, 2) << qk << " and " << v;
        }
}

TEST(BlackwellPlan, TakesFewerKeysOfLongHeadsSoThatTheNextTileArrivesMeanwhile) {
  AttentionProblem problem = prefill(192, 128);
  AttentionSchedule schedule = blackwell();
  AttentionSpec spec = planned(problem);
  EXPECT_EQ(spec.block_n, 112);
  EXPECT_EQ(spec.kv_ring, KvRing::kShared);
  EXPECT_EQ(spec.num_kv_stages, 3);
  schedule.kv_ring = KvRing::kSplit;
  spec = planned(problem, schedule);
  EXPECT_EQ(spec.block_n, 96);
  EXPECT_EQ(spec.num_kv_stages, 2);
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  EXPECT_EQ(planned(problem).block_n, 96) << "boxes of 32 keys, where 112 would have 16";
  problem.max_q_len = 16;
  problem.kv_layout = {};
  EXPECT_EQ(planned(problem).block_n, 128) << "one query tile leaves room";
}

TEST(BlackwellPlan, DealsTheKeysOfFewRowsToTwoAccumulators) {
  AttentionProblem problem = prefill(128, 128);
  const auto tiles = [&](int max_q_len) {
    problem.max_q_len = max_q_len;
    const AttentionSpec spec = planned(problem);
    EXPECT_EQ(spec.block_m, 128 * spec.num_q);
    return spec.num_q;
  };
  EXPECT_EQ(tiles(32), 1) << "128 rows of 4 heads";
  EXPECT_EQ(tiles(33), 2);
  problem.heads = {8, 8};
  EXPECT_EQ(tiles(128), 1);
  EXPECT_EQ(tiles(129), 2);
  EXPECT_EQ(tiles(0), 2) << "any length";
}

TEST(BlackwellPlan, EmulatesExponentialsWhereTheUnitIsSlow) {
  AttentionSchedule schedule = blackwell();
  EXPECT_EQ(planned(prefill(128, 128), schedule, Arch::kSm100a).exp2_emulated, 3);
  EXPECT_EQ(planned(prefill(128, 128), schedule, Arch::kSm103a).exp2_emulated, 0);
  for (const auto& [fraction, sixteenths] :
       {std::pair{0.0, 0}, {0.06, 1}, {0.125, 2}, {0.19, 3}, {0.5, 8}, {1.0, 16}}) {
    schedule.exp2_emulated = fraction;
    EXPECT_EQ(planned(prefill(128, 128), schedule).exp2_emulated, sixteenths) << fraction;
  }
}

TEST(BlackwellPlan, HandsOutLongTilesFirstWhereAMaskMakesThemUneven) {
  AttentionProblem problem = prefill(128, 128);
  for (const MaskKind mask : {MaskKind::kCausal, MaskKind::kSlidingWindow}) {
    problem.mask.kind = mask;
    EXPECT_EQ(planned(problem).scheduler, Scheduler::kLongestFirst);
  }
}

TEST(BlackwellPlan, PacksGroupsThatFillAQueryTile) {
  AttentionProblem problem = prefill(128, 128);
  for (const auto& [q_heads, packs] : {std::pair{8, false}, {16, true}, {24, false}, {1024, true}, {2048, false}}) {
    problem.heads = {q_heads, 8};
    EXPECT_EQ(planned(problem).pack_gqa, packs) << q_heads;
  }
}

TEST(BlackwellPlan, FollowsTheScheduleAndFillsWhatItLeaves) {
  AttentionSchedule schedule = blackwell();
  schedule.block_m = 128;
  EXPECT_EQ(planned(prefill(128, 128), schedule).num_q, 1);
  schedule = blackwell();
  schedule.num_q = 1;
  AttentionSpec spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.block_m, 128);
  EXPECT_EQ(spec.num_kv_stages, 5) << "a sixth would fit but for the statistics that are merged";
  schedule = blackwell();
  schedule.num_qk_stages = 2;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.kv_ring, KvRing::kSplit) << "a shared slot is filled whole";
  EXPECT_EQ(spec.num_kv_stages, 2);
  EXPECT_EQ(spec.num_mma_stages, 1);
  schedule = blackwell();
  schedule.num_mma_stages = 2;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.num_mma_stages, 2);
  EXPECT_EQ(spec.num_qk_stages, 2) << "K follows V";
  EXPECT_EQ(spec.kv_ring, KvRing::kShared);
  schedule = blackwell();
  schedule.kv_ring = KvRing::kSplit;
  schedule.num_kv_stages = 2;
  schedule.rescale = Rescale::kAlways;
  schedule.scheduler = Scheduler::kLongestFirst;
  schedule.pack_gqa = false;
  spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.kv_ring, KvRing::kSplit);
  EXPECT_EQ(spec.rescale, Rescale::kAlways);
  EXPECT_EQ(spec.scheduler, Scheduler::kLongestFirst);
  EXPECT_FALSE(spec.pack_gqa);
}

TEST(BlackwellPlan, GivesAPairHalfOfEveryTileAndMoreSlots) {
  AttentionSchedule schedule = blackwell();
  EXPECT_EQ(planned(prefill(128, 128), schedule).cluster_m, 1);
  schedule.cta_group = 2;
  AttentionSpec spec = planned(prefill(128, 128), schedule);
  EXPECT_EQ(spec.cta_group, 2);
  EXPECT_EQ(spec.cluster_m, 2);
  EXPECT_EQ(spec.multicast, 1);
  EXPECT_EQ(spec.num_q, 2);
  EXPECT_EQ(spec.kv_ring, KvRing::kSplit);
  EXPECT_EQ(spec.num_kv_stages, 5) << "slots of 2 x 16 KB beside 64 KB of queries";
  schedule.kv_ring = KvRing::kShared;
  EXPECT_EQ(planned(prefill(128, 128), schedule).num_kv_stages, 10);
  schedule.cluster = ClusterShape{2, 1};
  EXPECT_EQ(planned(prefill(128, 128), schedule).cluster_m, 2);
  AttentionProblem few = prefill(128, 128);
  few.max_q_len = 1;
  EXPECT_EQ(planned(few, schedule).num_q, 2) << "a pair has two query tiles in each CTA, however few the rows";
}

TEST(BlackwellPlan, SaysWhyForEveryField) {
  const AttentionPlan plan = plan_attention(prefill(128, 128), blackwell(), Arch::kSm100a);
  for (const char* field :
       {"num_q", "cta_group", "cluster", "block_n", "kv_ring", "num_kv_stages", "scheduler", "exp2_emulated"})
    EXPECT_THAT(plan.choices, testing::Contains(testing::Field(&Choice::field, field)));
  for (const Choice& choice : plan.choices) EXPECT_FALSE(choice.reason.empty()) << choice.field;
}

TEST(BlackwellPlan, OfEightBitsHasSlabsOf128ColumnsAndTwiceTheSlots) {
  AttentionProblem problem = prefill(128, 128);
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  const AttentionSpec spec = planned(problem);
  EXPECT_EQ(spec.block_n, 128);
  EXPECT_EQ(spec.kv_ring, KvRing::kSplit);
  EXPECT_EQ(spec.num_kv_stages, 4);
  EXPECT_EQ(shared_map(spec)[0].bytes, 2u * 128 * 128);
  EXPECT_EQ(tensor_memory_map(spec).regions[1].columns, 32) << "probabilities, four to a column";
  AttentionSchedule schedule = blackwell();
  schedule.block_n = 80;
  EXPECT_THROW(planned(problem, schedule), ConfigError) << "steps of 32 keys";
  schedule.block_n = 96;
  EXPECT_NO_THROW(planned(problem, schedule));
}

TEST(BlackwellPlan, OfARotaryPartHasSlabsOfBothAndScalesOfKeysBesideTheRings) {
  AttentionProblem problem = prefill(192, 128);
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  problem.rope.width = 64;
  problem.scales = ScaleKind::kPerToken;
  const AttentionSpec spec = planned(problem);
  EXPECT_EQ(spec.block_n, 128);
  EXPECT_EQ(spec.kv_ring, KvRing::kSplit);
  EXPECT_EQ(spec.num_kv_stages, 3);
  std::uint32_t end = 0, scales = 0;
  for (const SharedRegion& region : shared_map(spec)) {
    EXPECT_EQ(region.offset, end) << region.name;
    end = region.offset + region.bytes;
    if (region.name == "key scales") scales = region.bytes;
    if (region.name == "keys") EXPECT_EQ(region.stage_bytes, 128u * (128 + 64 * 2));
  }
  EXPECT_EQ(scales, 4u * 3 * 128 * 4);
  EXPECT_EQ((end + 15) / 16 * 16, shared_bytes(spec));
  contract::BlackwellShape shape{2, 128, 192, 128, 3, 1, false};
  shape.element_bytes = 1;
  shape.rope_depth = 64;
  const int without = contract::blackwell_barriers(shape).count;
  shape.token_scales = true;
  EXPECT_EQ(contract::blackwell_barriers(shape).count, without + 8);
}

// ---- refusals, one by one ----

std::string lacks(const std::string& what, const std::string& has) {
  return what + " is not built yet for the blackwell family; it has " + has;
}

TEST(BlackwellRefusals, NameWhatTheKernelLacksOfAProblem) {
  const auto problem = [](const std::function<void(AttentionProblem&)>& change) {
    return refused([&](AttentionProblem& changed, AttentionSchedule&) { change(changed); });
  };
  EXPECT_THAT(problem([](auto& p) { p.dtype.kv = DType::kE4m3; }),
              ElementsAre(lacks("/problem/dtype/kv: \"e4m3\"", "bf16; the portable family takes this problem")));
  EXPECT_THAT(problem([](auto& p) { p.dtype.out = DType::kF16; }),
              ElementsAre(lacks("/problem/dtype/out: \"f16\"", "bf16, f32; the portable family takes this problem")));
  EXPECT_THAT(problem([](auto& p) {
                p.dtype = {DType::kE4m3, DType::kE5m2, DType::kBf16};
                p.head_dim = {128, 72};
                p.scales = ScaleKind::kPerBlock;
              }),
              ElementsAre(lacks("/problem/dtype/kv: \"e5m2\"", "e4m3"),
                          lacks("/problem/head_dim/v: 72", "multiples of 16 from 16 to 128"),
                          lacks("/problem/scales: \"per_block\"", "none, per_tensor, per_head, per_page, per_token")));
  EXPECT_THAT(
      problem([](auto& p) {
        p.head_dim = {200, 128};
      }),
      ElementsAre(lacks("/problem/head_dim/qk: 200", "multiples of 8 from 16 to 192; sm_90a takes this problem")));
  EXPECT_THAT(
      problem([](auto& p) {
        p.head_dim = {192, 136};
      }),
      ElementsAre(lacks("/problem/head_dim/v: 136", "multiples of 8 from 16 to 128; sm_90a takes this problem")));
  EXPECT_THAT(problem([](auto& p) {
                p.head_dim = {128, 100};
              }),
              ElementsAre(lacks("/problem/head_dim/v: 100", "multiples of 8 from 16 to 128")));
  EXPECT_THAT(problem([](auto& p) {
                p.head_dim = {64, 128};
              }),
              ElementsAre(lacks("/problem/head_dim/v: 128",
                                "values no wider than keys, 64; the portable family takes this problem")));
  for (const int width : {12, 72})
    EXPECT_THAT(problem([&](auto& p) { p.rope.width = width; }),
                ElementsAre(lacks("/problem/rope/width: " + std::to_string(width), "0 and multiples of 8 to 64")));
  EXPECT_THAT(problem([](auto& p) {
                p.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
                p.head_dim.qk = 192;
                p.rope.width = 56;
              }),
              ElementsAre(lacks("/problem/rope/width: 56, which leaves 136 of 192,",
                                "remainders that are multiples of 16 from 16 on")));
}

TEST(BlackwellRefusals, NameWhatTheKernelLacksOfASchedule) {
  EXPECT_THAT(refused_schedule([&](auto& s) { s.scheduler = Scheduler::kPersistent; }),
              ElementsAre(lacks("/schedule/scheduler: \"persistent\"", "grid, longest_first, queued")));
  EXPECT_THAT(
      refused([](auto& p, auto& s) {
        p.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
        p.kv_layout = {KvLayoutKind::kPaged, 12};
        p.scales = ScaleKind::kPerToken;
        s.scheduler = Scheduler::kQueued;
      }),
      ElementsAre(lacks("/problem/kv_layout/page_size: 12", "multiples of 8"),
                  lacks("/schedule/scheduler: \"queued\"", "grid, longest_first for scales that differ by key")));
  for (const bool rotary : {false, true})
    EXPECT_THAT(refused([&](auto& p, auto&) {
                  p.kv_layout = {KvLayoutKind::kPaged, 12};
                  if (rotary)
                    p.rope.width = 32;
                  else
                    p.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16}, p.scales = ScaleKind::kPerToken;
                }),
                ElementsAre(lacks("/problem/kv_layout/page_size: 12", "multiples of 8") +
                            (rotary ? "; the portable family takes this problem" : "")))
        << "threads gather k and v, and nothing beside them";
  EXPECT_THAT(refused_schedule([](auto& s) {
                s.cluster = ClusterShape{2, 1};
              }),
              ElementsAre(lacks("/schedule/cluster: [2, 1]", "[1, 1], [1, 2], [1, 4], [1, 8] with cta_group 1")));
  for (const ClusterShape cluster : {ClusterShape{1, 1}, ClusterShape{1, 2}, ClusterShape{4, 1}})
    EXPECT_THAT(refused_schedule([&](auto& s) {
                  s.cta_group = 2;
                  s.cluster = cluster;
                }),
                ElementsAre(HasSubstr("it has [2, 1] with cta_group 2")));
  EXPECT_THAT(
      refused_schedule([](auto& s) { s.math_warpgroups = 2; }),
      ElementsAre(
          "/schedule/math_warpgroups: the blackwell family has no math_warpgroups; its fields are arch, family, "
          "block_m, block_n, num_kv_stages, num_qk_stages, num_mma_stages, kv_ring, num_q, swizzle, cta_group, "
          "cluster, scheduler, pack_gqa, splits, merge, rescale, exp2_emulated"));
  for (const auto& set : std::initializer_list<std::function<void(AttentionSchedule&)>>{
           [](auto& s) { s.block_k = 64; }, [](auto& s) { s.num_stages = 2; }, [](auto& s) { s.token_gen = true; },
           [](auto& s) { s.num_warps = 4; }, [](auto& s) { s.q_stages = 2; },
           [](auto& s) { s.overlap = Overlap::kBoth; }})
    EXPECT_THAT(refused_schedule(set), ElementsAre(HasSubstr("the blackwell family has no ")));
}

TEST(BlackwellRefusals, NameTheRuleThatATileBreaksAndWhatWouldDo) {
  EXPECT_THAT(refused_schedule([](auto& s) {
                s.num_q = 2;
                s.block_m = 192;
              }),
              ElementsAre("/schedule/block_m: 192 is not 128 rows for each query tile, of which there are 2; 256 would "
                          "do"));
  EXPECT_THAT(refused([](auto& problem, auto& schedule) {
                problem.heads = {24, 8};
                schedule.pack_gqa = true;
              }),
              ElementsAre("/schedule/pack_gqa: true: 128 rows of a query tile are not whole groups of 3 heads; false "
                          "would do"));
  for (const int keys : {48, 208})
    EXPECT_THAT(refused_schedule([&](auto& s) { s.block_n = keys; }),
                ElementsAre("/schedule/block_n: " + std::to_string(keys) +
                            " does not fit; it takes multiples of 16 from 64 to 192"));
  for (const int keys : {80, 112})
    EXPECT_THAT(refused_schedule([&](auto& s) {
                  s.cta_group = 2;
                  s.block_n = keys;
                }),
                ElementsAre("/schedule/block_n: " + std::to_string(keys) +
                            " does not fit; it takes multiples of 32 from 64 to 192 where two CTAs share a product"));
  EXPECT_THAT(refused_schedule([](auto& s) {
                s.cta_group = 2;
                s.num_q = 1;
              }),
              ElementsAre("/schedule/num_q: 1: each CTA of a pair has two query tiles; 2, or cta_group 1, would do"));
  EXPECT_THAT(
      refused_schedule([](auto& s) { s.num_qk_stages = 3; }),
      ElementsAre("/schedule/num_qk_stages: 3 does not divide the 2 slabs of 64 columns of a key tile; 2 would do"));
  EXPECT_THAT(
      refused_schedule([](auto& s) {
        s.kv_ring = KvRing::kShared;
        s.num_qk_stages = 2;
      }),
      ElementsAre("/schedule/num_qk_stages: 2: a slot that K and V share has num_mma_stages sub-stages, 1; 1, or "
                  "kv_ring \"split\", would do"));
  EXPECT_THAT(
      refused_schedule([](auto& s) { s.num_mma_stages = 3; }),
      ElementsAre("/schedule/num_mma_stages: 3 does not divide the 2 slabs of 64 columns of a key tile; 2 would "
                  "do"));
  EXPECT_THAT(refused([](auto& problem, auto& schedule) {
                problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
                schedule.num_mma_stages = 4;
                schedule.num_qk_stages = 1;
                schedule.block_n = 96;
              }),
              ElementsAre("/schedule/num_mma_stages: 4: 96 keys of a tile are not 4 times whole 32s, which a product "
                          "with V takes at a time; 3 would do"));
  EXPECT_THAT(refused_schedule([](auto& s) {
                s.kv_ring = KvRing::kSplit;
                s.num_kv_stages = 1;
              }),
              ElementsAre("/schedule/num_kv_stages: 1: a tile arrives while another is multiplied; 2 would do"));
}

TEST(BlackwellRefusals, APairThatGathersOrTakesItemsFromAQueue) {
  EXPECT_THAT(refused_schedule([](auto& s) {
                s.cta_group = 2;
                s.scheduler = Scheduler::kQueued;
              }),
              ElementsAre("/schedule/scheduler: \"queued\" hands tiles to CTAs one by one, and a pair takes them "
                          "together; longest_first would do"));
  EXPECT_THAT(
      refused([](auto& problem, auto& schedule) {
        problem.kv_layout = {KvLayoutKind::kPaged, 4};
        schedule.cta_group = 2;
      }),
      ElementsAre("/schedule/cta_group: 2: keys of pages of 4 are gathered by each CTA for itself; 1 would do"));
}

TEST(BlackwellRefusals, CountTensorMemoryAndRegistersAndNameTheNearestThatFits) {
  EXPECT_THAT(refused_schedule([](auto& s) {
                s.block_n = 144;
                s.num_kv_stages = 2;
              }),
              ElementsAre("/schedule/block_n: 144 keys and values of 128 need 544 columns of tensor memory, 2 x (144 + "
                          "128), and sm_100a has 512; block_n 128 would fit",
                          "/schedule/block_n: 144 scores of a row do not fit the registers of a softmax thread; 128 "
                          "would do"));
  EXPECT_THAT(refused([](auto& problem, auto& schedule) {
                problem.head_dim = {64, 64};
                schedule.block_n = 192;
              }),
              ElementsAre("/schedule/block_n: 192 scores of a row do not fit the registers of a softmax thread; 128 "
                          "would do"));
}

TEST(BlackwellRefusals, CountSharedMemoryAndNameTheNearestThatFits) {
  EXPECT_THAT(refused_schedule([](auto& s) { s.num_kv_stages = 6; }),
              ElementsAre("/schedule/num_kv_stages: attention_sm100: needs 263392 shared bytes and sm_100a has 232448; "
                          "num_kv_stages 5 would fit"));
  EXPECT_THAT(refused_schedule([](auto& s) {
                s.kv_ring = KvRing::kSplit;
                s.num_kv_stages = 3;
              }),
              ElementsAre(HasSubstr("num_kv_stages 2 would fit")));
}

// ---- the contract's maps ----

TEST(BlackwellLayout, PlacesSlotsOn1024AndBarriersBehindThem) {
  for (const int num_q : {1, 2})
    for (const bool shared_ring : {false, true})
      for (const int depth_qk : {16, 72, 128})
        for (const int block_n : {64, 80, 128, 192}) {
          const int stages = 3, depth_v = depth_qk - 8;
          const contract::BlackwellShape shape{num_q, block_n, depth_qk, depth_v, stages, 1, shared_ring};
          const contract::BlackwellLayout map = contract::blackwell_layout(shape);
          for (const int offset : {map.keys, map.values, map.factors, map.query_slot, map.key_slot, map.value_slot})
            EXPECT_EQ(offset % 1024, 0);
          EXPECT_EQ(map.query_slot, 128 * contract::padded_depth(depth_qk, 128) * 2);
          EXPECT_EQ(map.keys, num_q * map.query_slot);
          EXPECT_EQ(map.values, shared_ring ? map.keys : map.keys + stages * map.key_slot);
          EXPECT_EQ(map.factors, map.values + stages * map.value_slot);
          EXPECT_EQ(map.barriers % 8, 0);
          EXPECT_EQ(map.tensor_address,
                    map.barriers + contract::blackwell_barriers(shape).count * contract::kBarrierBytes);
          EXPECT_GE(map.total, map.tensor_address + 4);
        }
}

TEST(BlackwellLayout, HalvesKeysAndColumnsOfValuesForAPair) {
  const contract::BlackwellShape one{2, 128, 128, 128, 4, 1, false};
  contract::BlackwellShape pair = one;
  pair.ctas = 2;
  EXPECT_EQ(contract::blackwell_keys(pair), 64);
  EXPECT_EQ(contract::v_slabs(pair), 1);
  EXPECT_EQ(contract::blackwell_layout(pair).key_slot, contract::blackwell_layout(one).key_slot / 2);
  EXPECT_EQ(contract::blackwell_layout(pair).value_slot, contract::blackwell_layout(one).value_slot / 2);
  EXPECT_EQ(contract::blackwell_layout(pair).query_slot, contract::blackwell_layout(one).query_slot);
  EXPECT_EQ(contract::blackwell_columns(pair).used, contract::blackwell_columns(one).used);
  EXPECT_EQ(contract::blackwell_barriers(pair).count, contract::blackwell_barriers(one).count);
  // N goes by 16, for a pair by 32: its halves are whole steps of 16.
  for (const auto& [depth, columns, of_pair] : {std::tuple{16, 16, 32}, {72, 80, 96}, {80, 80, 96}, {112, 112, 128}}) {
    EXPECT_EQ(contract::blackwell_output_columns({2, 128, 128, depth, 4, 1, false, 1}), columns);
    EXPECT_EQ(contract::blackwell_output_columns({2, 128, 128, depth, 4, 1, false, 2}), of_pair);
    EXPECT_EQ(contract::v_slabs({2, 128, 128, depth, 4, 1, false, 2}), 1);
  }
}

TEST(BlackwellLayout, HasAddressesOfRowsWhereKeysAreGathered) {
  AttentionProblem problem = prefill(64, 64);
  const auto map_of = [&](int page_size) {
    problem.kv_layout = {KvLayoutKind::kPaged, page_size};
    return contract::blackwell_layout(detail::blackwell_shape_of(planned(problem)));
  };
  for (const int page_size : {1, 3, 4, 20}) {
    const contract::BlackwellLayout map = map_of(page_size);
    EXPECT_EQ(map.gather_rows % 16, 0) << page_size;
    EXPECT_EQ(map.barriers - map.gather_rows, 3 * 128 * 8) << "a tile of K and two of V, page " << page_size;
  }
  for (const int page_size : {8, 24, 256}) EXPECT_EQ(map_of(page_size).barriers, map_of(page_size).gather_rows);
}

TEST(BlackwellLayout, NumbersEveryBarrierOnce) {
  const contract::BlackwellBarriers split = contract::blackwell_barriers({2, 128, 128, 128, 3, 2, false});
  EXPECT_EQ(split.query_full, 0);
  EXPECT_EQ(split.values_landed, 12);
  EXPECT_EQ(split.values_clean, 13);
  EXPECT_EQ(split.key_full, 14);
  EXPECT_EQ(split.key_empty, 20);
  EXPECT_EQ(split.value_full, 26);
  EXPECT_EQ(split.value_empty, 29);
  EXPECT_EQ(split.count, 32);
  const contract::BlackwellBarriers shared = contract::blackwell_barriers({2, 128, 128, 128, 5, 1, true});
  EXPECT_EQ(shared.value_full, shared.key_full);
  EXPECT_EQ(shared.value_empty, shared.key_empty);
  EXPECT_EQ(shared.count, 24);
}

TEST(BlackwellLayout, HasSlotsAndBarriersForItemsThatAQueuedCtaTakes) {
  for (const bool gathers : {false, true}) {
    contract::BlackwellShape shape{2, 128, 128, 128, 5, 1, true, 1, gathers};
    const contract::BlackwellBarriers grid = contract::blackwell_barriers(shape);
    EXPECT_EQ(contract::blackwell_layout(shape).items, contract::blackwell_layout(shape).barriers);
    shape.queued = true;
    const contract::BlackwellBarriers queued = contract::blackwell_barriers(shape);
    const contract::BlackwellLayout map = contract::blackwell_layout(shape);
    EXPECT_EQ(map.items % 16, 0);
    EXPECT_EQ(map.barriers, map.items + 2 * 16);
    EXPECT_EQ(queued.query_empty, grid.count);
    EXPECT_EQ(queued.item_full, grid.count + 2);
    EXPECT_EQ(queued.item_empty, grid.count + 4);
    EXPECT_EQ(queued.count, grid.count + 6);
  }
}

TEST(BlackwellColumns, HaveScoresBelowOutputsAndAPowerOfTwoAllocated) {
  const contract::BlackwellColumns wide = contract::blackwell_columns({2, 128, 128, 128, 2, 1, false});
  EXPECT_THAT(wide.scores, ElementsAre(0, 128));
  EXPECT_THAT(wide.outputs, ElementsAre(256, 384));
  EXPECT_EQ(wide.used, 512);
  EXPECT_EQ(wide.allocated, 512);
  EXPECT_EQ(contract::blackwell_columns({2, 64, 16, 16, 2, 1, false}).allocated, 256);
  EXPECT_EQ(contract::blackwell_columns({2, 128, 64, 64, 2, 1, false}).used, 384);
  EXPECT_EQ(contract::blackwell_columns({2, 128, 64, 64, 2, 1, false}).allocated, 512);
}

TEST(BlackwellSharedMap, CoversEveryByteOnce) {
  for (const KvRing ring : {KvRing::kSplit, KvRing::kShared})
    for (const auto& [num_q, cta_group] : {std::pair{1, 1}, {2, 1}, {2, 2}})
      for (const int num_qk_stages : {1, 2}) {
        AttentionSchedule schedule = blackwell();
        schedule.kv_ring = ring;
        schedule.num_q = num_q;
        schedule.num_qk_stages = num_qk_stages;
        schedule.num_mma_stages = ring == KvRing::kShared ? num_qk_stages : 3 - num_qk_stages;
        schedule.num_kv_stages = 2;
        schedule.cta_group = cta_group;
        for (const int page_size : {0, 1}) {
          if (page_size > 0 && cta_group == 2) continue;
          schedule.scheduler = page_size == 0 && cta_group == 1 ? Scheduler::kQueued : Scheduler::kGrid;
          AttentionProblem problem = prefill(128, 128);
          if (page_size > 0) problem.kv_layout = {KvLayoutKind::kPaged, page_size};
          const AttentionSpec spec = planned(problem, schedule);
          std::uint32_t end = 0;
          for (const SharedRegion& region : shared_map(spec)) {
            EXPECT_EQ(region.offset, end) << region.name;
            end = region.offset + region.bytes;
          }
          EXPECT_EQ((end + 15) / 16 * 16, shared_bytes(spec));
        }
      }
}

TEST(BlackwellTensorMemoryMap, NamesScoresProbabilitiesAndOutputs) {
  const TensorMemoryMap map = tensor_memory_map(planned(128, 128));
  EXPECT_EQ(map.used, 512);
  EXPECT_EQ(map.allocated, 512);
  std::vector<std::string> names;
  std::vector<int> columns, widths;
  for (const TensorMemoryRegion& region : map.regions) {
    names.push_back(region.name);
    columns.push_back(region.column);
    widths.push_back(region.columns);
  }
  EXPECT_THAT(names, ElementsAre("S0", "P0", "S1", "P1", "O0", "O1"));
  EXPECT_THAT(columns, ElementsAre(0, 0, 128, 128, 256, 384));
  EXPECT_THAT(widths, ElementsAre(128, 64, 128, 64, 128, 128));
  AttentionSchedule portable;
  portable.family = Family::kPortable;
  EXPECT_THAT(tensor_memory_map(planned(prefill(128, 128), portable)).regions, IsEmpty());
}

}  // namespace
}  // namespace kernelwright::blackwell_test
