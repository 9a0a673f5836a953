// GEMMs that quantise their result, on the emulator, with every check on. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/row_op/device.h"
#include "support/checked_gemm.h"

namespace kernelwright::gemm_quantized_test {
namespace {

using test::gemm_problem;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

std::string quantized(const std::string& value, const char* options = "") {
  return "x = " + value + "; d = quantize(x, e4m3, per=token_group(128)" + options + ", scale=s)";
}
constexpr const char* kPowerOfTwo = ", round=power_of_two";

constexpr Tile kTiles[] = {
    {"portable_16", Family::kPortable, 16, 128, 0},
    {"portable_128", Family::kPortable, 128, 128, 0},
    {"cooperative", Family::kHopper, 128, 256, 2},
    {"two_waves", Family::kHopper, 256, 128, 2},
    {"ping_pong", Family::kHopper, 64, 128, 2, Roles::kPingPong},
    {"pair", Family::kHopper, 64, 128, 1, Roles::kCooperative, false, 2},
    {"swapped", Family::kHopper, 128, 24, 2, Roles::kCooperative, true},
    {"swapped_ping_pong", Family::kHopper, 128, 72, 2, Roles::kPingPong, true},
    {"swapped_alone", Family::kHopper, 256, 16, 1, Roles::kCooperative, true},
};
// A gate and an up make a column of d.
constexpr Tile kGatedTiles[] = {
    {"portable_16", Family::kPortable, 16, 256, 0},
    {"portable_64", Family::kPortable, 64, 256, 0},
    {"cooperative", Family::kHopper, 128, 256, 2},
    {"ping_pong", Family::kHopper, 64, 256, 2, Roles::kPingPong},
    {"pair", Family::kHopper, 64, 256, 1, Roles::kCooperative, false, 2},
    {"swapped", Family::kHopper, 256, 40, 2, Roles::kCooperative, true},
    {"swapped_ping_pong", Family::kHopper, 256, 8, 2, Roles::kPingPong, true},
};

GemmProblem quantized_problem(DType operands, int n, int k, const std::string& value, const char* options = "",
                              ScaleKind scales = ScaleKind::kNone) {
  return gemm_problem(operands, DType::kE4m3, n, k, quantized(value, options).c_str(), scales);
}

/// Tables of groups and scales leave large tiles less room.
GemmSchedule with_two_slots(const Tile& tile) {
  GemmSchedule schedule = schedule_of(tile);
  schedule.stages = 2;
  return schedule;
}

float scale_at(const GemmOutput& output, std::size_t index) {
  float scale;
  std::memcpy(&scale, output.scale_d.data() + index * sizeof scale, sizeof scale);
  return scale;
}

class GemmQuantized : public test::CheckedGemm {};

TEST_F(GemmQuantized, EveryTileAndForm) {
  for (const Tile& tile : kTiles) {
    SCOPED_TRACE(tile.name);
    const int columns = tile.block_n == 256 ? 384 : 256;  // the last tile has a part of them
    expect_right(quantized_problem(DType::kBf16, columns, 72, "gelu_tanh(alpha * acc + bias) + beta * c", kPowerOfTwo),
                 {"", 75, true}, schedule_of(tile));
  }
  for (const Tile& tile : kGatedTiles) {
    SCOPED_TRACE(tile.name);
    expect_right(
        quantized_problem(DType::kBf16, 512, 72, "gelu_tanh(alpha * gate + bias) * (alpha * up + bias)", kPowerOfTwo),
        {"", 75, true}, schedule_of(tile));
  }
}

TEST_F(GemmQuantized, OtherFormat) {
  GemmProblem problem =
      gemm_problem(DType::kF16, DType::kE5m2, 128, 64, "d = quantize(relu(acc), e5m2, scale=s, per=token_group(128));");
  for (const Tile& tile : {kTiles[1], kTiles[4]}) expect_right(problem, {"", 40, true}, schedule_of(tile));
}

TEST_F(GemmQuantized, HaveOneRightValueOfExactInputs) {
  for (const Tile& tile : {kTiles[0], kTiles[3], kTiles[8]})
    expect_right(quantized_problem(DType::kBf16, 256, 64, "relu(acc + bias)", tile.block_m == 16 ? kPowerOfTwo : ""),
                 {"", 21, true}, schedule_of(tile), {.seed = 2, .exact = true});
  for (const Tile& tile : {kGatedTiles[1], kGatedTiles[5]})
    expect_right(quantized_problem(DType::kBf16, 256, 64, "relu(gate + bias) * (up + bias)"), {"", 21, true},
                 schedule_of(tile), {.seed = 2, .exact = true});
}

TEST_F(GemmQuantized, ScalesAndGroups) {
  for (const Tile& tile : {kGatedTiles[1], kGatedTiles[2], kGatedTiles[5]})
    for (const bool gather : {false, true}) {
      if (tile.family == Family::kPortable && !gather) continue;
      SCOPED_TRACE(tile.name);
      GemmProblem problem = quantized_problem(DType::kE4m3, 512, 144, "silu(gate) * up", "", ScaleKind::kPerBlock);
      problem.groups = {GroupKind::kRows, 4, GroupBounds::kStarts, gather};
      GemmShape shape{"", 80, true};
      shape.group_rows = {33, 0, 16, 21};
      if (gather) shape.source_rows = 40;
      expect_right(problem, shape, with_two_slots(tile));
    }
  GemmProblem masked = quantized_problem(DType::kE4m3, 256, 144, "acc + c", kPowerOfTwo, ScaleKind::kPerToken);
  masked.groups = {GroupKind::kMasked, 3, GroupBounds::kCounts};
  GemmShape shape{"", 126, true};
  shape.group_rows = {42, 0, 17};
  for (const Tile& tile : {kTiles[1], kTiles[4], kTiles[6], kTiles[7]})
    expect_right(masked, shape, with_two_slots(tile));
}

TEST_F(GemmQuantized, PartsOfK) {
  GemmSchedule schedule = schedule_of(kTiles[5]);
  schedule.cluster = ClusterShape{1, 1};
  schedule.split_k = 2;
  for (const SplitMode mode : {SplitMode::kCluster, SplitMode::kTurnstile})
    for (const int columns : {128, 256}) {  // bands of rows, and bands of columns
      schedule.split_mode = mode;
      schedule.block_n = columns;
      expect_right(quantized_problem(DType::kBf16, 384, 328, "silu(acc)"), {"", 70, true}, schedule);
    }
}

TEST_F(GemmQuantized, PartsOfKWithSwappedOperands) {
  GemmSchedule schedule = schedule_of(kTiles[6]);
  schedule.split_k = 2;
  schedule.split_mode = SplitMode::kTurnstile;
  expect_right(quantized_problem(DType::kBf16, 384, 328, "silu(acc)"), {"", 70, true}, schedule);
  schedule.split_mode = SplitMode::kCluster, schedule.block_n = 32;  // bands of columns, which are rows of d
  expect_right(quantized_problem(DType::kBf16, 384, 328, "silu(acc) + c"), {"", 70, true}, schedule);
  schedule.block_m = 256, schedule.split_k = 4;
  expect_right(quantized_problem(DType::kBf16, 512, 328, "silu(gate + bias) * (up + bias)"), {"", 37, true}, schedule);
}

TEST_F(GemmQuantized, OfNoProductAreThoseOfBiases) {
  for (const Tile& tile : {kTiles[1], kTiles[4]})
    expect_right(quantized_problem(DType::kBf16, 256, 0, "acc + bias"), {"", 21, true}, schedule_of(tile));
}

TEST_F(GemmQuantized, RowsOfZerosNanAndInfinity) {
  GemmCase call = make_gemm_inputs(quantized_problem(DType::kBf16, 256, 64, "acc"), {"", 37, true});
  std::vector<float> row(64, 0.f);
  call.a.set_row(3, row);
  call.a.set_row(12, row);
  row[7] = std::numeric_limits<float>::quiet_NaN();
  call.a.set_row(4, row);
  row[7] = std::numeric_limits<float>::infinity();
  call.a.set_row(20, row);
  for (const Tile& tile : {kTiles[0], kTiles[1], kTiles[3], kTiles[6], kTiles[8]}) {
    SCOPED_TRACE(tile.name);
    const GemmOutput output = test::run_checked(engine_, call, schedule_of(tile));
    test::expect_right(call, output);
    for (std::size_t group = 0; group < 2; ++group) {
      EXPECT_EQ(scale_at(output, group * 37 + 3), 0x1p-126f);  // the smallest normal f32, as row_op has it
      EXPECT_EQ(scale_at(output, group * 37 + 12), 0x1p-126f);
      EXPECT_TRUE(std::isnan(scale_at(output, group * 37 + 4)));
      EXPECT_EQ(scale_at(output, group * 37 + 20), std::numeric_limits<float>::infinity());
    }
    for (std::size_t i = 0; i < 37 * 256; ++i) {
      double code = 0;
      decode_row(DType::kE4m3, output.d.data() + i, 1, &code);
      const std::size_t at = i / 256;
      const double value = code * scale_at(output, i % 256 / 128 * 37 + at);
      EXPECT_EQ(std::isnan(value), at == 4 || at == 20) << "element " << i;
      if (at == 3 || at == 12) EXPECT_EQ(value, 0) << "element " << i;
    }
  }
}

/// What row_op makes of rows of f32.
RowOpOutput quantised_by_row_op(Engine& engine, const GemmOutput& values, int rows, int width, bool power_of_two) {
  RowOpProblem problem;
  problem.dtype = {DType::kF32, DType::kE4m3};
  problem.width = width;
  problem.scales = {.kind = ScaleKind::kPerBlock, .layout = ScaleLayout::kColumns, .power_of_two = power_of_two};
  RowOpCase call;
  call.problem = problem, call.rows = rows;
  lay_out_rows(call, 0);
  call.x = values.d;
  RowOpDeviceCase on_device(engine.device(0), call, engine.prepare(problem));
  on_device.poison();
  on_device.launch();
  return on_device.download();
}

TEST_F(GemmQuantized, AreTheBitsOfRowOp) {
  constexpr int kRows = 83, kColumns = 384;
  for (const char* options : {"", kPowerOfTwo})
    for (const Tile& tile : {kTiles[1], kTiles[4], kTiles[6]}) {
      SCOPED_TRACE(tile.name);
      GemmCase call = make_gemm_inputs(quantized_problem(DType::kBf16, kColumns, 72, "acc", options), {"", kRows, true},
                                       {.seed = 5});
      std::vector<float> zeros(72, 0.f);
      call.a.set_row(9, zeros);
      const GemmOutput quantised = test::run_checked(engine_, call, schedule_of(tile));
      call.problem.dtype.d = DType::kF32, call.problem.epilogue = "acc";
      lay_out(call);
      const GemmOutput values = test::run_checked(engine_, call, schedule_of(tile));
      const RowOpOutput right = quantised_by_row_op(engine_, values, kRows, kColumns, *options != 0);
      EXPECT_EQ(quantised.d, right.out);
      const std::size_t stride = right.scale.size() / (kColumns / 128);
      for (std::size_t group = 0; group < kColumns / 128; ++group)
        EXPECT_EQ(
            std::memcmp(quantised.scale_d.data() + group * kRows * 4, right.scale.data() + group * stride, kRows * 4),
            0)
            << "group " << group;
    }
}

TEST_F(GemmQuantized, FeedTheNextGemm) {
  GemmProblem first = quantized_problem(DType::kE4m3, 512, 272, "silu(gate) * up", "", ScaleKind::kPerBlock);
  GemmProblem second = gemm_problem(DType::kE4m3, DType::kBf16, 144, 256, "acc", ScaleKind::kPerBlock);
  first.groups = {GroupKind::kMasked, 3, GroupBounds::kCounts};
  second.groups = first.groups;
  GemmShape shape{"", 120, true};
  shape.group_rows = {40, 0, 17};
  const GemmOutput middle =
      test::run_checked(engine_, make_gemm_inputs(first, shape, {.seed = 3}), schedule_of(kGatedTiles[5]));
  GemmCase call = make_gemm_inputs(second, shape, {.seed = 4});
  ASSERT_EQ(call.a.bytes.size(), middle.d.size());
  ASSERT_EQ(call.scale_a.size() * sizeof(float), middle.scale_d.size());
  call.a.bytes = middle.d;
  std::memcpy(call.scale_a.data(), middle.scale_d.data(), middle.scale_d.size());
  test::expect_right(call, test::run_checked(engine_, call, schedule_of(kTiles[4])));
}

TEST_F(GemmQuantized, SchedulesAndBudgetsChangeNoBits) {
  const GemmCase call = make_gemm_inputs(quantized_problem(DType::kBf16, 384, 136, "silu(acc)"), {"", 150, true});
  const GemmOutput whole = test::run_checked(engine_, call, schedule_of(kTiles[4]));
  for (const int budget : {1, 3})
    EXPECT_EQ(test::run_checked(engine_, call, schedule_of(kTiles[4]), [&](GemmTensors& t) { t.sm_budget = budget; }),
              whole);
}

TEST_F(GemmQuantized, RefuseProblemsAndTiles) {
  const auto refusal = [&](const GemmProblem& problem, const GemmSchedule& schedule = {}) -> std::string {
    try {
      engine_.prepare(problem, schedule);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  GemmProblem problem = quantized_problem(DType::kBf16, 256, 64, "acc");
  GemmSchedule schedule = schedule_of(kTiles[4]);
  schedule.block_n = 192;
  EXPECT_THAT(refusal(problem, schedule),
              HasSubstr("/schedule/block_n: 192 columns hold a part of the 128 that share a scale of d; 256 would do"));
  schedule = schedule_of(kTiles[6]);
  schedule.block_m = 64, schedule.math_warpgroups = 1;
  EXPECT_THAT(refusal(problem, schedule),
              HasSubstr("/schedule/block_m: 64 rows hold a part of the 128 that share a scale of d; 128 would do"));
  schedule = schedule_of(kTiles[6]);
  schedule.block_n = 208;
  EXPECT_THAT(refusal(problem, schedule), HasSubstr("/schedule/block_n: 208 columns of a swapped tile hand 33280 bytes "
                                                    "of a quantised result from warp to warp, and 2 stages of results "
                                                    "have 32768; 200 would fit"));
  schedule.block_n = 24, schedule.split_k = 2;
  EXPECT_THAT(refusal(problem, schedule),
              HasSubstr("/schedule/split_k: 2 parts finish bands of whole eights of a swapped tile's columns, and 24 "
                        "columns have none; block_n 32 would do"));
  schedule = schedule_of(kTiles[1]);
  schedule.block_n = 64;
  EXPECT_THAT(refusal(problem, schedule), HasSubstr("/schedule/block_n: 64 is not built yet for the portable family"));
  problem.n = 320;
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/n: 320 columns leave a part of the 128 columns of d that share a "
                                          "scale; it takes a multiple of 128"));
  problem.n = 256, problem.dtype.d = DType::kBf16;
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/dtype/d: \"bf16\" is not what the epilogue quantises to; it takes "
                                          "e4m3"));
}

}  // namespace
}  // namespace kernelwright::gemm_quantized_test
