// The family of a config that does not name one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/error.h"
#include "support/expect_message.h"

namespace kernelwright::family_choice_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

AttentionProblem prefill() {
  AttentionProblem problem;
  problem.heads = {32, 8};
  return problem;
}

struct Chosen {
  Family family;
  std::string reason;
};
Chosen chosen(const AttentionProblem& problem, const AttentionSchedule& schedule = {}, Arch arch = Arch::kSm90a) {
  const AttentionPlan plan = plan_attention(problem, schedule, arch);
  for (const Choice& choice : plan.choices)
    if (choice.field == "family") return {plan.main.family, choice.reason};
  ADD_FAILURE() << "the family is no choice";
  return {};
}

TEST(FamilyChoice, IsHopperForPrefillOnSm90a) {
  EXPECT_EQ(chosen(prefill()).family, Family::kHopper);
  for (const Arch arch : {Arch::kSm80, Arch::kSm120a}) {
    EXPECT_EQ(chosen(prefill(), {}, arch).family, Family::kPortable);
    EXPECT_THAT(chosen(prefill(), {}, arch).reason, HasSubstr("has no family of its own yet"));
  }
}

TEST(FamilyChoice, IsBlackwellForPrefillOnItsGeneration) {
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
    EXPECT_EQ(chosen(prefill(), {}, arch).family, Family::kBlackwell);
    EXPECT_THAT(chosen(prefill(), {}, arch).reason, HasSubstr("tcgen05"));
    AttentionProblem problem = prefill();
    problem.head_dim = {256, 128};
    EXPECT_EQ(chosen(problem, {}, arch).family, Family::kPortable);
    EXPECT_EQ(chosen(problem, {}, arch).reason,
              "blackwell will not do: /problem/head_dim/qk: 256 is not built yet for the blackwell family; it has "
              "multiples of 8 from 16 to 192");
    AttentionProblem decode = prefill();
    decode.max_q_len = 1;
    EXPECT_EQ(chosen(decode, {}, arch).family, Family::kPortable);
    AttentionSchedule blackwell;
    blackwell.family = Family::kBlackwell;
    EXPECT_EQ(chosen(decode, blackwell, arch).family, Family::kBlackwell) << "where it is asked for";
  }
}

TEST(FamilyChoice, IsPortableForDecode) {
  AttentionProblem decode = prefill();
  decode.max_q_len = 16;  // 64 rows a KV head
  EXPECT_EQ(chosen(decode).family, Family::kPortable);
  decode.max_q_len = 17;
  EXPECT_EQ(chosen(decode).family, Family::kHopper);
  AttentionSchedule schedule;
  schedule.token_gen = true;
  EXPECT_EQ(chosen(prefill(), schedule).family, Family::kPortable);
}

TEST(FamilyChoice, IsPortableForWhatHopperLacksAndSaysSo) {
  AttentionProblem problem = prefill();
  problem.dtype.kv = DType::kE4m3;
  EXPECT_EQ(chosen(problem).family, Family::kHopper);
  problem.dtype.out = DType::kF32;
  EXPECT_EQ(chosen(problem).family, Family::kPortable);
  EXPECT_EQ(chosen(problem).reason,
            "hopper will not do: /problem/dtype/out: \"f32\" is not built yet for the hopper family; it has bf16");
}

TEST(FamilyChoice, IsPortableForPagesThatHopperWouldGather) {
  AttentionProblem problem = prefill();
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  EXPECT_EQ(chosen(problem).family, Family::kPortable);
  EXPECT_EQ(chosen(problem).reason, "no box of TMA lies within pages of 4 keys");
  problem.kv_layout.page_size = 16;
  EXPECT_EQ(chosen(problem).family, Family::kHopper);
}

TEST(FamilyChoice, IsHopperForWhatPortableLacks) {
  AttentionProblem decode = prefill();
  decode.max_q_len = 1;
  decode.head_dim = {72, 72};
  EXPECT_EQ(chosen(decode).family, Family::kHopper);
  EXPECT_THAT(chosen(decode).reason, HasSubstr("portable will not do: /problem/head_dim/qk: 72"));
  AttentionConfig config{"t", decode, {}, {}};
  EXPECT_THAT(validate(config, Arch::kSm90a), IsEmpty());
  EXPECT_THAT(validate(config, Arch::kSm80), testing::SizeIs(2)) << "hopper kernels do not run there";
}

TEST(Demands, ABatchInvariantDecodeNeverCutsKeysByTheBatch) {
  AttentionProblem decode = prefill();
  decode.max_q_len = 1;
  EXPECT_EQ(plan_attention(decode, {}, Arch::kSm80).splits, 0) << "from the shape, at launch";
  decode.batch_invariant = decode.deterministic = true;
  AttentionSchedule schedule;
  for (const int parts : {1, 5}) {
    const AttentionPlan plan = plan_attention(decode, schedule, Arch::kSm80);
    EXPECT_EQ(plan.splits, parts);
    const auto reason = [&](std::string_view field) {
      for (const Choice& choice : plan.choices)
        if (choice.field == field) return choice.reason;
      return std::string("no choice");
    };
    EXPECT_EQ(reason("splits"), parts == 1 ? "batch_invariant: a number that follows the batch would change sums; the "
                                             "schedule may give another"
                                           : "the schedule says so");
    EXPECT_THAT(reason("batch_invariant"), HasSubstr(parts == 1 ? "never cut into parts" : "cut into 5 parts always"));
    EXPECT_THAT(reason("deterministic"), HasSubstr("one order"));
    schedule.splits = 5;  // the same for every batch
  }
}

TEST(Demands, ChangeNoKernelAndNoRow) {
  AttentionProblem problem = prefill();
  const AttentionPlan plain = plan_attention(problem, {}, Arch::kSm90a);
  problem.deterministic = problem.batch_invariant = true;
  const AttentionPlan demanded = plan_attention(problem, {}, Arch::kSm90a);
  EXPECT_EQ(demanded.main, plain.main);
  EXPECT_EQ(demanded.row, plain.row);
}

TEST(Demands, OfOneQueryASequenceLeaveTilesAndMaximaAsTheyAre) {
  AttentionProblem problem = prefill();
  problem.mask = {MaskKind::kSlidingWindow, {100, 0}, 0, {}};
  problem.batch_invariant = true;
  EXPECT_TRUE(plan_attention(problem, {}, Arch::kSm90a).main.tiles_from_start);
  EXPECT_TRUE(plan_attention(problem, {}, Arch::kSm100a).main.tiles_from_start);
  EXPECT_FALSE(plan_attention(problem, {}, Arch::kSm80).main.tiles_from_start) << "portable tiles begin with key 0";
  EXPECT_EQ(plan_attention(problem, {}, Arch::kSm80).main.rescale, Rescale::kAlways);
  EXPECT_EQ(plan_attention(problem, {}, Arch::kSm90a).main.rescale, Rescale::kLazy)
      << "its rows have maxima of their own";
  problem.max_q_len = 1;
  EXPECT_EQ(plan_attention(problem, {}, Arch::kSm80).main.rescale, Rescale::kLazy);
  EXPECT_FALSE(plan_attention(problem, {}, Arch::kSm90a).main.tiles_from_start);
  problem.max_q_len = 2;
  EXPECT_EQ(plan_attention(problem, {}, Arch::kSm80).main.rescale, Rescale::kAlways);
}

TEST(Demands, RefuseMaximaThatMoveTogether) {
  AttentionProblem problem = prefill();
  problem.batch_invariant = true;
  AttentionSchedule schedule;
  schedule.rescale = Rescale::kLazy;
  EXPECT_EQ(plan_attention(problem, schedule, Arch::kSm90a).main.rescale, Rescale::kLazy);
  EXPECT_THROW_MESSAGE(
      plan_attention(problem, schedule, Arch::kSm80), ConfigError,
      "/schedule/rescale: \"lazy\" moves the maxima of a warp's rows together, so a query would depend "
      "on others, and the problem is batch_invariant; \"always\" is accepted");
}

TEST(FamilyChoice, FollowsTheFieldsThatTheScheduleNames) {
  AttentionSchedule schedule;
  schedule.num_warps = 8;
  EXPECT_EQ(chosen(prefill(), schedule).family, Family::kPortable);
  schedule = {};
  schedule.math_warpgroups = 1;
  EXPECT_EQ(chosen(prefill(), schedule).family, Family::kHopper);
}

TEST(FamilyChoice, PassesOnWhereATileFitsOneFamilyAlone) {
  AttentionSchedule schedule;
  schedule.block_n = 256;
  EXPECT_EQ(chosen(prefill(), schedule).family, Family::kPortable);
  EXPECT_THAT(chosen(prefill(), schedule).reason, HasSubstr("hopper will not do: /schedule/block_n: 256 keys"));
}

TEST(FamilyChoice, LetsTheFamilySpeakThatLacksLeast) {
  AttentionSchedule schedule;
  schedule.math_warpgroups = 2;
  schedule.kv_ring = KvRing::kShared;
  schedule.splits = 2;
  try {
    plan_attention(prefill(), schedule, Arch::kSm90a);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "/schedule/splits: 2 is not built yet for the hopper family; it has 1");
  }
}

}  // namespace
#include "support/expect_message.h"

}  // namespace kernelwright::family_choice_test
