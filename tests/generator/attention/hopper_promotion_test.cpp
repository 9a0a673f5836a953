// pv_promote and exp2_emulated: which kernels have them, and what they change in a Spec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "generator/attention/hopper_plans.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/source/specialize.h"

namespace kernelwright::hopper_promotion_test {
namespace {

using test::hopper_plans::hopper;
using test::hopper_plans::planned;
using test::hopper_plans::prefill;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

AttentionProblem narrow() {
  AttentionProblem problem = prefill(128, 128);
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  return problem;
}

/// The only rule that the config breaks.
std::string refusal(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch = Arch::kSm90a) {
  try {
    plan_attention(problem, schedule, arch);
  } catch (const ConfigError& error) {
    return error.violations().size() == 1 ? error.violations()[0].text() : error.what();
  }
  return "accepted";
}

TEST(HopperPromotion, IsAfterEachTileWhereTheScheduleSaysSo) {
  AttentionSchedule schedule = hopper();
  schedule.pv_promote = 1;
  AttentionSpec spec = planned(narrow(), schedule);
  EXPECT_TRUE(spec.promotes() && spec.shares_scores() && !spec.promotes_runs());
  EXPECT_EQ(spec.overlap, Overlap::kNone);
  EXPECT_THAT(canonical_text(spec), Not(HasSubstr("pv_promote"))) << "kernels have the names that they had";
  schedule.pv_promote = 0;
  spec = planned(narrow(), schedule);
  EXPECT_FALSE(spec.promotes() || spec.shares_scores() || spec.promotes_runs());
  EXPECT_THAT(canonical_text(spec), HasSubstr("pv_promote 0"));
  EXPECT_THAT(spec_header(spec), HasSubstr("constexpr int kPvPromote = 0;"));
  EXPECT_FALSE(planned(prefill(128, 128)).promotes()) << "16 bits";
}

TEST(HopperPromotion, IsAfterRunsOfTilesWhereRegistersAllow) {
  const auto spec_of = [](int qk, int v, const AttentionSchedule& schedule) {
    AttentionProblem problem = prefill(qk, v);
    problem.dtype = narrow().dtype;
    return planned(problem, schedule);
  };
  AttentionSchedule schedule = hopper();
  struct Runs {
    int qk, v, warpgroups, block_n, tiles;
  };
  for (const Runs& runs : {Runs{80, 80, 3, 96, 16},
                           {96, 96, 3, 96, 16},
                           {112, 112, 2, 128, 8},
                           {128, 128, 3, 96, 16},
                           {192, 128, 2, 128, 8}}) {
    const AttentionSpec spec = spec_of(runs.qk, runs.v, schedule);
    EXPECT_EQ(spec.pv_promote, runs.tiles) << runs.qk;
    EXPECT_TRUE(spec.promotes_runs() && !spec.promotes() && !spec.shares_scores()) << runs.qk;
    EXPECT_EQ(spec.math_warpgroups, runs.warpgroups) << runs.qk;
    EXPECT_EQ(spec.block_n, runs.block_n) << runs.qk;
    EXPECT_EQ(spec.overlap, Overlap::kIntra) << runs.qk;
  }
  for (const int depth : {64, 256}) EXPECT_TRUE(spec_of(depth, depth, schedule).promotes()) << depth;
  AttentionProblem scaled = narrow();
  scaled.scales = ScaleKind::kPerToken;
  EXPECT_TRUE(planned(scaled, schedule).promotes()) << "scales of keys take the registers";
  schedule.pv_promote = 8;
  AttentionProblem with_lse = narrow();
  with_lse.lse = true;
  schedule.math_warpgroups = 2;
  EXPECT_EQ(planned(with_lse, schedule).block_n, 96) << "in narrower tiles there is room for the sums of an LSE";
  schedule = hopper();
  // An order of steps that gives products the registers of scores.
  schedule.overlap = Overlap::kPingPong;
  EXPECT_TRUE(spec_of(128, 128, schedule).shares_scores());
  schedule.pv_promote = 4;
  EXPECT_TRUE(spec_of(128, 128, schedule).promotes_runs());
}

TEST(HopperPromotion, HasThreeWarpgroupsWhereRowsAndRegistersAllow) {
  const auto warpgroups = [](const AttentionProblem& problem) { return planned(problem, hopper()).math_warpgroups; };
  EXPECT_EQ(warpgroups(narrow()), 3);
  AttentionProblem brief = narrow();
  brief.max_q_len = 2048;
  EXPECT_EQ(warpgroups(brief), 2) << "192 rows leave tiles of short sequences partly empty";
  EXPECT_EQ(planned(brief, hopper()).pv_promote, 12) << "as many keys as 16 tiles of three warpgroups";
  brief.max_q_len = 2049;
  EXPECT_EQ(warpgroups(brief), 3);
  AttentionProblem with_lse = narrow();
  with_lse.lse = true;
  const AttentionSpec spec = planned(with_lse, hopper());
  EXPECT_EQ(spec.math_warpgroups, 3);
  EXPECT_EQ(spec.block_n, 64) << "beside the sums of an LSE";
  EXPECT_TRUE(spec.promotes_runs());
  AttentionProblem windowed = narrow();
  windowed.mask.kind = MaskKind::kSlidingWindow;
  windowed.mask.window = {1024, 0};
  EXPECT_EQ(warpgroups(windowed), 2);
  AttentionProblem mixed = narrow();
  mixed.heads = {8, 2};
  mixed.q_layout = QLayout::kRagged;
  mixed.kv_layout = {.kind = KvLayoutKind::kPaged, .page_size = 64};
  EXPECT_EQ(warpgroups(mixed), 2) << "warpgroups without a row take registers";
}

/// What the plan says of pv_buffers.
std::string buffers(AttentionProblem problem, const AttentionSchedule& schedule) {
  problem.dtype = narrow().dtype;
  std::string text;
  for (const Choice& choice : plan_attention(problem, schedule, Arch::kSm90a).choices)
    if (choice.field == std::string("pv_buffers")) text += choice.value + ": " + choice.reason;
  return text;
}

TEST(HopperPromotion, LetsPartsTakeTurnsWhereRegistersAllow) {
  AttentionSchedule schedule = hopper();
  const std::string in_turn = "2: a part of P V multiplies while the one before is added to the output",
                    alone = "1: no parts as wide as the scores could take turns",
                    untimed = "1: parts in turn have been timed for heads of 256 alone";
  EXPECT_EQ(buffers(prefill(256, 256), schedule), in_turn);
  EXPECT_EQ(buffers(prefill(192, 192), schedule), untimed);
  EXPECT_EQ(buffers(prefill(64, 64), schedule), alone);
  EXPECT_EQ(buffers(prefill(128, 128), schedule), "") << "runs";
  AttentionProblem biased = prefill(256, 256);
  biased.heads = {32, 4};
  biased.score_mod.kind = ScoreModKind::kAlibi;
  EXPECT_EQ(buffers(biased, schedule), "1: registers have no room for a second part of P V");
  schedule.pv_promote = 1;
  EXPECT_EQ(buffers(prefill(128, 128), schedule), untimed) << "two parts of 64 columns, in the registers of scores";
  schedule.block_n = 64;
  EXPECT_EQ(buffers(prefill(128, 128), schedule), untimed);
  schedule = hopper();
  schedule.overlap = Overlap::kBoth;
  EXPECT_EQ(buffers(prefill(256, 256), schedule), alone) << "products of a step run at the same time";
  schedule.overlap = Overlap::kNone;
  schedule.pv_buffers = 1;
  EXPECT_EQ(buffers(prefill(256, 256), schedule), "1: the schedule says so");

  AttentionProblem wide = prefill(256, 256);
  wide.dtype = biased.dtype = narrow().dtype;
  EXPECT_EQ(planned(wide, hopper()).overlap, Overlap::kPingPong) << "a turn is short";
  EXPECT_EQ(planned(biased, hopper()).overlap, Overlap::kNone) << "parts that wait for each other would hold a turn";
  EXPECT_THAT(canonical_text(planned(wide, schedule)), Not(HasSubstr("pv_buffers"))) << "kernels have their names";
  EXPECT_THAT(canonical_text(planned(wide, hopper())), HasSubstr("pv_buffers 2"));
  EXPECT_THAT(spec_header(planned(wide, hopper())), HasSubstr("constexpr int kPvBuffers = 2;"));
}

/// The keys of a tile of heads of 256.
int keys_of_wide(const std::function<void(AttentionProblem&)>& change, const AttentionSchedule& schedule = hopper()) {
  AttentionProblem problem = prefill(256, 256);
  problem.dtype = narrow().dtype;
  change(problem);
  return planned(problem, schedule).block_n;
}

TEST(HopperPromotion, HasPartsWithinTheScoresWhereRegistersAllow) {
  EXPECT_EQ(keys_of_wide([](AttentionProblem&) {}), 128);
  EXPECT_EQ(keys_of_wide([](AttentionProblem& problem) { problem.mask.kind = MaskKind::kCausal; }), 128);
  EXPECT_EQ(keys_of_wide([](AttentionProblem& problem) { problem.lse = true; }), 64) << "sums of an LSE";
  EXPECT_EQ(keys_of_wide([](AttentionProblem& problem) { problem.sinks = true; }), 64);
  EXPECT_EQ(keys_of_wide([](AttentionProblem& problem) { problem.head_dim = {256, 128}; }), 64) << "not timed";
  AttentionSchedule schedule = hopper();
  schedule.pv_buffers = 1;
  EXPECT_EQ(keys_of_wide([](AttentionProblem&) {}, schedule), 64);
  schedule = hopper();
  schedule.num_kv_stages = 3;
  EXPECT_EQ(keys_of_wide([](AttentionProblem&) {}, schedule), 64) << "three wide tiles do not fit shared memory";
}

TEST(HopperPromotion, RefusesPartsInTurnWhereThereAreNone) {
  AttentionSchedule schedule = hopper();
  schedule.pv_buffers = 2;
  schedule.block_n = 96;
  EXPECT_EQ(refusal(narrow(), schedule),
            "/schedule/pv_buffers: 2: P V has no parts of 96 columns that leave the tensor cores one after the other; "
            "1 would do");
  schedule.block_n = Auto<int>();
  EXPECT_EQ(
      refusal(prefill(128, 128), schedule),
      "/schedule/pv_buffers: 2: only sums of e4m3 leave the tensor cores early, and q is bf16; \"auto\" would do");
}

TEST(HopperPromotion, IsNamedInTheChoicesOfFp8) {
  AttentionSchedule schedule = hopper();
  const auto choices = [&](const AttentionProblem& problem) {
    std::string text;
    for (const Choice& choice : plan_attention(problem, schedule, Arch::kSm90a).choices)
      if (choice.field == std::string("pv_promote")) text += choice.value + ": " + choice.reason;
    return text;
  };
  EXPECT_EQ(choices(narrow()),
            "16: tensor cores keep 14 bits of sums of fp8: enough for so many key tiles, whose sum then moves on");
  AttentionProblem wide = prefill(256, 256);
  wide.dtype = narrow().dtype;
  EXPECT_THAT(choices(wide), StartsWith("1: tensor cores keep 14 bits of sums of fp8, so P V"));
  EXPECT_EQ(choices(prefill(128, 128)), "");
  schedule.pv_promote = 1;
  EXPECT_EQ(choices(narrow()), "1: the schedule says so");
  schedule.pv_promote = 0;
  EXPECT_THAT(choices(narrow()), StartsWith("0: the schedule leaves sums of P V in the tensor cores"));
}

TEST(HopperPromotion, IsRefusedByNameWhereItIsNotBuilt) {
  AttentionSchedule schedule = hopper();
  schedule.pv_promote = 3;
  EXPECT_EQ(refusal(narrow(), schedule),
            "/schedule/pv_promote: 3 is not built yet for the hopper family; it has 0, 1, 2, 4, 8, 12, 16");
  schedule.pv_promote = 0;
  AttentionProblem wide = prefill(128, 128);
  wide.dtype.kv = DType::kE4m3;
  EXPECT_EQ(
      refusal(wide, schedule),
      "/schedule/pv_promote: 0: only sums of e4m3 leave the tensor cores early, and q is bf16; \"auto\" would do");
  schedule.token_gen = true;
  EXPECT_THAT(refusal(narrow(), schedule),
              StartsWith("/schedule/pv_promote: the hopper family has no pv_promote; its fields are"));
  schedule = {};
  schedule.family = Family::kPortable;
  schedule.pv_promote = 1;
  EXPECT_THAT(refusal(prefill(128, 128), schedule),
              StartsWith("/schedule/pv_promote: the portable family has no pv_promote; its fields are"));
  schedule.family = Family::kBlackwell;
  EXPECT_THAT(refusal(prefill(128, 128), schedule, Arch::kSm100a),
              StartsWith("/schedule/pv_promote: the blackwell family has no pv_promote; its fields are"));
}

TEST(HopperExponentials, AreOfTheSpecialFunctionUnitUnlessTheScheduleSaysOtherwise) {
  AttentionSchedule schedule = hopper();
  const AttentionSpec spec = planned(narrow(), schedule);
  EXPECT_EQ(spec.exp2_emulated, 0);
  EXPECT_THAT(canonical_text(spec), Not(HasSubstr("exp2_emulated"))) << "kernels have the names that they had";
  schedule.exp2_emulated = 0.25;
  for (const AttentionProblem& problem : {narrow(), prefill(64, 64)}) {
    EXPECT_EQ(planned(problem, schedule).exp2_emulated, 4);
    EXPECT_THAT(spec_header(planned(problem, schedule)), HasSubstr("constexpr int kExp2Emulated = 4;"));
  }
  schedule.exp2_emulated = 0.75;
  EXPECT_EQ(refusal(narrow(), schedule),
            "/schedule/exp2_emulated: 0.75 is not built yet for the hopper family; it has 0 to 0.5");
}

}  // namespace
}  // namespace kernelwright::hopper_promotion_test
