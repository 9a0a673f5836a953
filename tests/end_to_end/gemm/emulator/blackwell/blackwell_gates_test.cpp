// Gates in gemm_sm100 on the emulator, with every check on: an epilogue that multiplies gates with ups, of whole
// matrices and of groups. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernelwright/verify/formats/float_formats.h"
#include "support/checked_gemm.h"

namespace kernelwright::blackwell_gates_test {
namespace {

using test::gemm_problem;
using testing::HasSubstr;

constexpr const char* kSilu = "silu(gate) * up";
constexpr const char* kLines = "gelu_tanh(alpha * gate + bias) * (alpha * up + bias)";
constexpr const char* kClamped =
    "(clamp(up + bias, -7, 7) + 1) * min(gate + bias, 7) * sigmoid(1.702 * min(gate + bias, 7))";

GemmSchedule tile(int block_n, bool swap_ab = false, int cta_group = 1) {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = block_n, schedule.swap_ab = swap_ab;
  schedule.cta_group = cta_group, schedule.cluster = ClusterShape{cta_group, 1};
  schedule.scheduler = Scheduler::kPersistent;
  schedule.stages = 4;
  return schedule;
}

class BlackwellGates : public test::CheckedGemm {
 protected:
  BlackwellGates() : CheckedGemm(emulator::Completion::kRandom, Arch::kSm100a) {}
};

TEST_F(BlackwellGates, EveryTileAndForm) {
  const auto of = [](const char* epilogue) { return gemm_problem(DType::kBf16, DType::kBf16, 304, 72, epilogue); };
  for (const GemmSchedule& schedule : {tile(112), tile(64, false, 2), tile(32, true)})
    expect_right(of(kLines), {"", 83, true}, schedule);
  for (const char* epilogue : {kSilu, kClamped}) expect_right(of(epilogue), {"", 83, true}, tile(32, true));
}

TEST_F(BlackwellGates, WideNarrowAndTransposed) {
  GemmProblem wide = gemm_problem(DType::kF16, DType::kF32, 112, 64, kClamped);
  wide.dtype.c = DType::kF32;
  GemmProblem transposed = gemm_problem(DType::kBf16, DType::kBf16, 160, 72, kSilu);
  transposed.layout = OperandLayout::kNn;
  const GemmProblem narrow = gemm_problem(DType::kE4m3, DType::kE4m3, 192, 160, kSilu, ScaleKind::kPerToken);
  for (const GemmSchedule& schedule : {tile(64), tile(32, true)})
    for (const GemmProblem& problem : {wide, transposed, narrow}) expect_right(problem, {"", 70, true}, schedule);
  for (const bool swap_ab : {false, true}) {
    try {
      engine_.prepare(narrow, tile(48, swap_ab));
      ADD_FAILURE() << "no refusal";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("/schedule/block_n: 48 columns do not fit: rows of e4m3 have whole 16 bytes, "
                                          "and two columns make one; 32 would do"));
    }
  }
}

TEST_F(BlackwellGates, ScalesOfBlocks) {
  // More than 128 gates, so that rows of b have several scales of each kind.
  const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 560, 272, kSilu, ScaleKind::kPerBlock);
  for (const GemmSchedule& schedule : {tile(128), tile(32, true)}) expect_right(problem, {"", 50, true}, schedule);
}

TEST_F(BlackwellGates, OfGroups) {
  GemmShape shape{"", 129, true};
  shape.group_rows = {33, 0, 16, 61};
  for (const bool swap_ab : {false, true}) {
    const ScaleKind scales = swap_ab ? ScaleKind::kPerBlock : ScaleKind::kPerToken;
    GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 304, 272, kSilu, scales);
    problem.groups = {GroupKind::kRows, 4, GroupBounds::kStarts};
    expect_right(problem, shape, swap_ab ? tile(32, true) : tile(64, false, 2));
  }
  GemmProblem masked = gemm_problem(DType::kBf16, DType::kBf16, 96, 72, kClamped);
  masked.groups = {GroupKind::kMasked, 3, GroupBounds::kCounts};
  shape = {"", 120, true};
  shape.group_rows = {40, 0, 17};
  for (const GemmSchedule& schedule : {tile(64), tile(32, true)}) expect_right(masked, shape, schedule);
}

TEST_F(BlackwellGates, OfFormatsWhoseScalesTheTensorCoresApply) {
  for (const DType operands : {DType::kMxfp8, DType::kNvfp4})
    expect_right(gemm_problem(operands, DType::kBf16, 160, 416, kSilu, ScaleKind::kPerBlock), {"", 70, true}, tile(64));
}

TEST_F(BlackwellGates, PartsOfK) {
  GemmSchedule schedule = tile(64);
  schedule.split_k = 2;
  expect_right(gemm_problem(DType::kBf16, DType::kBf16, 320, 328, kSilu), {"", 70, true}, schedule);
}

TEST_F(BlackwellGates, HaveOneRightValueOfExactInputs) {
  for (const GemmSchedule& schedule : {tile(64), tile(32, true)})
    expect_right(gemm_problem(DType::kBf16, DType::kF32, 96, 64, "relu(gate + bias) * (up + bias)"), {"", 21, true},
                 schedule, {.seed = 2, .exact = true});
}

TEST_F(BlackwellGates, NanStaysInItsRow) {
  GemmCase call = make_gemm_inputs(gemm_problem(DType::kBf16, DType::kBf16, 96, 64, kSilu), {"", 21, true});
  std::vector<float> row(64, 1.f);
  row[7] = std::numeric_limits<float>::quiet_NaN();
  call.a.set_row(4, row);
  for (const GemmSchedule& schedule : {tile(64), tile(32, true)}) {
    const GemmOutput output = run(call, schedule);
    for (std::size_t i = 0; i < 21 * 48; ++i) {
      double value = 0;
      decode_row(DType::kBf16, output.d.data() + i * 2, 1, &value);
      EXPECT_EQ(std::isnan(value), i / 48 == 4) << "element " << i;
    }
  }
}

}  // namespace
}  // namespace kernelwright::blackwell_gates_test
