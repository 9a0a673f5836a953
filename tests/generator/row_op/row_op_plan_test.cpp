// Which kernel takes steps over rows, what is refused, and how many CTAs a launch has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/row_op/plan.h"

namespace kernelwright::row_op_plan_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RowOpProblem normed(int width) {
  RowOpProblem problem;
  problem.width = width;
  problem.norm.kind = NormKind::kRms;
  return problem;
}

std::vector<std::string> refusals(const std::function<void(RowOpConfig&)>& change) {
  RowOpConfig config{"", normed(4096), {}, {}};
  change(config);
  std::vector<std::string> texts;
  for (const Violation& violation : validate(config, Arch::kSm90a)) texts.push_back(violation.text());
  if (!texts.empty()) return texts;
  try {
    plan_row_op(config.problem, config.schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    texts.push_back(error.what());
  }
  return texts;
}

TEST(PlanRowOp, SharesARowAmongAsManyThreadsAsItsWidthNeeds) {
  const auto shape = [](int width, DType out) {
    RowOpProblem problem = normed(width);
    problem.dtype.out = out;
    if (is_block_scaled(out)) problem.scales.kind = ScaleKind::kPerBlock;
    const RowOpSpec spec = plan_row_op(problem, {}, Arch::kSm90a).spec;
    return std::tuple(spec.vector, spec.threads_per_row, spec.rows_per_cta);
  };
  EXPECT_EQ(shape(8, DType::kBf16), std::tuple(8, 1, 128));
  EXPECT_EQ(shape(64, DType::kBf16), std::tuple(8, 8, 16));
  EXPECT_EQ(shape(512, DType::kBf16), std::tuple(8, 32, 4));
  EXPECT_EQ(shape(1000, DType::kBf16), std::tuple(8, 128, 1));
  EXPECT_EQ(shape(4096, DType::kBf16), std::tuple(8, 512, 1));
  EXPECT_EQ(shape(7168, DType::kBf16), std::tuple(8, 896, 1));
  EXPECT_EQ(shape(7168, DType::kE4m3), std::tuple(16, 448, 1));
  EXPECT_EQ(shape(7168, DType::kMxfp8), std::tuple(16, 448, 1));
  EXPECT_EQ(shape(8192, DType::kBf16), std::tuple(8, 1024, 1));
  EXPECT_EQ(shape(8200, DType::kBf16), std::tuple(8, 352, 1)) << "more than a CTA has threads";
  EXPECT_EQ(shape(16384, DType::kBf16), std::tuple(8, 512, 1));
  EXPECT_EQ(shape(18432, DType::kE4m3), std::tuple(16, 384, 1)) << "48 elements of a thread";
  EXPECT_EQ(shape(32768, DType::kBf16), std::tuple(8, 512, 1));
  EXPECT_EQ(shape(32, DType::kMxfp8), std::tuple(8, 16, 8)) << "the bytes of four scales are a word";
}

TEST(PlanRowOp, LeavesAnSmRoomForTwoRows) {
  const auto threads = [](int width, Arch arch) { return plan_row_op(normed(width), {}, arch).spec.threads_per_row; };
  for (const Arch arch : {Arch::kSm80, Arch::kSm90a, Arch::kSm100a, Arch::kSm103a}) EXPECT_EQ(threads(7168, arch), 896);
  for (const Arch arch : {Arch::kSm86, Arch::kSm89, Arch::kSm120a}) {
    EXPECT_EQ(threads(4096, arch), 512);
    EXPECT_EQ(threads(6144, arch), 768);
    EXPECT_EQ(threads(7168, arch), 448) << "an SM has 1536 threads";
  }
}

/// bench/results/rows/2026-11-30-h200-row-op.md: few rows have many SMs so, and many rows small CTAs.
TEST(PlanRowOp, SharesARowAmongCtasWhereNothingIsSummed) {
  const auto shape = [](int width, DType out, ScaleKind scales, RowInput input = RowInput::kGateUp) {
    RowOpProblem problem;
    problem.width = width, problem.input = input;
    problem.dtype.out = out, problem.scales.kind = scales;
    const RowOpSpec spec = plan_row_op(problem, {}, Arch::kSm90a).spec;
    return std::tuple(spec.vector, spec.threads_per_row, spec.ctas_per_row);
  };
  EXPECT_EQ(shape(512, DType::kBf16, ScaleKind::kNone), std::tuple(8, 32, 1));
  EXPECT_EQ(shape(2048, DType::kE4m3, ScaleKind::kPerBlock), std::tuple(8, 256, 1));
  EXPECT_EQ(shape(14336, DType::kBf16, ScaleKind::kNone), std::tuple(8, 256, 7));
  EXPECT_EQ(shape(14336, DType::kE4m3, ScaleKind::kPerTensor), std::tuple(8, 256, 7));
  EXPECT_EQ(shape(14336, DType::kE4m3, ScaleKind::kPerToken), std::tuple(8, 448, 1)) << "a scale of all of the row";
  EXPECT_EQ(shape(7168, DType::kE4m3, ScaleKind::kPerBlock, RowInput::kPlain), std::tuple(16, 448, 1)) << "one operand";
  EXPECT_EQ(shape(9216, DType::kBf16, ScaleKind::kNone, RowInput::kAdd), std::tuple(8, 256, 5)) << "the last has half";
  EXPECT_EQ(shape(2880, DType::kMxfp8, ScaleKind::kPerBlock), std::tuple(16, 192, 1)) << "scales in atoms";
}

TEST(PlanRowOp, LaunchesARowOrSomeOfThemACta) {
  const RowOpSpec narrow = plan_row_op(normed(64), {}, Arch::kSm90a).spec;
  EXPECT_EQ(plan_launch(narrow, 1).grid[0], 1u);
  EXPECT_EQ(plan_launch(narrow, 33).grid[0], 3u);
  EXPECT_EQ(plan_launch(narrow, kMostRows).grid[0], 134217664u);
  EXPECT_EQ(plan_launch(plan_row_op(normed(4096), {}, Arch::kSm90a).spec, 100000).grid[0], 100000u);
  RowOpProblem shared;
  shared.width = 14336, shared.input = RowInput::kGateUp;
  const RowOpSpec seven = plan_row_op(shared, {}, Arch::kSm90a).spec;
  EXPECT_EQ(plan_launch(seven, 3).grid[0], 21u) << "seven CTAs of each row";
  EXPECT_EQ(most_rows(seven), kMostRows / 7);
  EXPECT_EQ(plan_launch(seven, most_rows(seven)).grid[0], 2147482624u);
  RowOpProblem operand = normed(4096);
  operand.dtype.out = DType::kMxfp8;
  operand.scales.kind = ScaleKind::kPerBlock;
  EXPECT_EQ(plan_launch(plan_row_op(operand, {}, Arch::kSm90a).spec, 3).grid[0], 128u) << "scales of whole atoms";
}

TEST(PlanRowOp, LeavesOneKernelWhereFieldsHaveNoMeaning) {
  RowOpProblem a = normed(4096), b = a;
  a.norm.kind = b.norm.kind = NormKind::kNone;
  a.input = b.input = RowInput::kAdd;
  a.norm.eps = 1e-3, a.norm.weight = false, a.gate.limit = 3;
  EXPECT_EQ(plan_row_op(a, {}, Arch::kSm80).spec, plan_row_op(b, {}, Arch::kSm80).spec);
}

TEST(PlanRowOp, RefusesWidthsByNameWithTheNearestOne) {
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.width = 1002; }),
              ElementsAre("/problem/width: 1002 does not fit rows; it takes a multiple of 8, such as 1000"));
  EXPECT_THAT(
      refusals([](RowOpConfig& c) {
        c.problem.width = 1000, c.problem.dtype.out = DType::kE4m3;
        c.problem.scales.kind = ScaleKind::kPerBlock;
      }),
      ElementsAre("/problem/width: 1000 does not fit rows of per_block scales; it takes a multiple of 128, such "
                  "as 1024"));
  EXPECT_THAT(refusals([](RowOpConfig& c) {
                c.problem.width = 1000, c.problem.dtype.out = DType::kMxfp8,
                c.problem.scales.kind = ScaleKind::kPerBlock;
              }),
              ElementsAre("/problem/width: 1000 does not fit rows of mxfp8; it takes a multiple of 32, such as 992"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.width = 40000; }),
              ElementsAre("/problem/width: 40000 is outside [8, 32768]"));
}

TEST(PlanRowOp, RefusesFieldsThatContradictEachOther) {
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.norm.kind = NormKind::kNone; }),
              ElementsAre("/problem/input: \"plain\" without a norm, from bf16 to itself, is a copy of rows; name a "
                          "step: add, gate_up, merge, a norm, another dtype.out"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.norm.kind = NormKind::kL2; }),
              ElementsAre("/problem/norm/kind: \"l2\" does not fit; it takes none or rms"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.gate.pairs = 8; }),
              ElementsAre("/problem/gate/pairs: 8 has no meaning here; leave it out"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.input = RowInput::kGateUp, c.problem.gate.pairs = 4; }),
              ElementsAre("/problem/gate/pairs: 4 does not fit; it takes 0, 1 or 8"));
  EXPECT_THAT(refusals([](RowOpConfig& c) {
                c.problem.input = RowInput::kGateUp;
                c.problem.gate = {.activation = Activation::kGelu, .clamped = true};
              }),
              ElementsAre("/problem/gate/activation: \"gelu\" does not fit clamped; it takes silu"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.heads = 2; }),
              ElementsAre("/problem/heads: 2 has no meaning here; leave it out"));
  EXPECT_THAT(
      refusals([](RowOpConfig& c) { c.problem.input = RowInput::kMerge, c.problem.width = 384, c.problem.heads = 10; }),
      ElementsAre("/problem/heads: 10 heads of a row of 384 are no multiple of 8 elements each; 8 would do"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.scales.kind = ScaleKind::kPerToken; }),
              ElementsAre("/problem/scales/kind: \"per_token\" has no meaning for bf16; leave it out, or write e4m3 or "
                          "e5m2"));
  EXPECT_THAT(refusals([](RowOpConfig& c) {
                c.problem.dtype.out = DType::kE4m3;
                c.problem.scales = {.kind = ScaleKind::kPerBlock, .round = ScaleRound::kUp};
              }),
              ElementsAre("/problem/scales/round: \"up\" is for scales of mxfp8 and mxfp4"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.dtype.out = DType::kMxfp4; }),
              ElementsAre("/problem/scales/kind: \"none\" does not fit mxfp4; it takes per_block"));
  EXPECT_THAT(refusals([](RowOpConfig& c) {
                c.problem.dtype.out = DType::kE4m3;
                c.problem.scales = {.kind = ScaleKind::kPerTensor, .layout = ScaleLayout::kRows, .power_of_two = true};
              }),
              ElementsAre("/problem/scales/layout: \"rows\" is for per_block scales of e4m3 and e5m2",
                          "/problem/scales/power_of_two: true is for f32 scales that the kernel makes: per_token or "
                          "per_block"));
  EXPECT_THAT(
      refusals([](RowOpConfig& c) {
        c.problem.dtype = {DType::kE4m3, DType::kTf32};
      }),
      ElementsAre("/problem/dtype/in: \"e4m3\" does not fit; it takes f16, bf16 or f32",
                  "/problem/dtype/out: \"tf32\" does not fit; it takes f16, bf16, f32, e4m3, e5m2, mxfp8, mxfp4 "
                  "or nvfp4"));
}

TEST(PlanRowOp, RefusesSchedulesThatDoNotFitARow) {
  const auto with = [](int vector, int threads, int rows) {
    return refusals([&](RowOpConfig& c) {
      c.schedule.vector = vector, c.schedule.threads_per_row = threads, c.schedule.rows_per_cta = rows;
    });
  };
  EXPECT_THAT(with(8, 128, 1), IsEmpty());
  EXPECT_THAT(
      with(8, 40, 1),
      ElementsAre("/schedule/threads_per_row: 40 is no power of two up to 32, and no whole warps; 64 would do"));
  EXPECT_THAT(with(8, 96, 1),
              ElementsAre("/schedule/threads_per_row: 96 threads are too few for a row of 4096; 128 would do"));
  EXPECT_THAT(with(8, 256, 2),
              ElementsAre("/schedule/rows_per_cta: 2 does not fit rows of more than a warp; 1 would do"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.problem.width = 1000, c.schedule.vector = 16; }),
              ElementsAre("/schedule/vector: 16 does not divide rows of 1000; 8 would do"));
  EXPECT_THAT(refusals([](RowOpConfig& c) {
                c.problem.width = 64, c.schedule.threads_per_row = 8, c.schedule.rows_per_cta = 3;
              }),
              ElementsAre("/schedule/rows_per_cta: 3 does not fit whole warps; it takes a multiple of 4 up to 128"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.schedule.ctas_per_row = 2; }),
              ElementsAre("/schedule/ctas_per_row: 2 CTAs cannot sum over a row; 1 would do"));
  EXPECT_THAT(refusals([](RowOpConfig& c) {
                c.problem.norm.kind = NormKind::kNone, c.problem.input = RowInput::kGateUp;
                c.schedule.ctas_per_row = 2, c.schedule.threads_per_row = 32;
              }),
              ElementsAre("/schedule/threads_per_row: 32 threads are too few for a row of 4096; 64 would do"));
  EXPECT_THAT(refusals([](RowOpConfig& c) { c.schedule.family = Family::kHopper; }),
              ElementsAre("/schedule/family: \"hopper\" has no kernel for steps over rows; portable has one for every "
                          "architecture"));
}

TEST(RowOpJson, ReadsWhatItWrites) {
  RowOpConfig config{"rows", normed(7168), {}, {{.name = "one", .rows = 1}}};
  config.problem.input = RowInput::kGateUp;
  config.problem.gate = {.pairs = 8, .clamped = true, .limit = 5};
  config.problem.dtype.out = DType::kE4m3;
  config.problem.scales = {.kind = ScaleKind::kPerBlock, .layout = ScaleLayout::kRows, .power_of_two = true};
  config.schedule.threads_per_row = 448;
  EXPECT_EQ(std::get<RowOpConfig>(read_config(write_config(config))), config);
  config.problem.dtype.out = DType::kMxfp8;
  config.problem.scales = {.kind = ScaleKind::kPerBlock, .round = ScaleRound::kUp};
  EXPECT_EQ(std::get<RowOpConfig>(read_config(write_config(config))), config);
}

}  // namespace
}  // namespace kernelwright::row_op_plan_test
