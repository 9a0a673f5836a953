// Groups of rows in gemm_sm100 on the emulator, with every check on: each group against the dense product of its rows
// and its matrix. Rows of no group hold NaN, and must stay as they are. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "end_to_end/gemm/emulator/blackwell/blackwell_tiles.h"
#include "kernelwright/generator/gemm/planner.h"
#include "support/grouped_gemm.h"

namespace kernelwright::blackwell_groups_test {
namespace {

using namespace test::blackwell;
using test::from;
using test::gathering;
using test::gemm_problem;
using test::grouped;
using test::rows_of;
using testing::HasSubstr;

GemmProblem plain(GroupBounds bounds, int count, int n = 200, int k = 104) {
  return grouped(gemm_problem(DType::kBf16, DType::kBf16, n, k), bounds, count);
}
GemmProblem scaled(ScaleKind scales, GroupBounds bounds, int count) {
  return grouped(gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", scales), bounds, count);
}

class BlackwellGroups : public test::CheckedBlackwellGemm {};

TEST_F(BlackwellGroups, EmptyOnesAndUnalignedStarts) {
  const GemmShape shape = rows_of({0, 17, 1, 0, 170, 15, 0}, 220);
  for (const BlackwellTile& tile : kTiles) expect_each_right(plain(GroupBounds::kStarts, 7), shape, tile, 3);
  for (const BlackwellTile& tile : {kPair, kSwapped}) expect_each_right(plain(GroupBounds::kEnds, 7), shape, tile, 3);
}

TEST_F(BlackwellGroups, MaskedRowsOfCapacity) {
  for (const BlackwellTile& tile : {kCluster, kSwapped})
    expect_each_right(plain(GroupBounds::kCounts, 5), rows_of({0, 17, 40, 1, 33}, 200), tile);
}

TEST_F(BlackwellGroups, RowsBesideMultiplesOfATile) {
  for (const BlackwellTile& tile : {kAlone, kSwapped})
    for (const int rows : {31, 32, 33, 127, 128, 129})
      expect_each_right(plain(GroupBounds::kStarts, 2, 72, 64), rows_of({rows, 5}, rows + 9), tile);
}

TEST_F(BlackwellGroups, ManyOfOneRowAndNoneAtAll) {
  for (const BlackwellTile& tile : {kPair, kSwapped}) {
    expect_each_right(plain(GroupBounds::kStarts, 200, 64, 64), rows_of(std::vector<int>(200, 1), 203), tile);
    expect_each_right(plain(GroupBounds::kEnds, 9, 64, 64), rows_of(std::vector<int>(9, 0), 30), tile);
  }
}

TEST_F(BlackwellGroups, ManyMoreThanThreads) {
  // More than two passes over the bounds, and the last group alone has many rows.
  std::vector<int> rows(600, 0);
  rows[1] = 2, rows[300] = 1, rows.back() = 19;
  for (const BlackwellTile& tile : {kAlone, kSwapped})
    expect_each_right(plain(GroupBounds::kStarts, 600, 16, 16), rows_of(rows, 25), tile);
}

TEST_F(BlackwellGroups, OfScaledOperands) {
  for (const BlackwellTile& tile : {kPair, kSwapped})
    for (const ScaleKind scales : {ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock})
      for (const GroupBounds bounds : {GroupBounds::kStarts, GroupBounds::kCounts}) {
        if (bounds == GroupBounds::kCounts && scales != ScaleKind::kPerBlock) continue;  // which lie otherwise
        expect_each_right(scaled(scales, bounds, 4), rows_of({21, 0, 40, 3}, 4 * 43), tile, 4);
      }
}

TEST_F(BlackwellGroups, WithEpilogues) {
  for (const BlackwellTile& tile : {kPair, kSwapped})
    for (const DType result : {DType::kBf16, DType::kF32}) {
      GemmProblem problem = plain(GroupBounds::kStarts, 3);
      problem.epilogue = "silu(alpha * acc + bias) + beta * c";
      problem.dtype.d = result;
      expect_each_right(problem, rows_of({33, 2, 9}, 50), tile, 2);
    }
}

TEST_F(BlackwellGroups, OfResultsOf8Bits) {
  for (const BlackwellTile& tile : {kAlone, kSwapped}) {
    GemmProblem problem = plain(GroupBounds::kStarts, 3, 80);
    problem.dtype.d = DType::kE4m3;
    expect_each_right(problem, rows_of({33, 2, 9}, 50), tile);
  }
}

TEST_F(BlackwellGroups, OfMatricesWithColumnsInnermost) {
  for (const BlackwellTile& tile : {kCluster, kSwappedCluster}) {
    GemmProblem problem = plain(GroupBounds::kStarts, 3);
    problem.layout = OperandLayout::kNn;
    expect_each_right(problem, rows_of({33, 2, 9}, 50), tile, 3);
  }
}

TEST_F(BlackwellGroups, WithoutKTheEpilogueIsOfZeros) {
  const GemmProblem none =
      grouped(gemm_problem(DType::kBf16, DType::kBf16, 72, 0, "acc + bias"), GroupBounds::kStarts, 3);
  for (const BlackwellTile& tile : {kAlone, kSwapped}) expect_each_right(none, rows_of({33, 0, 9}, 50), tile);
  expect_each_right(
      grouped(gemm_problem(DType::kE4m3, DType::kBf16, 80, 0, "acc", ScaleKind::kPerBlock), GroupBounds::kStarts, 3),
      rows_of({33, 0, 9}, 50), kAlone);
}

TEST_F(BlackwellGroups, OneIsTheDenseProductToTheBit) {
  for (const BlackwellTile& tile : {kPair, kSwapped}) {
    SCOPED_TRACE(tile.name);
    const GemmCase call = make_gemm_inputs(plain(GroupBounds::kEnds, 1, 136, 200), rows_of({150}, 150), {.seed = 3});
    EXPECT_EQ(run(call, schedule_of(tile)), run(call.dense_group(0), schedule_of(tile)));
  }
}

TEST_F(BlackwellGroups, AResultDoesNotDependOnTheSmsOrOnOtherGroups) {
  const GemmProblem problem = plain(GroupBounds::kStarts, 3);
  for (const BlackwellTile& tile : {kPair, kSwapped}) {
    SCOPED_TRACE(tile.name);
    const GemmCase call = make_gemm_inputs(problem, rows_of({80, 30, 50}, 170), {.seed = 3});
    const GemmOutput all = run(call, schedule_of(tile));
    EXPECT_EQ(run(call, schedule_of(tile), [](GemmTensors& tensors) { tensors.sm_budget = 2; }), all);
    GemmCase others = call;
    std::memset(others.a.row(others.bounds[0]), 0x41, static_cast<std::size_t>(problem.k) * 2);
    const GemmOutput changed = run(others, schedule_of(tile));
    const auto behind = static_cast<std::ptrdiff_t>(call.bounds[1]) * problem.n * 2;
    EXPECT_TRUE(std::equal(all.d.begin() + behind, all.d.end(), changed.d.begin() + behind));
    EXPECT_NE(changed, all);
  }
}

TEST_F(BlackwellGroups, GatherRows) {
  // Rows of a are read several times, or not at all. Some rows of d are made of none.
  const GemmShape shape = rows_of({0, 17, 170, 1, 40}, 250);
  for (const BlackwellTile& tile : {kPair, kSwappedPair})
    for (const int sources : {9, 300})
      expect_each_right(gathering(plain(GroupBounds::kStarts, 5)), from(shape, sources), tile, 3);
  for (const BlackwellTile& tile : {kAlone, kSwapped})
    expect_each_right(gathering(plain(GroupBounds::kCounts, 3)), from(rows_of({0, 17, 40}, 150), 60), tile);
}

TEST_F(BlackwellGroups, GatherScaledRows) {
  for (const BlackwellTile& tile : {kPair, kSwapped})
    for (const ScaleKind scales : {ScaleKind::kPerToken, ScaleKind::kPerBlock})
      expect_each_right(gathering(scaled(scales, GroupBounds::kStarts, 4)), from(rows_of({21, 0, 70, 3}, 100), 45),
                        tile, 4);
}

TEST_F(BlackwellGroups, GatherStripsOfNarrowSwizzles) {
  for (const Swizzle swizzle : {Swizzle::k64B, Swizzle::k32B}) {
    GemmSchedule schedule = schedule_of(kAlone);
    schedule.swizzle = swizzle, schedule.k_group = 2;
    expect_right(gathering(plain(GroupBounds::kStarts, 3)), from(rows_of({17, 0, 40}, 60), 30), schedule);
  }
}

TEST_F(BlackwellGroups, GatherNothing) {
  for (const BlackwellTile& tile : {kPair, kSwapped}) {
    expect_each_right(gathering(plain(GroupBounds::kStarts, 3, 72, 0)), from(rows_of({33, 0, 9}, 50), 20), tile);
    GemmCase call =
        make_gemm_inputs(gathering(plain(GroupBounds::kStarts, 2)), from(rows_of({20, 30}, 50), 8), {.seed = 5});
    std::fill(call.gather.begin(), call.gather.end(), -1);
    test::expect_right(call, run(call, schedule_of(tile)));
    test::expect_right(call, run(call, schedule_of(tile), [](GemmTensors& tensors) {
                         tensors.a = tensors.scale_a = 0, tensors.source_rows = 0;
                       }));
  }
}

TEST_F(BlackwellGroups, IndicesPastTheSourceAreRowsOfZeros) {
  for (const BlackwellTile& tile : {kPair, kSwapped}) {
    SCOPED_TRACE(tile.name);
    test::expect_zeros_past_the_source(engine_, gathering(plain(GroupBounds::kStarts, 2)), schedule_of(tile));
  }
}

/// Bounds that the launch is given instead of those of the inputs.
struct Bad {
  GroupBounds kind;
  std::vector<std::int32_t> bounds;
};

TEST_F(BlackwellGroups, BadBoundsSetTheStatusAndWriteNothing) {
  const Bad cases[] = {
      {GroupBounds::kStarts, {0, 20, 10, 40}}, {GroupBounds::kStarts, {0, 20, 30, 61}},
      {GroupBounds::kEnds, {-5, 10, 40}},      {GroupBounds::kCounts, {20, 21, 3}},
      {GroupBounds::kCounts, {20, -1, 3}},
  };
  for (const BlackwellTile& tile : {kPair, kSwapped})
    for (const Bad& bad : cases) {
      SCOPED_TRACE(std::string(tile.name) + " " + testing::PrintToString(bad.bounds));
      test::expect_bad_bounds_are_refused(engine_, plain(bad.kind, 3), schedule_of(tile), bad.bounds);
    }
}

TEST_F(BlackwellGroups, AsPlanned) {
  for (const auto& [m, rows] : {std::pair<int, std::vector<int>>{30, {3, 0, 9, 1}}, {900, {300, 5, 400, 80}}}) {
    const GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 4, 264), rows_of(rows, m), {.seed = 5});
    const GemmKernel kernel = engine_.prepare(call.problem);
    EXPECT_EQ(kernel.plan().variants.front().spec.family, Family::kBlackwell);
    EXPECT_EQ(kernel.plan().variants.back().spec.family, Family::kBlackwell);
    test::expect_right(call, run(call, {}));
  }
}

/// Machines on which copies land, and warps run, in another order.
class BlackwellGroupsInAnyOrder : public test::CheckedBlackwellGemm {
 protected:
  BlackwellGroupsInAnyOrder() : CheckedBlackwellGemm(emulator::Completion::kRandom) {}
};

TEST_F(BlackwellGroupsInAnyOrder, AreRight) {
  const GemmShape shape = rows_of({21, 0, 200, 3}, 230);
  const GemmProblem problem = scaled(ScaleKind::kPerBlock, GroupBounds::kStarts, 4);
  for (const BlackwellTile& tile : kTiles) expect_each_right(problem, shape, tile, 4);
  for (const BlackwellTile& tile : {kPair, kSwapped}) expect_each_right(gathering(problem), from(shape, 60), tile, 4);
}

}  // namespace
}  // namespace kernelwright::blackwell_groups_test
