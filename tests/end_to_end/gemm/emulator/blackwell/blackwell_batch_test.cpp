// Batches, and groups of kind k, in gemm_sm100 on the emulator, with every check on: each group against the dense
// product of its operands. Rows of no slice of k are NaN. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "end_to_end/gemm/emulator/blackwell/blackwell_tiles.h"

namespace kernelwright::blackwell_batch_test {
namespace {

using namespace test::blackwell;
using test::gemm_problem;
using testing::HasSubstr;

constexpr BlackwellTile kWhole = {"alone_128", 128}, kWide = {"pair_256", 256, 2, {2, 1}},
                        kWidePair = {"pair_128", 128, 2, {2, 1}}, kSwappedWide = {"swapped_64", 64, 1, {1, 1}, true};

GemmProblem batched(GemmProblem problem, int count) {
  problem.groups.kind = GroupKind::kBatch;
  problem.groups.count = count;
  return problem;
}
GemmProblem plain(int count, int n = 72, int k = 104) {
  return batched(gemm_problem(DType::kBf16, DType::kBf16, n, k), count);
}

class BlackwellBatch : public test::CheckedBlackwellGemm {
 protected:
  BlackwellBatch() : CheckedBlackwellGemm(emulator::Completion::kRandom) {}
  /// Twice: groups behind each other, and side by side. Both give the same bits.
  void expect_right(const GemmProblem& problem, int rows, const GemmSchedule& schedule, int padding = 0) {
    const GemmShape shape{"batch", rows * problem.groups.count, true};
    GemmCase call = make_gemm_inputs(problem, shape, {.seed = 5, .padding = padding});
    const GemmOutput behind = run(call, schedule);
    test::expect_right(call, behind);
    call.side_by_side = true;
    EXPECT_EQ(run(call, schedule), behind) << "groups side by side";
  }
  void expect_right(const GemmProblem& problem, int rows, const BlackwellTile& tile, int padding = 0) {
    SCOPED_TRACE(std::string(tile.name) + " " + std::to_string(rows));
    expect_right(problem, rows, schedule_of(tile), padding);
  }
};

TEST_F(BlackwellBatch, RowsBesideMultiplesOfATile) {
  for (const BlackwellTile& tile : {kPair, kCluster, kSwapped})
    for (const int rows : {17, 130}) expect_right(plain(3), rows, tile, 3);
}

TEST_F(BlackwellBatch, OfOneGroupIsTheDenseProductToTheBit) {
  const GemmCase call = make_gemm_inputs(plain(1, 136, 200), {"batch", 150, true}, {.seed = 3});
  EXPECT_EQ(run(call, schedule_of(kPair)), run(call.dense_group(0), schedule_of(kPair)));
}

TEST_F(BlackwellBatch, OfMoreGroupsThanCtasAndTilesOfAQueue) {
  expect_right(plain(70, 16, 16), 3, kSwapped);
  GemmSchedule queued = schedule_of(kPair);
  queued.scheduler = Scheduler::kQueued, queued.clc_depth = 2;
  expect_right(plain(5), 300, queued);
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
  GemmProblem problem = plain(3);
  problem.epilogue = "silu(alpha * acc + bias) + beta * c";
  problem.dtype.d = DType::kF32;
  problem.layout = OperandLayout::kNn;
  for (const BlackwellTile& tile : {kCluster, kSwapped}) expect_right(problem, 21, tile, 2);
}

TEST_F(BlackwellBatch, OfGatesAndQuantisedResults) {
  GemmProblem problem = plain(2, 512, 104);
  problem.epilogue = "silu(gate) * up";
  expect_right(problem, 21, kSwapped);
  problem.dtype.d = DType::kE4m3;
  problem.epilogue = "d = quantize(silu(gate) * up, e4m3, per=token_group(128), scale=s)";
  expect_right(problem, 21, kWide);
}

TEST_F(BlackwellBatch, WithoutKTheEpilogueIsOfZeros) {
  GemmProblem problem = plain(3, 72, 0);
  problem.epilogue = "acc + bias";
  expect_right(problem, 9, kAlone);
}

TEST_F(BlackwellBatch, WeightsMayComeEarlyAndSmsMayBeFew) {
  const GemmCase call = make_gemm_inputs(plain(3), {"batch", 3 * 20, true}, {.seed = 3});
  const GemmOutput all = run(call, schedule_of(kPair));
  test::expect_right(call, all);
  EXPECT_EQ(run(call, schedule_of(kPair), [](GemmTensors& t) { t.pdl = t.constant_b = true; }), all);
  EXPECT_EQ(run(call, schedule_of(kPair), [](GemmTensors& t) { t.sm_budget = 2; }), all);
}

GemmProblem sliced(int count, int n = 72, GroupBounds bounds = GroupBounds::kStarts) {
  GemmProblem problem = gemm_problem(DType::kBf16, DType::kBf16, n, 64);
  problem.layout = OperandLayout::kTn;
  problem.groups.kind = GroupKind::kK;
  problem.groups.count = count;
  problem.groups.bounds = bounds;
  return problem;
}
GemmShape slices_of(std::vector<int> group_rows, int rows_of_d, int rows) {
  GemmShape shape{"slices", rows_of_d * static_cast<int>(group_rows.size()), true};
  shape.group_rows = std::move(group_rows);
  shape.source_rows = rows;
  return shape;
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
  GemmCase call = make_gemm_inputs(sliced(2), slices_of({0, 0}, 24, 16), {.seed = 5});
  std::fill(call.bounds.begin(), call.bounds.end(), 0);
  const GemmOutput output = run(call, schedule_of(kWhole), [](GemmTensors& t) { t.a = t.b = 0, t.source_rows = 0; });
  EXPECT_TRUE(std::all_of(output.d.begin(), output.d.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(BlackwellSlices, AddToGradientsInF32) {
  GemmProblem problem = sliced(3);
  problem.dtype.d = problem.dtype.c = DType::kF32;
  problem.epilogue = "alpha * acc + beta * c";
  const GemmCase call = make_gemm_inputs(problem, slices_of({20, 0, 70}, 40, 90), {.seed = 5});
  const GemmOutput apart = run(call, schedule_of(kWidePair));
  test::expect_right(call, apart);
  GemmDeviceCase in_place(engine_.device(0), call, engine_.prepare(problem, schedule_of(kWidePair)));
  in_place.accumulate_in_place();
  in_place.poison();
  in_place.launch();
  EXPECT_EQ(in_place.download(), apart);
  test::expect_no_reports(engine_);
}

TEST_F(BlackwellSlices, AResultDependsNeitherOnTheSmsNorOnOtherSlices) {
  GemmCase call = make_gemm_inputs(sliced(3), slices_of({50, 60, 70}, 136, 200), {.seed = 3});
  const GemmOutput all = run(call, schedule_of(kWidePair));
  EXPECT_EQ(run(call, schedule_of(kWidePair), [](GemmTensors& tensors) { tensors.sm_budget = 2; }), all);
  call.bounds[1] = call.bounds[0];  // the first slice is empty, and the second one longer
  const GemmOutput changed = run(call, schedule_of(kWidePair));
  test::expect_right(call, changed);
  const auto last = static_cast<std::ptrdiff_t>(all.d.size() / 3 * 2);
  EXPECT_TRUE(std::equal(all.d.begin() + last, all.d.end(), changed.d.begin() + last));
}

TEST_F(BlackwellSlices, BadBoundsSetTheStatusAndWriteNothing) {
  const std::vector<std::int32_t> cases[] = {{0, 20, 10, 40}, {-1, 20, 30, 40}, {0, 20, 30, 61}};
  for (const std::vector<std::int32_t>& bounds : cases) {
    SCOPED_TRACE(testing::PrintToString(bounds));
    const GemmCase call = make_gemm_inputs(sliced(3), slices_of({20, 10, 15}, 24, 60), {.seed = 5});
    GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, schedule_of(kWhole)));
    engine_.device(0).copy_to_device(on_device.tensors().bounds, bounds.data(), bounds.size() * 4);
    on_device.poison();
    const GemmOutput before = on_device.download();
    on_device.launch();
    EXPECT_EQ(on_device.download(), before);
    EXPECT_TRUE(on_device.guards_are_intact());
    EXPECT_EQ(on_device.status(), 1);
    test::expect_no_reports(engine_);
  }
}

}  // namespace
}  // namespace kernelwright::blackwell_batch_test
