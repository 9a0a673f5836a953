// GEMMs whose epilogue multiplies gates with ups, on the emulator, with every check on. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernelwright/verify/formats/float_formats.h"
#include "support/checked_gemm.h"

namespace kernelwright::gemm_gates_test {
namespace {

using test::gemm_problem;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

constexpr const char* kSilu = "silu(gate) * up";
constexpr const char* kLines = "gelu_tanh(alpha * gate + bias) * (alpha * up + bias)";
constexpr const char* kClamped =
    "(clamp(up + bias, -7, 7) + 1) * min(gate + bias, 7) * sigmoid(1.702 * min(gate + bias, 7))";

// Of a tile's columns of d, 80 are a slab and a shorter one, and 32 are a shorter one alone. With swapped operands, 8
// tokens are a single matrix of stmatrix, 48 are six, and 72 are a slab and a single matrix.
constexpr Tile kTiles[] = {
    {"portable", Family::kPortable, 16, 32, 0},
    {"portable_128", Family::kPortable, 128, 64, 0},
    {"cooperative_tail", Family::kHopper, 128, 160, 2},
    {"ping_pong", Family::kHopper, 64, 64, 2, Roles::kPingPong},
    {"pair", Family::kHopper, 64, 128, 1, Roles::kCooperative, false, 2},
    {"swapped_8", Family::kHopper, 64, 8, 1, Roles::kCooperative, true},
    {"swapped_48", Family::kHopper, 128, 48, 2, Roles::kCooperative, true},
    {"swapped_ping_pong", Family::kHopper, 64, 72, 2, Roles::kPingPong, true},
};

class GemmGates : public test::CheckedGemm {};

TEST_F(GemmGates, EveryTileAndForm) {
  for (const Tile& tile : kTiles) {
    SCOPED_TRACE(tile.name);
    for (const char* epilogue : {kSilu, kLines, kClamped})
      expect_right(gemm_problem(DType::kBf16, DType::kBf16, 208, 72, epilogue), {"", 83, true}, schedule_of(tile));
  }
}

TEST_F(GemmGates, WideNarrowAndTransposed) {
  GemmProblem wide = gemm_problem(DType::kF16, DType::kF32, 112, 64, kClamped);
  wide.dtype.c = DType::kF32;
  GemmProblem transposed = gemm_problem(DType::kBf16, DType::kBf16, 160, 72, kSilu);
  transposed.layout = OperandLayout::kNn;
  for (const Tile& tile : {kTiles[0], kTiles[3], kTiles[6]}) {
    SCOPED_TRACE(tile.name);
    expect_right(wide, {"", 70, true}, schedule_of(tile));
    expect_right(transposed, {"", 70, true}, schedule_of(tile));
  }
  // Rows of fp8 have to be whole 16 bytes, which with swapped operands a warp's 8 columns are not.
  const GemmProblem narrow = gemm_problem(DType::kE4m3, DType::kE4m3, 192, 160, kSilu, ScaleKind::kPerToken);
  for (const Tile& tile : {kTiles[2], kTiles[3]}) expect_right(narrow, {"", 70, true}, schedule_of(tile));
  try {
    engine_.prepare(narrow, schedule_of(kTiles[6]));
    ADD_FAILURE() << "no refusal";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/schedule/swap_ab: true: a warp has 8 columns of e4m3"));
  }
}

TEST_F(GemmGates, ScalesAndGroups) {
  for (const Tile& tile : {kTiles[2], kTiles[6]})
    for (const bool gather : {false, true})
      for (const ScaleKind scales : {ScaleKind::kPerBlock, ScaleKind::kPerToken}) {
        SCOPED_TRACE(tile.name);
        GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 304, 272, kSilu, scales);
        problem.groups = {GroupKind::kRows, 4, GroupBounds::kStarts, gather};
        GemmShape shape{"", 120, true};
        shape.group_rows = {33, 0, 16, 61};
        if (gather) shape.source_rows = 40;
        expect_right(problem, shape, schedule_of(tile));
      }
  GemmProblem masked = gemm_problem(DType::kBf16, DType::kBf16, 96, 72, kClamped);
  masked.groups = {GroupKind::kMasked, 3, GroupBounds::kCounts};
  GemmShape shape{"", 120, true};
  shape.group_rows = {40, 0, 17};
  for (const Tile& tile : kTiles) expect_right(masked, shape, schedule_of(tile));
}

TEST_F(GemmGates, PartsOfK) {
  GemmSchedule schedule = schedule_of(kTiles[4]);
  schedule.cluster = ClusterShape{1, 1};
  schedule.split_k = 2;
  for (const SplitMode mode : {SplitMode::kCluster, SplitMode::kTurnstile})
    for (const int columns : {64, 256}) {  // bands of rows, and bands of columns
      schedule.split_mode = mode;
      schedule.block_n = columns;
      expect_right(gemm_problem(DType::kBf16, DType::kBf16, 320, 328, kSilu), {"", 70, true}, schedule);
    }
}

TEST_F(GemmGates, HaveOneRightValueOfExactInputs) {
  for (const Tile& tile : kTiles)
    expect_right(gemm_problem(DType::kBf16, DType::kF32, 96, 64, "relu(gate + bias) * (up + bias)"), {"", 21, true},
                 schedule_of(tile), {.seed = 2, .exact = true});
}

TEST_F(GemmGates, NanStaysInItsRow) {
  GemmCase call = make_gemm_inputs(gemm_problem(DType::kBf16, DType::kBf16, 96, 64, kClamped), {"", 21, true});
  std::vector<float> row(64, 1.f);
  row[7] = std::numeric_limits<float>::quiet_NaN();
  call.a.set_row(4, row);
  for (const Tile& tile : {kTiles[0], kTiles[3], kTiles[5]}) {
    const GemmOutput output = test::run_checked(engine_, call, schedule_of(tile));
    for (std::size_t i = 0; i < 21 * 48; ++i) {
      double value = 0;
      decode_row(DType::kBf16, output.d.data() + i * 2, 1, &value);
      EXPECT_EQ(std::isnan(value), i / 48 == 4) << "element " << i;
    }
  }
}

TEST_F(GemmGates, OfNoProductAreThoseOfBiases) {
  expect_right(gemm_problem(DType::kBf16, DType::kBf16, 96, 0, kClamped), {"", 21, true}, schedule_of(kTiles[3]));
}

TEST_F(GemmGates, RefuseWhatDoesNotFit) {
  const GemmProblem problem = gemm_problem(DType::kBf16, DType::kBf16, 96, 64, kSilu);
  const GemmCase call = make_gemm_inputs(problem, {"", 21, true});
  EXPECT_THAT(test::refusal_of_launch(engine_, call, [](GemmTensors& t) { t.c = t.a; }),
              HasSubstr("/tensors/c: is given, and nothing reads it"));
  EXPECT_THAT(test::refusal_of_launch(engine_, call, [](GemmTensors& t) { t.d_stride = 40; }),
              HasSubstr("/tensors/d_stride"));
  EXPECT_EQ(test::refusal_of_launch(engine_, call, [](GemmTensors& t) { t.d_stride = 0; }), "");  // 48 columns
  try {
    engine_.prepare(gemm_problem(DType::kBf16, DType::kBf16, 104, 64, kSilu));
    ADD_FAILURE() << "no refusal";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/problem/n: 104 columns are no whole runs of 8 gates and as many ups; it "
                                        "takes a multiple of 16"));
  }
}

}  // namespace
}  // namespace kernelwright::gemm_gates_test
