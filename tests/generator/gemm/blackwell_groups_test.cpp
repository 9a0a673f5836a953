/// Which groups the blackwell family takes, and how it plans them and gates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/shared_map.h"

namespace kernelwright::blackwell_groups_test {
namespace {

using testing::HasSubstr;

GemmProblem experts(GroupKind kind = GroupKind::kRows, bool gather = false) {
  GemmProblem of;
  of.n = 4096, of.k = 2048;
  of.groups = {kind, 128, kind == GroupKind::kMasked ? GroupBounds::kCounts : GroupBounds::kStarts, gather};
  return of;
}
template <class Change>
std::string refusal(const Change& change) {
  GemmProblem problem = experts();
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = 128;
  change(problem, schedule);
  try {
    plan_gemm(problem, schedule, Arch::kSm100a);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(BlackwellGroupsPlan, RowsMaskedGatherAndGatesAreServed) {
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a})
    for (const GroupKind kind : {GroupKind::kRows, GroupKind::kMasked})
      for (const bool gather : {false, true})
        for (const char* epilogue : {"acc", "silu(gate) * up"}) {
          GemmProblem problem = experts(kind, gather);
          problem.epilogue = epilogue;
          for (const GemmVariant& variant : plan_gemm(problem, {}, arch).variants) {
            EXPECT_EQ(variant.spec.family, Family::kBlackwell);
            EXPECT_EQ(variant.spec.gather, gather);
            EXPECT_EQ(variant.spec.most_groups, 128);
            EXPECT_EQ(variant.spec.scheduler, Scheduler::kPersistent);
            EXPECT_EQ(variant.spec.split_k, 1);
            EXPECT_FALSE(takes_all_sms(variant.spec)) << "a budget of SMs holds";
          }
        }
}

TEST(BlackwellGroupsPlan, GatesThatAreQuantisedArePlannedWherePairsAreNot) {
  GemmProblem gathers = experts(GroupKind::kRows, true), points = experts();
  gathers.dtype = {DType::kNvfp4, DType::kNvfp4, DType::kNvfp4};
  gathers.scales = ScaleKind::kPerBlock;
  gathers.epilogue = "x = silu(gate) * up; d = quantize(x, nvfp4, per=token_group(16), scale=s)";
  points.groups.pointers = true;
  points.dtype.d = DType::kE4m3;
  points.epilogue = "x = silu(gate) * up; d = quantize(x, e4m3, per=token_group(128), scale=s)";
  for (const GemmProblem& problem : {gathers, points})
    for (const GemmVariant& variant : plan_gemm(problem, {}, Arch::kSm100a).variants) {
      EXPECT_EQ(variant.spec.family, Family::kBlackwell);
      EXPECT_EQ(variant.spec.block_n, 256);
      EXPECT_EQ(variant.spec.cta_group, 1);
    }
}

TEST(BlackwellGroupsPlan, FewRowsAreSwappedAndManyHavePairs) {
  for (const DType operands : {DType::kBf16, DType::kE4m3}) {
    GemmProblem problem = experts();
    problem.dtype.a = problem.dtype.b = operands;
    if (operands == DType::kE4m3) problem.scales = ScaleKind::kPerBlock;
    const GemmPlan plan = plan_gemm(problem, {}, Arch::kSm100a);
    EXPECT_TRUE(plan.variant_for(8).spec.swap_ab);
    EXPECT_EQ(plan.variant_for(8).spec.block_n, 16);
    EXPECT_EQ(plan.variant_for(2048).spec.cta_group, 2);
    EXPECT_FALSE(plan.variant_for(2048).spec.swap_ab);
  }
}

TEST(BlackwellGroupsPlan, TheRestIsRefusedByName) {
  EXPECT_EQ(refusal([](GemmProblem&, GemmSchedule&) {}), "");
  EXPECT_THAT(refusal([](auto& p, auto&) {
                p.dtype.a = p.dtype.b = DType::kMxfp8, p.scales = ScaleKind::kPerBlock;
                p.groups.pointers = true;
              }),
              HasSubstr("/problem/groups/pointers: true with operands in mxfp8 is not built yet for the blackwell "
                        "family; it has false there"));
  EXPECT_THAT(refusal([](auto& p, auto& s) {
                p.dtype.a = p.dtype.b = DType::kMxfp8, p.scales = ScaleKind::kPerBlock;
                p.groups.gather = true, s.cta_group = 2;
              }),
              HasSubstr("/schedule/cta_group: 2 with gathered rows in mxfp8 is not built yet for the blackwell family; "
                        "it has 1 there"));
  EXPECT_THAT(refusal([](auto& p, auto& s) {
                p.dtype.a = p.dtype.b = DType::kMxfp8, p.scales = ScaleKind::kPerBlock;
                p.groups.gather = true, s.block_n = 32;
              }),
              HasSubstr("/schedule/block_n: 32 columns leave threads the scales of both sides, and they copy those of "
                        "gathered rows; 64 would do"));
  EXPECT_THAT(
      refusal([](auto&, auto& s) { s.scheduler = Scheduler::kQueued; }),
      HasSubstr("/schedule/scheduler: \"queued\" is not built yet for the blackwell family; it has persistent"));
  EXPECT_THAT(
      refusal([](auto&, auto& s) { s.split_k = 2; }),
      HasSubstr("/schedule/split_k: 2 parts of k of groups is not built yet for the blackwell family; it has 1"));
  EXPECT_THAT(refusal([](auto& p, auto& s) {
                p.groups.gather = true;
                s.cluster = ClusterShape{2, 2};
              }),
              HasSubstr("/schedule/cluster: [2, 2] with gather is not built yet for the blackwell family; it has [1, "
                        "1], and [2, 1] with cta_group 2"));
}

TEST(BlackwellGroupsPlan, SharedMemoryEndsWithTheTableOfGroups) {
  GemmProblem problem = experts();
  for (const int count : {1, 64, 65, 4096}) {
    problem.groups.count = count;
    for (const GemmVariant& variant : plan_gemm(problem, {}, Arch::kSm100a).variants) {
      const std::vector<SharedRegion> regions = shared_map(variant.spec);
      EXPECT_EQ(regions.back().name, "groups");
      EXPECT_EQ(regions.back().offset + regions.back().bytes, shared_bytes(variant.spec));
      EXPECT_GE(regions.back().bytes, static_cast<std::uint32_t>(count) * 12);
      EXPECT_LE(static_cast<int>(shared_bytes(variant.spec)), arch_info(Arch::kSm100a).shared_bytes_per_cta);
    }
  }
}

TEST(BlackwellGroupsPlan, ALaunchHasAsManyCtasAsRunAtOnce) {
  const GemmSpec spec = plan_gemm(experts(), {}, Arch::kSm100a).variants.back().spec;
  ASSERT_EQ(spec.cluster(), 2);
  EXPECT_EQ(plan_launch(spec, {65536, 4096, 2048, 0, 128}, 148, 0).grid[0], 148u);
  EXPECT_EQ(plan_launch(spec, {65536, 4096, 2048, 20, 128}, 148, 0).grid[0], 20u) << "a budget";
}

}  // namespace
}  // namespace kernelwright::blackwell_groups_test
