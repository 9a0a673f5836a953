// The swizzle of attention's operands where TMA writes them: the swizzle of each head size, what a schedule may ask
// for, and the consequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "generator/attention/blackwell_plans.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::swizzle_test {
namespace {

using test::prefill;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

AttentionSchedule on(Family family, Auto<Swizzle> swizzle = {}) {
  AttentionSchedule schedule;
  schedule.family = family;
  schedule.swizzle = swizzle;
  return schedule;
}
Arch arch_of(Family family) { return family == Family::kBlackwell ? Arch::kSm100a : Arch::kSm90a; }
AttentionPlan plan(const AttentionProblem& problem, const AttentionSchedule& schedule) {
  return plan_attention(problem, schedule, arch_of(schedule.family.value()));
}
std::string reason_of(const AttentionPlan& plan, std::string_view field) {
  for (const Choice& choice : plan.choices)
    if (choice.field == field) return choice.value + ": " + choice.reason;
  return "";
}
std::vector<std::string> refused(const AttentionProblem& problem, const AttentionSchedule& schedule) {
  std::vector<std::string> lines;
  try {
    plan(problem, schedule);
  } catch (const ConfigError& error) {
    for (const Violation& violation : error.violations()) lines.push_back(violation.text());
  }
  return lines;
}
AttentionSchedule on_hopper_decode(Auto<Swizzle> swizzle = {}) {
  AttentionSchedule schedule = on(Family::kHopper, swizzle);
  schedule.token_gen = true;
  return schedule;
}
AttentionProblem decode(AttentionProblem problem) {
  problem.max_q_len = 1;
  return problem;
}
AttentionProblem narrow(AttentionProblem problem) {
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  return problem;
}

TEST(PlannedSwizzle, IsTheWidestThatDividesNarrowHeadsAnd128BForOthers) {
  struct Expected {
    int qk, v;
    Swizzle swizzle;
  };
  for (const auto& [qk, v, swizzle] : {Expected{16, 16, Swizzle::k32B},
                                       {32, 32, Swizzle::k64B},
                                       {32, 16, Swizzle::k32B},
                                       {24, 24, Swizzle::k128B},
                                       {40, 16, Swizzle::k128B},
                                       {64, 32, Swizzle::k128B},
                                       {80, 80, Swizzle::k128B},
                                       {96, 96, Swizzle::k128B},
                                       {128, 128, Swizzle::k128B}}) {
    EXPECT_EQ(plan(prefill(qk, v), on(Family::kHopper)).main.swizzle, swizzle) << qk << " " << v;
    EXPECT_EQ(plan(prefill(qk, v), on(Family::kBlackwell)).main.swizzle, swizzle) << qk << " " << v;
    if (qk % 16 != 0 || v % 16 != 0) continue;
    EXPECT_EQ(plan(decode(prefill(qk, v)), on_hopper_decode()).main.swizzle, swizzle) << qk << " " << v;
  }
  EXPECT_EQ(plan(narrow(prefill(64, 64)), on(Family::kBlackwell)).main.swizzle, Swizzle::k64B) << "64 bytes";
  EXPECT_EQ(plan(narrow(prefill(32, 32)), on(Family::kBlackwell)).main.swizzle, Swizzle::k32B);
  EXPECT_EQ(plan(narrow(prefill(16, 16)), on(Family::kBlackwell)).main.swizzle, Swizzle::k128B)
      << "16 bytes are half a step of a product";
  EXPECT_EQ(plan(narrow(prefill(128, 128)), on(Family::kBlackwell)).main.swizzle, Swizzle::k128B);
}

TEST(PlannedSwizzle, SaysWhy) {
  EXPECT_EQ(reason_of(plan(prefill(128, 128), on(Family::kHopper)), "swizzle"),
            "128B: what TMA writes and wgmma reads");
  EXPECT_EQ(reason_of(plan(prefill(32, 32), on(Family::kHopper)), "swizzle"),
            "64B: the widest that divides rows of 64 bytes: 128B would fill them up with zeros");
  EXPECT_EQ(reason_of(plan(prefill(96, 96), on(Family::kBlackwell)), "swizzle"),
            "128B: what TMA writes and tcgen05.mma reads; the end of rows of 192 bytes is filled up with zeros");
  EXPECT_EQ(reason_of(plan(decode(prefill(96, 96)), on_hopper_decode()), "swizzle"),
            "128B: what TMA writes and ldmatrix reads; the end of rows of 192 bytes is filled up with zeros");
  EXPECT_EQ(reason_of(plan(prefill(96, 96), on(Family::kHopper, Swizzle::k64B)), "swizzle"),
            "64B: the schedule says so");
}

TEST(Swizzle, ThatDoesNotDivideARowIsRefusedWithTheNearestThatDoes) {
  EXPECT_THAT(refused(prefill(80, 80), on(Family::kHopper, Swizzle::k64B)),
              ElementsAre("/schedule/swizzle: \"64B\" spans 64 bytes and does not divide the 160 of a query or key; "
                          "\"32B\" would do"));
  EXPECT_THAT(refused(prefill(96, 40), on(Family::kHopper, Swizzle::k32B)),
              ElementsAre("/schedule/swizzle: \"32B\" spans 32 bytes and does not divide the 80 of a value; \"128B\" "
                          "would do, filled up with zeros"));
  EXPECT_THAT(refused(decode(prefill(112, 112)), on_hopper_decode(Swizzle::k64B)),
              ElementsAre(HasSubstr("the 224 of a query or key; \"32B\" would do")));
  EXPECT_THAT(refused(narrow(prefill(48, 48)), on(Family::kBlackwell, Swizzle::k32B)),
              ElementsAre(HasSubstr("the 48 of a query or key; \"128B\" would do, filled up with zeros")));
  AttentionSchedule pair = on(Family::kBlackwell, Swizzle::k64B);
  pair.cta_group = 2;
  EXPECT_THAT(refused(prefill(96, 96), pair),
              ElementsAre(HasSubstr("the 96 of a CTA's half of a value; \"32B\" would do")));
  AttentionProblem rotary = prefill(96, 64);
  rotary.rope.width = 16;
  EXPECT_THAT(refused(rotary, on(Family::kBlackwell, Swizzle::k64B)), ElementsAre(HasSubstr("\"32B\" would do")));
  for (const Swizzle swizzle : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B})
    for (const Family family : {Family::kHopper, Family::kBlackwell})
      EXPECT_THAT(refused(prefill(96, 64), on(family, swizzle)), IsEmpty()) << to_string(swizzle);
}

TEST(Swizzle, DecidesOnSlabsOfSlotsChunksAndCopies) {
  const AttentionPlan wide = plan(prefill(96, 96), on(Family::kHopper));
  AttentionSchedule same = on(Family::kHopper, Swizzle::k64B);
  same.block_n = wide.main.block_n, same.q_stages = wide.main.q_stages, same.num_kv_stages = wide.main.num_kv_stages;
  same.kv_ring = wide.main.kv_ring;
  EXPECT_LT(shared_bytes(plan(prefill(96, 96), same).main), shared_bytes(wide.main)) << "96 columns are not 128";
  AttentionSchedule chunks = on(Family::kHopper);
  chunks.num_qk_stages = 3;
  EXPECT_THAT(
      refused(prefill(96, 96), chunks),
      ElementsAre("/schedule/num_qk_stages: 3 does not divide the 2 slabs of 64 columns of a key tile; 2 would do"));
  chunks.swizzle = Swizzle::k64B;
  EXPECT_THAT(refused(prefill(96, 96), chunks), IsEmpty());
  chunks.swizzle = Swizzle::kNone;
  chunks.num_qk_stages = 4;
  EXPECT_THAT(
      refused(prefill(96, 96), chunks),
      ElementsAre("/schedule/num_qk_stages: 4 does not divide the 6 slabs of 16 columns of a key tile; 3 would do"));
  EXPECT_THAT(shared_map(plan(prefill(96, 96), same).main).front().use, HasSubstr("[3]["));
  const AttentionSpec narrow_heads = plan(prefill(32, 32), on(Family::kBlackwell)).main;
  const AttentionSpec padded = plan(prefill(32, 32), on(Family::kBlackwell, Swizzle::k128B)).main;
  EXPECT_LT(shared_bytes(narrow_heads), shared_bytes(padded));
}

TEST(Swizzle, IsTriedByTheTuner) {
  const auto tried = [](const AttentionProblem& problem, Family family) {
    std::set<Swizzle> swizzles;
    AttentionShape shape;
    shape.batch = 1, shape.q_len = problem.max_q_len > 0 ? problem.max_q_len : 4096, shape.kv_len = 4096;
    for (const Candidate& candidate :
         enumerate_candidates(problem, on(family), arch_of(family), {shape}, {.most = 0, .within = 1e9}).kept)
      swizzles.insert(candidate.plan.main.swizzle);
    return swizzles;
  };
  using Set = std::set<Swizzle>;
  EXPECT_EQ(tried(prefill(128, 128), Family::kHopper), (Set{Swizzle::k128B})) << "whole spans of 128 bytes";
  EXPECT_EQ(tried(prefill(96, 96), Family::kHopper), (Set{Swizzle::k64B, Swizzle::k128B}));
  EXPECT_EQ(tried(prefill(80, 80), Family::kHopper), (Set{Swizzle::k32B, Swizzle::k128B}));
  EXPECT_EQ(tried(prefill(32, 32), Family::kBlackwell), (Set{Swizzle::k64B, Swizzle::k128B}));
  EXPECT_EQ(tried(prefill(80, 80), Family::kPortable),
            (Set{Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B}));
}

}  // namespace
}  // namespace kernelwright::swizzle_test
