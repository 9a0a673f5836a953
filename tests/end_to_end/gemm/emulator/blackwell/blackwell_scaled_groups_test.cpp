// Groups of block-scaled operands in gemm_sm100 on the emulator, with every check on: scales in atoms that begin anew
// with each group, and results that feed the next GEMM. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "end_to_end/gemm/emulator/blackwell/blackwell_tiles.h"
#include "support/grouped_gemm.h"

namespace kernelwright::blackwell_scaled_groups_test {
namespace {

using namespace test::blackwell;
using test::from;
using test::gathering;
using test::gemm_problem;
using test::grouped;
using test::rows_of;
using testing::HasSubstr;

constexpr BlackwellTile kWhole = {"alone_128", 128}, kWide = {"alone_256", 256},
                        kWidePair = {"pair_256", 256, 2, {2, 1}}, kMiddle = {"pair_192", 192, 2, {2, 1}},
                        kMiddleAlone = {"alone_192", 192}, kNarrow = {"alone_16", 16},
                        kSwappedWide = {"swapped_64", 64, 1, {1, 1}, true},
                        kLargeCluster = {"cluster_4x2", 128, 2, {4, 2}};

GemmProblem problem_of(DType format, GroupBounds bounds, int count, int n = 200, int k = 416) {
  return grouped(gemm_problem(format, DType::kBf16, n, k, "acc", ScaleKind::kPerBlock), bounds, count);
}
GemmProblem quantised(DType format, GroupBounds bounds, int count, int n, int k) {
  const std::string epilogue = "x = silu(gate) * up; d = quantize(x, " + std::string(to_string(format)) +
                               ", per=token_group(" + std::to_string(scale_vector(format)) + "), scale=s)";
  return grouped(gemm_problem(format, format, n, k, epilogue.c_str(), ScaleKind::kPerBlock), bounds, count);
}
GemmSchedule with_two_slots(const BlackwellTile& tile) {
  GemmSchedule schedule = schedule_of(tile);
  schedule.stages = 2;
  return schedule;
}

class BlackwellScaledGroups : public test::CheckedBlackwellGemm {
 protected:
  BlackwellScaledGroups() : CheckedBlackwellGemm(emulator::Completion::kRandom) {}
  void expect_right(const GemmProblem& problem, const GemmShape& shape, const BlackwellTile& tile, int padding = 0) {
    SCOPED_TRACE(tile.name);
    CheckedGemm::expect_right(problem, shape, with_two_slots(tile), {.seed = 5, .padding = padding});
  }
};

// Groups begin beside multiples of 128, have more than whole atoms, one row and none.
const GemmShape kShape = rows_of({130, 0, 17, 1, 150}, 330);

TEST_F(BlackwellScaledGroups, OfEachFormatAndTile) {
  expect_right(problem_of(DType::kMxfp8, GroupBounds::kEnds, 5), kShape, kLargeCluster);
  expect_right(problem_of(DType::kMxfp4, GroupBounds::kStarts, 5), kShape, kMiddle, 3);
  expect_right(problem_of(DType::kNvfp4, GroupBounds::kStarts, 5), kShape, kWidePair);
  expect_right(problem_of(DType::kNvfp4, GroupBounds::kEnds, 5), kShape, kAlone);
}

TEST_F(BlackwellScaledGroups, ThreadsCopyScalesOfNarrowTiles) {
  expect_right(problem_of(DType::kMxfp8, GroupBounds::kStarts, 5), kShape, kNarrow);
  expect_right(problem_of(DType::kMxfp4, GroupBounds::kStarts, 5), kShape, kSwapped);
  expect_right(problem_of(DType::kMxfp8, GroupBounds::kStarts, 5), kShape, kSwappedWide);
}

TEST_F(BlackwellScaledGroups, OfMaskedRows) {
  const GemmShape shape = rows_of({150, 0, 17}, 3 * 150);
  for (const BlackwellTile& tile : {kWidePair, kSwapped})
    expect_right(problem_of(DType::kNvfp4, GroupBounds::kCounts, 3), shape, tile);
}

TEST_F(BlackwellScaledGroups, WithEpiloguesAndScatter) {
  GemmProblem problem = problem_of(DType::kMxfp8, GroupBounds::kStarts, 5);
  problem.epilogue = "silu(alpha * acc + bias) + beta * c";
  problem.groups.scatter = true;
  GemmShape shape = kShape;
  shape.result_rows = 400;
  expect_right(problem, shape, kSwapped);
}

TEST_F(BlackwellScaledGroups, GatherRowsAndTheirScales) {
  for (const BlackwellTile& tile : {kMiddleAlone, kSwapped, kSwappedWide}) {
    const bool masked = tile.block_n == 64;
    expect_right(gathering(problem_of(tile.swap_ab ? DType::kNvfp4 : DType::kMxfp8,
                                      masked ? GroupBounds::kCounts : GroupBounds::kStarts, masked ? 3 : 5)),
                 from(masked ? rows_of({150, 0, 17}, 3 * 150) : kShape, 140), tile);
  }
}

TEST_F(BlackwellScaledGroups, GatherFromNothing) {
  GemmCase call = make_gemm_inputs(gathering(problem_of(DType::kMxfp8, GroupBounds::kStarts, 2)),
                                   from(rows_of({20, 30}, 50), 8), {.seed = 5});
  std::fill(call.gather.begin(), call.gather.end(), -1);
  test::expect_right(call, run(call, with_two_slots(kWhole),
                               [](GemmTensors& tensors) { tensors.a = tensors.scale_a = 0, tensors.source_rows = 0; }));
}

TEST_F(BlackwellScaledGroups, OfExactInputs) {
  CheckedGemm::expect_right(problem_of(DType::kNvfp4, GroupBounds::kStarts, 5), kShape, with_two_slots(kSwapped),
                            {.seed = 2, .exact = true});
}

TEST_F(BlackwellScaledGroups, WithoutKTheEpilogueIsOfZeros) {
  GemmProblem none = problem_of(DType::kMxfp8, GroupBounds::kStarts, 3, 72, 0);
  none.epilogue = "acc + bias";
  expect_right(none, rows_of({33, 0, 9}, 50), kAlone);
}

TEST_F(BlackwellScaledGroups, ManyMoreThanThreads) {
  std::vector<int> rows(600, 0);
  rows[1] = 2, rows[300] = 129, rows[599] = 19;
  expect_right(problem_of(DType::kMxfp8, GroupBounds::kStarts, 600, 16, 32), rows_of(rows, 155), kAlone);
}

/// The second GEMM takes what the first one made, of experts' gates, as it is.
TEST_F(BlackwellScaledGroups, ResultsFeedTheNextGemm) {
  for (const DType format : {DType::kMxfp8, DType::kNvfp4}) {
    SCOPED_TRACE(to_string(format));
    const bool masked = format == DType::kNvfp4;
    const GroupBounds bounds = masked ? GroupBounds::kCounts : GroupBounds::kStarts;
    const GemmShape shape = masked ? rows_of({150, 0, 17}, 3 * 150) : rows_of({130, 0, 17}, 160);
    GemmProblem gates = quantised(format, bounds, 3, 576, 160);
    gates.groups.gather = !masked;
    GemmCase first = make_gemm_inputs(gates, masked ? shape : from(shape, 90), {.seed = 3});
    const GemmOutput middle = run(first, with_two_slots(masked ? kWidePair : kWide));
    test::expect_right(first, middle);
    GemmProblem down = problem_of(format, bounds, 3, 136, 288);
    down.epilogue = "alpha * acc";
    GemmCase second = make_gemm_inputs(down, shape, {.seed = 4});
    ASSERT_EQ(second.a.bytes.size(), middle.d.size());
    ASSERT_EQ(second.a.scales.size(), middle.scale_d.size());
    second.a.bytes = middle.d, second.a.scales = middle.scale_d;
    second.alpha = first.tensor_scale;  // undoes the division
    test::expect_right(second, run(second, with_two_slots(masked ? kSwapped : kWhole)));
  }
}

TEST_F(BlackwellScaledGroups, LaunchesOfTooFewAtomsARowAreRefused) {
  const GemmCase call = make_gemm_inputs(problem_of(DType::kMxfp8, GroupBounds::kStarts, 5), kShape);
  const auto refusal = [&](const test::TensorChange& change) -> std::string {
    GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, with_two_slots(kAlone)));
    change(on_device.tensors());
    try {
      on_device.launch();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(
      refusal([](GemmTensors& t) { t.scale_a_stride = 3; }),
      HasSubstr("/scale_a_stride: 3 is less than the 4 atoms of scales, of 128 elements each, that k = 416 has"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.scale_b = 0; }), HasSubstr("/scale_b: is null"));
}

}  // namespace
}  // namespace kernelwright::blackwell_scaled_groups_test
