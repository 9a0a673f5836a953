// Batches, and groups of kind k, in gemm_sm100 on the emulator, with every check on: each group against the dense
// product of its operands. Rows of no slice of k are NaN. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "end_to_end/gemm/emulator/blackwell/blackwell_tiles.h"
#include "support/grouped_gemm.h"

namespace kernelwright::blackwell_batch_test {
namespace {

using namespace test::blackwell;
using test::batched;
using test::gemm_problem;
using test::plain_batch;
using test::sliced;
using test::slices_of;
using testing::HasSubstr;

constexpr BlackwellTile kWhole = {"alone_128", 128}, kWide = {"pair_256", 256, 2, {2, 1}},
                        kWidePair = {"pair_128", 128, 2, {2, 1}}, kSwappedWide = {"swapped_64", 64, 1, {1, 1}, true};

class BlackwellBatch : public test::CheckedBlackwellGemm {
 protected:
  BlackwellBatch() : CheckedBlackwellGemm(emulator::Completion::kRandom) {}
  void expect_right(const GemmProblem& problem, int rows, const GemmSchedule& schedule, int padding = 0) {
    test::expect_batch_right(engine_, problem, rows, schedule, padding);
  }
  void expect_right(const GemmProblem& problem, int rows, const BlackwellTile& tile, int padding = 0) {
    SCOPED_TRACE(std::string(tile.name) + " " + std::to_string(rows));
    expect_right(problem, rows, schedule_of(tile), padding);
  }
};

TEST_F(BlackwellBatch, RowsBesideMultiplesOfATile) {
  for (const BlackwellTile& tile : {kPair, kCluster, kSwapped})
    for (const int rows : {17, 130}) expect_right(plain_batch(3), rows, tile, 3);
}

TEST_F(BlackwellBatch, OfOneGroupIsTheDenseProductToTheBit) {
  const GemmCase call = make_gemm_inputs(plain_batch(1, 136, 200), {"batch", 150, true}, {.seed = 3});
  EXPECT_EQ(run(call, schedule_of(kPair)), run(call.dense_group(0), schedule_of(kPair)));
}

TEST_F(BlackwellBatch, OfMoreGroupsThanCtasAndTilesOfAQueue) {
  expect_right(plain_batch(70, 16, 16), 3, kSwapped);
  GemmSchedule queued = schedule_of(kPair);
  queued.scheduler = Scheduler::kQueued, queued.clc_depth = 2;
  expect_right(plain_batch(5), 300, queued);
}

TEST_F(BlackwellBatch, OfScaledOperands) {
  for (const BlackwellTile& tile : {kPair, kSwapped})
    for (const ScaleKind scales : {ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock}) {
      if (scales == ScaleKind::kPerTensor && tile.swap_ab) continue;
      expect_right(batched(gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", scales), 3), 42, tile, 4);
    }
}

TEST_F(BlackwellBatch, AndGroupsOfTf32) {
  GemmProblem rows = gemm_problem(DType::kTf32, DType::kF32, 72, 104);
  rows.groups = {GroupKind::kRows, 3};
  GemmShape shape{"rows", 160, true};
  shape.group_rows = {130, 0, 17};
  CheckedGemm::expect_right(rows, shape, schedule_of(kAlone));
  expect_right(batched(gemm_problem(DType::kTf32, DType::kF32, 72, 104), 3), 130, kAlone, 3);
}

TEST_F(BlackwellBatch, OfBlockScaledOperands) {
  const auto of = [](DType format) {
    return batched(gemm_problem(format, DType::kBf16, 72, 416, "acc", ScaleKind::kPerBlock), 3);
  };
  expect_right(of(DType::kMxfp8), 130, kAlone, 3);
  expect_right(of(DType::kNvfp4), 21, kSwapped, 3);
}

TEST_F(BlackwellBatch, WithEpiloguesAndColumnsInnermost) {
  GemmProblem problem = plain_batch(3);
  problem.epilogue = "silu(alpha * acc + bias) + beta * c";
  problem.dtype.d = DType::kF32;
  problem.layout = OperandLayout::kNn;
  for (const BlackwellTile& tile : {kCluster, kSwapped}) expect_right(problem, 21, tile, 2);
}

TEST_F(BlackwellBatch, OfGatesAndQuantisedResults) {
  GemmProblem problem = plain_batch(2, 512, 104);
  problem.epilogue = "silu(gate) * up";
  expect_right(problem, 21, kSwapped);
  problem.dtype.d = DType::kE4m3;
  problem.epilogue = "d = quantize(silu(gate) * up, e4m3, per=token_group(128), scale=s)";
  expect_right(problem, 21, kWide);
}

TEST_F(BlackwellBatch, WithoutKTheEpilogueIsOfZeros) {
  GemmProblem problem = plain_batch(3, 72, 0);
  problem.epilogue = "acc + bias";
  expect_right(problem, 9, kAlone);
}

TEST_F(BlackwellBatch, WeightsMayComeEarlyAndSmsMayBeFew) {
  const GemmCase call = make_gemm_inputs(plain_batch(3), {"batch", 3 * 20, true}, {.seed = 3});
  const GemmOutput all = run(call, schedule_of(kPair));
  test::expect_right(call, all);
  EXPECT_EQ(run(call, schedule_of(kPair), [](GemmTensors& t) { t.pdl = t.constant_b = true; }), all);
  EXPECT_EQ(run(call, schedule_of(kPair), [](GemmTensors& t) { t.sm_budget = 2; }), all);
}

class BlackwellSlices : public test::CheckedBlackwellGemm {
 protected:
  BlackwellSlices() : CheckedBlackwellGemm(emulator::Completion::kRandom) {}
};

TEST_F(BlackwellSlices, OfAnyLength) {
  const std::vector<int> lengths{0, 1, 63, 0, 64, 65, 7, 130, 0};
  for (const BlackwellTile& tile : {kWhole, kWide, kSwappedWide})
    expect_each_right(sliced(9, 72, tile.swap_ab ? GroupBounds::kEnds : GroupBounds::kStarts),
                      slices_of(lengths, 40, 350), tile, 3);
}

TEST_F(BlackwellSlices, OfTilesBesideMultiples) {
  for (const int rows_of_d : {8, 136})
    expect_each_right(sliced(3, 200), slices_of({20, 70, 5}, rows_of_d, 100), kWidePair);
}

TEST_F(BlackwellSlices, InGroupsOfSlotsAndNarrowStrips) {
  GemmSchedule schedule = schedule_of(kWhole);
  schedule.k_group = 2;
  const GemmCase call = make_gemm_inputs(sliced(4), slices_of({64, 100, 128, 30}, 64, 330), {.seed = 5});
  test::expect_right(call, run(call, schedule));
  schedule.swizzle = Swizzle::k64B;
  test::expect_right(call, run(call, schedule));
}

TEST_F(BlackwellSlices, WithoutRowsTheEpilogueIsOfZeros) {
  GemmProblem problem = sliced(2);
  problem.epilogue = "acc + bias";
  expect_each_right(problem, slices_of({0, 0}, 24, 16), kWhole);
  test::expect_zeros_without_rows(engine_, schedule_of(kWhole));
}

TEST_F(BlackwellSlices, AddToGradientsInF32) { test::expect_slices_add_to_gradients(engine_, schedule_of(kWidePair)); }

TEST_F(BlackwellSlices, AResultDependsNeitherOnTheSmsNorOnOtherSlices) {
  test::expect_slices_stand_alone(engine_, schedule_of(kWidePair), 2);
}

TEST_F(BlackwellSlices, BadBoundsSetTheStatusAndWriteNothing) {
  test::expect_bad_slices_are_refused(engine_, schedule_of(kWhole));
}

}  // namespace
}  // namespace kernelwright::blackwell_batch_test
