// A family refuses what it does not compute, with the path and with what would be accepted. Needs no GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

std::string refusal(const AttentionProblem& problem, AttentionSchedule schedule = {}) {
  if (schedule.family.is_auto()) schedule.family = Family::kPortable;
  try {
    plan_attention(problem, schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(AttentionRefusals, HeadSizesThatAreNotBuilt) {  // case 12
  for (const int d : {8, 16, 32, 40, 56, 72, 111, 112, 160, 224, 512}) {
    AttentionProblem problem = default_problem();
    problem.head_dim = {d, d};
    EXPECT_THAT(refusal(problem),
                HasSubstr("/problem/head_dim/qk: " + std::to_string(d) +
                          " is not built yet for the portable family; it has 64, 80, 96, 128, 192, 256"));
  }
}

TEST(AttentionRefusals, ValuesOf512) {  // case 13, and 37: 576 and 512
  AttentionProblem problem = default_problem();
  problem.head_dim = {64, 512};
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/head_dim/v: 512 is not built yet"));
  problem.head_dim = {576, 512};
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/head_dim/qk: 576 is not built yet"));
}

TEST(AttentionRefusals, MasksWithHolesWithinAnOr) {  // cases 29, 30
  for (const Family family : {Family::kPortable, Family::kHopper}) {
    AttentionSchedule schedule;
    schedule.family = family;
    const Mask alone{.kind = MaskKind::kTensor};
    // An "or" with one has holes, whatever the others are.
    EXPECT_EQ(
        refusal(masked(default_problem(), any_of({window(4), all_of({chunks(8), alone})})), schedule),
        fmt::format("/problem/mask/operands/1/operands/1/kind: \"tensor\" as a part of an \"or\" is not built yet for "
                    "the {} family; it has it alone or as a part of an \"and\"",
                    to_string(family)));
  }
}

TEST(AttentionRefusals, ChunksOfSeveralSizes) {
  for (const Family family : {Family::kPortable, Family::kHopper}) {
    AttentionSchedule schedule;
    schedule.family = family;
    EXPECT_EQ(refusal(masked(default_problem(), any_of({chunks(100), window(4), chunks(64)})), schedule),
              fmt::format("/problem/mask/operands/2/chunk: 64 beside chunks of 100 is not built yet for the {} family; "
                          "it has chunks of one size",
                          to_string(family)));
    EXPECT_EQ(refusal(masked(default_problem(), any_of({chunks(100), all_of({window(4), chunks(100)})})), schedule),
              "");
  }
}

TEST(AttentionRefusals, ScalesThatAreNotBuilt) {  // case 33
  EXPECT_EQ(
      refusal(fp8(default_problem(), ScaleKind::kPerBlock)),
      "/problem/scales: \"per_block\" is not built yet for the portable family; it has none, per_tensor, per_head, "
      "per_page, per_token");
}

TEST(AttentionRefusals, ScalesOfPagesWithoutPages) {
  EXPECT_EQ(refusal(fp8(default_problem(), ScaleKind::kPerPage)),
            "/problem/scales: \"per_page\" belongs to paged keys; it takes \"per_token\" here, or kv_layout.kind "
            "\"paged\"");
}

TEST(AttentionRefusals, QueriesInFp8) {
  AttentionProblem problem = default_problem();
  problem.dtype.q = problem.dtype.kv = DType::kE4m3;
  EXPECT_EQ(refusal(problem),
            "/problem/dtype/q: \"e4m3\" is not built yet for the portable family; it has f16, bf16; the hopper family "
            "takes this problem");
  problem.dtype.out = DType::kE4m3;
  EXPECT_EQ(
      refusal(problem),
      "/problem/dtype/q: \"e4m3\" is not built yet for the portable family; it has f16, bf16; sm_100a and sm_103a "
      "take this problem\n"
      "/problem/dtype/out: \"e4m3\" is not built yet for the portable family; it has f16, bf16, f32");
}

TEST(AttentionRefusals, DTypesThatNoFamilyTakes) {
  for (const DType dtype : {DType::kF32, DType::kE5m2, DType::kMxfp8, DType::kMxfp4, DType::kNvfp4}) {
    AttentionProblem problem = default_problem();
    problem.dtype.q = problem.dtype.kv = problem.dtype.out = dtype;
    EXPECT_THAT(refusal(problem), HasSubstr("/problem/dtype/q: \"" + std::string(to_string(dtype)) +
                                            "\" does not fit; queries are f16, bf16 or e4m3\n"));
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kMxfp8, DType::kMxfp4, DType::kNvfp4}) {
    AttentionProblem problem = default_problem();
    problem.dtype.kv = dtype;
    EXPECT_EQ(refusal(problem), "/problem/dtype/kv: \"" + std::string(to_string(dtype)) +
                                    "\" does not fit; with bf16 queries, keys and values are bf16, e4m3 or e5m2");
  }
  AttentionProblem problem = default_problem();
  problem.dtype.out = DType::kE4m3;
  EXPECT_EQ(refusal(problem),
            "/problem/dtype/out: \"e4m3\" does not fit; the output is no narrower than the queries: f16, bf16 or f32\n"
            "/problem/dtype/out: \"e4m3\" is not built yet for the portable family; it has f16, bf16, f32");
  problem.dtype.out = DType::kE5m2;
  EXPECT_EQ(refusal(problem),
            "/problem/dtype/out: \"e5m2\" does not fit; the output is f16, bf16 or f32\n"
            "/problem/dtype/out: \"e5m2\" is not built yet for the portable family; it has f16, bf16, f32");
}

TEST(AttentionRefusals, ARotaryPartBesideFp8Keys) {  // case 37's queries
  EXPECT_EQ(refusal(rotary(fp8(default_problem(), ScaleKind::kNone))),
            "/problem/rope/width: 64 beside keys of e4m3 is not built yet for the portable family; it has 0, no rotary "
            "part, or 16-bit queries and keys");
}

TEST(AttentionRefusals, ARotaryPartThatIsNoWholeStepOfAProduct) {
  EXPECT_EQ(refusal(rotary(default_problem(), 24)),
            "/problem/rope/width: 24 is not built yet for the portable family; it has 0 and multiples of 16 to 64; the "
            "hopper family takes this problem");
}

TEST(AttentionRefusals, ARotaryPartInDecode) {
  EXPECT_EQ(refusal(decode(rotary(default_problem()))),
            "/problem/rope/width: 64 is not built yet for the portable family; it has 0, no rotary part; the hopper "
            "family takes this problem");
}

TEST(AttentionRefusals, ChunksOfKeysThatLieInTwoTensors) {
  AttentionSchedule schedule;
  schedule.block_k = 64;
  EXPECT_EQ(refusal(rotary(default_problem(), 32), schedule),
            "/schedule/block_k: 64 does not divide rope.width, 32; 32 would do");
}

TEST(AttentionRefusals, LengthsOfTheCacheAloneBesideOffsetsOfAllKeys) {
  AttentionProblem problem = ragged(default_problem());
  problem.cache_length = CacheLength::kPrompt;
  EXPECT_EQ(
      refusal(problem),
      "/problem/cache_length: \"prompt\" has no meaning for kv_layout \"ragged\", whose offsets say where all keys "
      "lie; \"accurate\" would do");
}

TEST(AttentionRefusals, SchedulersThatAreNotBuilt) {
  for (const Scheduler scheduler : {Scheduler::kGrid, Scheduler::kPersistent, Scheduler::kQueued}) {
    AttentionSchedule schedule;
    schedule.scheduler = scheduler;
    EXPECT_EQ(refusal(default_problem(), schedule),
              "/schedule/scheduler: \"" + std::string(to_string(scheduler)) +
                  "\" is not built yet for the portable family; it has longest_first");
  }
}

TEST(AttentionRefusals, FamiliesThatAreNotBuilt) {
  AttentionSchedule schedule;
  schedule.family = Family::kBlackwell;
  EXPECT_THAT(refusal(default_problem(), schedule),
              HasSubstr("/schedule/family: blackwell kernels do not run on sm_90a; they run on sm_100a, sm_103a"));
}

TEST(AttentionRefusals, SplitKeysOutsideTheDecodeForm) {
  AttentionSchedule schedule;
  schedule.splits = 4;
  EXPECT_THAT(refusal(default_problem(), schedule), HasSubstr("/schedule/splits"));
}

// ---- hopper ----

std::string hopper_refusal(const std::function<void(AttentionProblem&, AttentionSchedule&)>& change) {
  AttentionProblem problem = default_problem();
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  change(problem, schedule);
  return refusal(problem, schedule);
}
std::string hopper_refusal(const std::function<void(AttentionProblem&)>& change) {
  return hopper_refusal([&](AttentionProblem& problem, AttentionSchedule&) { change(problem); });
}
std::string lacks(const std::string& what, const std::string& has) {
  return what + " is not built yet for the hopper family; it has " + has;
}

TEST(HopperRefusals, HeadSizesThatNoTileHolds) {  // case 12
  for (const int d : {8, 111, 260, 512})
    EXPECT_THAT(hopper_refusal([d](AttentionProblem& problem) {
                  problem.head_dim = {d, d};
                }),
                HasSubstr(lacks("/problem/head_dim/qk: " + std::to_string(d), "multiples of 8 from 16 to 256")));
  EXPECT_EQ(hopper_refusal([](AttentionProblem& problem) {
              problem.head_dim = {64, 256};  // case 13
            }),
            lacks("/problem/head_dim/v: 256", "values no wider than keys, 64; the portable family takes this problem"));
}

TEST(HopperRefusals, PagesThatABoxDoesNotFitInDecode) {  // case 21; prefill gathers their rows
  for (const int page : {1, 5, 12})
    EXPECT_EQ(hopper_refusal([page](AttentionProblem& problem, AttentionSchedule& schedule) {
                problem.kv_layout = {KvLayoutKind::kPaged, page};
                problem.max_q_len = 1;
                schedule.token_gen = true;
              }),
              lacks("/problem/kv_layout/page_size: " + std::to_string(page),
                    "multiples of 8; the portable family takes this problem"));
}

TEST(HopperRefusals, Fp8KeysInPagesThatABoxDoesNotFit) {  // case 48
  for (const DType q : {DType::kBf16, DType::kE4m3})
    EXPECT_THAT(hopper_refusal([q](AttentionProblem& problem) {
                  problem.dtype.q = q, problem.dtype.kv = DType::kE4m3;
                  problem.kv_layout = {KvLayoutKind::kPaged, 4};
                }),
                HasSubstr(lacks("/problem/kv_layout/page_size: 4", "multiples of 8")));
}

TEST(HopperRefusals, SplitKeys) {  // cases 25, 26
  EXPECT_EQ(hopper_refusal([](AttentionProblem&, AttentionSchedule& schedule) { schedule.splits = 4; }),
            lacks("/schedule/splits: 4", "1"));
}
TEST(HopperRefusals, AWayToMerge) {
  EXPECT_THAT(hopper_refusal([](AttentionProblem&, AttentionSchedule& schedule) { schedule.merge = Merge::kInKernel; }),
              HasSubstr("/schedule/merge: the hopper family has no merge"));
}

}  // namespace
}  // namespace kernelwright
