// Quantised results of gemm_sm100 on the emulator, with every check on: f32 scales and block-scaled formats, of whole
// matrices and of groups, with gates. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "end_to_end/gemm/emulator/blackwell/blackwell_tiles.h"
#include "support/grouped_gemm.h"

namespace kernelwright::blackwell_quantized_test {
namespace {

using namespace test::blackwell;
using test::from;
using test::gathering;
using test::gemm_problem;
using test::grouped;
using test::rows_of;
using testing::HasSubstr;

constexpr const char* kGates = "silu(alpha * gate + bias) * (alpha * up + bias)";
constexpr BlackwellTile kWhole = {"alone_128", 128}, kWide = {"alone_256", 256},
                        kWidePair = {"pair_256", 256, 2, {2, 1}}, kWholePair = {"pair_128", 128, 2, {2, 1}},
                        kWholeCluster = {"cluster_128", 128, 1, {2, 2}};

std::string quantised(DType format, const std::string& value, const char* options = "") {
  const int together = is_block_scaled(format) ? scale_vector(format) : 128;
  return "x = " + value + "; d = quantize(x, " + std::string(to_string(format)) + ", per=token_group(" +
         std::to_string(together) + ")" + options + ", scale=s)";
}
GemmProblem problem_of(DType operands, DType format, int n, int k, const std::string& value, const char* options = "",
                       ScaleKind scales = ScaleKind::kNone) {
  return gemm_problem(operands, format, n, k, quantised(format, value, options).c_str(),
                      is_block_scaled(operands) ? ScaleKind::kPerBlock : scales);
}
GemmSchedule with_two_slots(const BlackwellTile& tile) {
  GemmSchedule schedule = schedule_of(tile);
  schedule.stages = 2, schedule.scheduler = Scheduler::kPersistent;
  return schedule;
}

class BlackwellQuantized : public test::CheckedBlackwellGemm {
 protected:
  BlackwellQuantized() : CheckedBlackwellGemm(emulator::Completion::kRandom) {}
  void expect_right(const GemmProblem& problem, const GemmShape& shape, const BlackwellTile& tile,
                    const GemmInputOptions& options = {.seed = 3, .padding = 5}) {
    SCOPED_TRACE(tile.name);
    CheckedGemm::expect_right(problem, shape, with_two_slots(tile), options);
  }
};

TEST_F(BlackwellQuantized, F32ScalesOfEachTile) {
  // The last tile has a part of its columns, and the last rows are no whole tile.
  expect_right(problem_of(DType::kBf16, DType::kE4m3, 384, 72, "gelu_tanh(alpha * acc + bias) + beta * c",
                          ", round=power_of_two"),
               {"", 203, true}, kWidePair);
  expect_right(problem_of(DType::kF16, DType::kE5m2, 256, 72, "relu(acc)"), {"", 75, true}, kWhole);
  expect_right(problem_of(DType::kE4m3, DType::kE4m3, 256, 272, "acc", "", ScaleKind::kPerBlock), {"", 75, true},
               kWhole);
}

TEST_F(BlackwellQuantized, F32ScalesWithPartsOfKAndStatistics) {
  GemmSchedule schedule = with_two_slots(kWhole);
  schedule.split_k = 2;
  CheckedGemm::expect_right(problem_of(DType::kBf16, DType::kE4m3, 256, 328, "silu(acc)"), {"", 70, true}, schedule);
  GemmProblem measured = problem_of(DType::kBf16, DType::kE4m3, 256, 328, "silu(rstd * acc)");
  measured.epilogue += "; amax = amax(x); squares = sum(x * x, over=n)";
  CheckedGemm::expect_right(measured, {"", 70, true}, with_two_slots(kWhole));
}

TEST_F(BlackwellQuantized, AreTheBitsOfThePortableKernel) {
  // Sums are exact, so that both kernels quantise the same values. A row of zeros, NaN and infinity are among them.
  for (const DType format : {DType::kE4m3, DType::kNvfp4}) {
    SCOPED_TRACE(to_string(format));
    GemmCase call = make_gemm_inputs(problem_of(DType::kBf16, format, 512, 64, "relu(gate) * up"), {"", 37, true},
                                     {.seed = 5, .exact = true});
    std::vector<float> row(64, 0.f);
    call.a.set_row(3, row);
    row[7] = std::numeric_limits<float>::quiet_NaN();
    call.a.set_row(12, row);
    row[7] = std::numeric_limits<float>::infinity();
    call.a.set_row(20, row);
    const GemmOutput output = run(call, with_two_slots(kWide));
    EXPECT_EQ(output, run(call, test::schedule_of({"", Family::kPortable, 16, 256, 0})));
  }
}

TEST_F(BlackwellQuantized, F32ScalesOfGroups) {
  const GemmShape shape = rows_of({130, 0, 17, 61}, 230);
  expect_right(grouped(problem_of(DType::kBf16, DType::kE4m3, 512, 72, kGates), GroupBounds::kEnds, 4), shape,
               kWidePair);
  const GemmShape masked = rows_of({42, 0, 17}, 126);
  expect_right(
      grouped(problem_of(DType::kE4m3, DType::kE4m3, 256, 144, "acc + c", ", round=power_of_two", ScaleKind::kPerBlock),
              GroupBounds::kCounts, 3),
      masked, kWholeCluster);
  expect_right(
      gathering(grouped(problem_of(DType::kE4m3, DType::kE4m3, 512, 144, "silu(gate) * up", "", ScaleKind::kPerToken),
                        GroupBounds::kStarts, 4)),
      from(shape, 90), kWide);
}

TEST_F(BlackwellQuantized, BlockScaledFormatsOfGates) {
  expect_right(problem_of(DType::kBf16, DType::kMxfp4, 576, 72, kGates, ", round=up"), {"", 203, true}, kWidePair);
  expect_right(problem_of(DType::kNvfp4, DType::kNvfp4, 576, 160, "silu(gate) * up", ", layout=rows"), {"", 75, true},
               kWide);
}

TEST_F(BlackwellQuantized, BlockScaledFormatsOfGroups) {
  // Groups begin beside multiples of 128, have whole atoms and parts of them, one row and none.
  const GemmShape shape = rows_of({130, 0, 1, 128, 61}, 350);
  for (const BlackwellTile& tile : {kWhole, kWholeCluster})
    expect_right(grouped(problem_of(DType::kBf16, tile.cluster.n == 1 ? DType::kMxfp8 : DType::kNvfp4, 288, 72, "acc"),
                         GroupBounds::kStarts, 5),
                 shape, tile);
  expect_right(
      grouped(problem_of(DType::kBf16, DType::kMxfp4, 576, 72, kGates, ", layout=rows"), GroupBounds::kEnds, 5), shape,
      kWidePair);
  expect_right(
      gathering(grouped(problem_of(DType::kE4m3, DType::kMxfp8, 576, 144, "silu(gate) * up", "", ScaleKind::kPerToken),
                        GroupBounds::kStarts, 5)),
      from(shape, 90), kWidePair);
}

TEST_F(BlackwellQuantized, BlockScaledFormatsOfMaskedGroups) {
  const GemmShape shape = rows_of({150, 0, 17}, 3 * 150);
  expect_right(grouped(problem_of(DType::kBf16, DType::kNvfp4, 576, 72, kGates), GroupBounds::kCounts, 3), shape,
               kWidePair);
}

TEST_F(BlackwellQuantized, BlockScaledFormatsOfManyGroups) {
  // More than two passes over the bounds count atoms.
  std::vector<int> rows(600, 0);
  rows[1] = 2, rows[300] = 129, rows[599] = 19;
  expect_right(grouped(problem_of(DType::kBf16, DType::kMxfp8, 32, 16, "acc"), GroupBounds::kStarts, 600),
               rows_of(rows, 155), kWhole);
}

TEST_F(BlackwellQuantized, FeedTheNextGemm) {
  GemmProblem first =
      grouped(problem_of(DType::kE4m3, DType::kE4m3, 512, 272, "silu(gate) * up", "", ScaleKind::kPerBlock),
              GroupBounds::kStarts, 3);
  GemmProblem second =
      grouped(gemm_problem(DType::kE4m3, DType::kBf16, 136, 256, "acc", ScaleKind::kPerBlock), GroupBounds::kStarts, 3);
  const GemmShape shape = rows_of({60, 0, 17}, 80);
  const GemmOutput middle = run(make_gemm_inputs(first, shape, {.seed = 3}), with_two_slots(kWhole));
  GemmCase call = make_gemm_inputs(second, shape, {.seed = 4});
  ASSERT_EQ(call.a.bytes.size(), middle.d.size());
  ASSERT_EQ(call.scale_a.size() * sizeof(float), middle.scale_d.size());
  call.a.bytes = middle.d;
  std::memcpy(call.scale_a.data(), middle.scale_d.data(), middle.scale_d.size());
  test::expect_right(call, run(call, schedule_of(kPair)));
}

TEST_F(BlackwellQuantized, GatesOfScaledBlocksTakeTwoTiles) {
  // As DeepSeek-V3's experts: the first tile's results wait in shared memory for those of the second.
  const GemmShape shape = rows_of({130, 0, 17, 61}, 230);
  for (const DType format : {DType::kE4m3, DType::kMxfp8}) {
    const GemmProblem dense = problem_of(DType::kE4m3, format, 768, 144, kGates, "", ScaleKind::kPerBlock);
    const bool blocks = format == DType::kMxfp8;
    expect_right(grouped(dense, GroupBounds::kStarts, 4), shape, blocks ? kWholeCluster : kWholePair);
    if (!blocks) expect_right(gathering(grouped(dense, GroupBounds::kStarts, 4)), from(shape, 90), kWhole);
  }
  GemmSchedule queued = with_two_slots(kWhole);
  queued.scheduler = Scheduler::kQueued, queued.clc_depth = 2;
  CheckedGemm::expect_right(problem_of(DType::kE4m3, DType::kE4m3, 768, 144, kGates, "", ScaleKind::kPerBlock),
                            {"", 203, true}, queued);
}

TEST_F(BlackwellQuantized, AsPlanned) {
  const GemmCase call = make_gemm_inputs(
      grouped(problem_of(DType::kBf16, DType::kMxfp8, 512, 64, "silu(gate) * up"), GroupBounds::kStarts, 3),
      rows_of({60, 3, 17}, 80), {.seed = 5});
  const GemmKernel kernel = engine_.prepare(call.problem);
  for (const GemmVariant& variant : kernel.plan().variants) EXPECT_EQ(variant.spec.family, Family::kBlackwell);
  test::expect_right(call, run(call, {}));
}

TEST_F(BlackwellQuantized, WhatIsMissingIsRefusedByName) {
  const auto refusal = [&](const GemmProblem& problem, const GemmSchedule& schedule) -> std::string {
    try {
      engine_.prepare(problem, schedule);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  GemmSchedule one_slab = with_two_slots(kWhole);
  one_slab.store_stages = 1;
  EXPECT_THAT(
      refusal(problem_of(DType::kE4m3, DType::kE4m3, 512, 272, "silu(gate) * up", "", ScaleKind::kPerBlock), one_slab),
      HasSubstr("/schedule/store_stages: 1: results of half of the columns that share a scale take 2; 2 would do"));
  GemmSchedule swapped = with_two_slots(kWhole);
  swapped.swap_ab = true;
  EXPECT_THAT(refusal(problem_of(DType::kBf16, DType::kE4m3, 512, 64, "acc"), swapped),
              HasSubstr("/schedule/swap_ab: true: columns of d that share a scale of e4m3 lie in lanes of a warp; "
                        "false would do"));
  EXPECT_THAT(refusal(problem_of(DType::kBf16, DType::kE4m3, 512, 64, "acc"), with_two_slots({"", 192})),
              HasSubstr("/schedule/block_n: 192 columns hold a part of the 128 that share a scale of d; 256 would do"));
}

}  // namespace
}  // namespace kernelwright::blackwell_quantized_test
