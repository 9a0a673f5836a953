// GEMMs of groups on the emulator, with every check on: each group against the dense product of its rows and its
// matrix. Rows of no group hold NaN, and must stay as they are. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "kernelwright/verify/formats/float_formats.h"
#include "support/grouped_gemm.h"

namespace kernelwright::gemm_groups_test {
namespace {

using test::from;
using test::gathering;
using test::gemm_problem;
using test::grouped;
using test::rows_of;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

class GemmGroups : public test::CheckedGemm {};

GemmProblem plain(GroupBounds bounds, int count, int n = 72, int k = 104) {
  return grouped(gemm_problem(DType::kBf16, DType::kBf16, n, k), bounds, count);
}

TEST_F(GemmGroups, EmptyOnesAndUnalignedStarts) {
  for (const Tile& tile : test::kGroupTiles)
    for (const GroupBounds bounds : {GroupBounds::kStarts, GroupBounds::kEnds})
      expect_right(plain(bounds, 7), rows_of({0, 17, 1, 0, 70, 15, 0}, 120), tile, 3);
}

TEST_F(GemmGroups, MaskedRowsOfCapacity) {
  for (const Tile& tile : test::kGroupTiles)
    expect_right(plain(GroupBounds::kCounts, 5), rows_of({0, 17, 40, 1, 33}, 200), tile);
}

TEST_F(GemmGroups, RowsBesideMultiplesOfATile) {
  for (const Tile& tile : test::kGroupTiles)
    for (const int rows : {15, 16, 17, 63, 64, 65})
      expect_right(plain(GroupBounds::kStarts, 2, 40, 64), rows_of({rows, 5}, rows + 9), tile);
}

TEST_F(GemmGroups, ManyOfOneRowAndNoneAtAll) {
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[3]}) {
    expect_right(plain(GroupBounds::kStarts, 200, 64, 64), rows_of(std::vector<int>(200, 1), 203), tile);
    expect_right(plain(GroupBounds::kEnds, 9), rows_of(std::vector<int>(9, 0), 30), tile);
  }
}

TEST_F(GemmGroups, ManyMoreThanThreads) {
  // More than a pass over the bounds, and the last group alone has rows.
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[3]}) {
    std::vector<int> rows(600, 0);
    rows[1] = 2, rows[300] = 1, rows.back() = 19;
    expect_right(plain(GroupBounds::kStarts, 600, 16, 16), rows_of(rows, 25), tile);
  }
}

TEST_F(GemmGroups, AllRowsInOne) {
  for (const Tile& tile : test::kGroupTiles)
    expect_right(plain(GroupBounds::kStarts, 4), rows_of({0, 0, 130, 0}, tile.swap_ab ? 130 : 1300), tile);
}

TEST_F(GemmGroups, OfScaledOperands) {
  for (const Tile& tile : test::kGroupTiles)
    for (const ScaleKind scales : {ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock}) {
      const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", scales);
      for (const GroupBounds bounds : {GroupBounds::kStarts, GroupBounds::kCounts})
        expect_right(grouped(problem, bounds, 4), rows_of({21, 0, 40, 3}, 4 * 42), tile, 4);
    }
}

TEST_F(GemmGroups, ScalesOfACapacityThatIsNoMultipleOfFour) {
  for (const Tile& tile : test::kGroupTiles)
    expect_right(grouped(gemm_problem(DType::kE4m3, DType::kBf16, 72, 272, "acc", ScaleKind::kPerBlock),
                         GroupBounds::kCounts, 3),
                 rows_of({23, 0, 7}, 3 * 23), tile);
}

TEST_F(GemmGroups, InGroupsOfSlots) {
  GemmSchedule schedule = schedule_of(test::kGroupTiles[3]);
  schedule.k_group = 2;
  schedule.stages = 4;
  schedule.cluster = ClusterShape{2, 1};
  const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 200, 656, "acc", ScaleKind::kPerBlock);
  const GemmCase call =
      make_gemm_inputs(grouped(problem, GroupBounds::kStarts, 3), rows_of({21, 0, 40}, 70), {.seed = 5});
  test::expect_right(call, run(call, schedule));
}

TEST_F(GemmGroups, ARingThatIsTooShortToGatherIsRefusedByName) {
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.k_group = 4, schedule.math_warpgroups = 2, schedule.store_stages = 3;
  const GemmProblem problem = gathering(plain(GroupBounds::kStarts, kMostGroups, 16, 16));
  try {
    engine_.prepare(problem, schedule);
    FAIL() << "four slots behind a barrier fit no tile";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/schedule/stages: "));
  }
}

TEST_F(GemmGroups, WithEpilogues) {
  for (const Tile& tile : test::kGroupTiles)
    for (const DType result : {DType::kBf16, DType::kF32}) {
      GemmProblem problem = plain(GroupBounds::kStarts, 3);
      problem.epilogue = "silu(alpha * acc + bias) + beta * c";
      problem.dtype.d = result;
      expect_right(problem, rows_of({33, 2, 9}, 50), tile, 2);
    }
}

TEST_F(GemmGroups, OfResultsOf8Bits) {
  for (const Tile& tile : test::kGroupTiles) {
    GemmProblem problem = plain(GroupBounds::kStarts, 3, 80);
    problem.dtype.d = DType::kE4m3;
    expect_right(problem, rows_of({33, 2, 9}, 50), tile);
  }
}

TEST_F(GemmGroups, OfMatricesWithColumnsInnermost) {
  for (const Tile& tile : test::kGroupTiles) {
    if (tile.block_n % 64 != 0 && tile.family == Family::kHopper && !tile.swap_ab) continue;
    GemmProblem problem = plain(GroupBounds::kStarts, 3);
    problem.layout = OperandLayout::kNn;
    expect_right(problem, rows_of({33, 2, 9}, 50), tile, 3);
  }
}

TEST_F(GemmGroups, WithoutKTheEpilogueIsOfZeros) {
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]}) {
    GemmProblem problem = plain(GroupBounds::kStarts, 3, 72, 0);
    problem.epilogue = "acc + bias";
    expect_right(problem, rows_of({33, 0, 9}, 50), tile);
  }
}

TEST_F(GemmGroups, OneIsTheDenseProductToTheBit) {
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    const GemmCase call = make_gemm_inputs(plain(GroupBounds::kEnds, 1, 136, 200), rows_of({150}, 150), {.seed = 3});
    EXPECT_EQ(run(call, schedule_of(tile)), run(call.dense_group(0), schedule_of(tile)));
  }
}

TEST_F(GemmGroups, AResultDoesNotDependOnTheSmsOrOnOtherGroups) {
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    const GemmProblem problem = plain(GroupBounds::kStarts, 3);
    const GemmCase call = make_gemm_inputs(problem, rows_of({80, 30, 50}, 170), {.seed = 3});
    const GemmOutput all = run(call, schedule_of(tile));
    EXPECT_EQ(run(call, schedule_of(tile), [&](GemmTensors& tensors) { tensors.sm_budget = 2; }), all);
    GemmCase others = call;
    std::memset(others.a.row(others.bounds[0]), 0x41, static_cast<std::size_t>(problem.k) * 2);
    const GemmOutput changed = run(others, schedule_of(tile));
    const auto behind = static_cast<std::ptrdiff_t>(call.bounds[1]) * problem.n * 2;
    EXPECT_TRUE(std::equal(all.d.begin() + behind, all.d.end(), changed.d.begin() + behind));
    EXPECT_NE(changed, all);
  }
}

/// One CTA has from no tile to more than the ring of dealt tiles holds, an even number of them or an odd one.
TEST_F(GemmGroups, AnyNumberOfTilesOfACta) {
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    for (const int groups : {1, 2, 3, 4, 5, 9}) {
      SCOPED_TRACE(groups);
      std::vector<int> rows(10, 0);
      for (int i = 0; i < groups; ++i) rows[i + i / 5] = 1 + 3 * i;
      const GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 10, 40, 72), rows_of(rows, 130), {.seed = 7});
      const auto few = [](GemmTensors& tensors) { tensors.sm_budget = 1; };
      test::expect_right(call, run(call, schedule_of(tile), few));
    }
  }
}

/// All results of a tile are stored at once, but for rows at a group's end. Rounds of five slabs, and single ones.
TEST_F(GemmGroups, TilesOfOneProductWithScalesOfBlocks) {
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_m = 128, schedule.block_n = 192, schedule.math_warpgroups = 2;
  for (const auto& [n, k] : {std::pair{200, 1024}, {384, 272}}) {
    const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, n, k, "acc", ScaleKind::kPerBlock);
    const GemmCase call =
        make_gemm_inputs(grouped(problem, GroupBounds::kStarts, 3), rows_of({150, 0, 33}, 190), {.seed = 7});
    test::expect_right(call, run(call, schedule, [](GemmTensors& tensors) { tensors.sm_budget = 2; }));
  }
}

/// Three warpgroups share a tile of 192 rows. Groups end within each warpgroup's rows. Results of 16 bits are stored at
/// once, and those of 32 bits slab by slab.
TEST_F(GemmGroups, TilesOfThreeWarpgroupsWithScalesOfBlocks) {
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_m = 192, schedule.block_n = 128, schedule.math_warpgroups = 3;
  for (const auto& [n, k, d] :
       {std::tuple{200, 1024, DType::kBf16}, {384, 272, DType::kBf16}, {136, 400, DType::kF32}}) {
    const GemmProblem problem = gemm_problem(DType::kE4m3, d, n, k, "acc", ScaleKind::kPerBlock);
    const GemmCase call =
        make_gemm_inputs(grouped(problem, GroupBounds::kStarts, 5), rows_of({150, 0, 33, 200, 70}, 460), {.seed = 7});
    test::expect_right(call, run(call, schedule, [](GemmTensors& tensors) { tensors.sm_budget = 2; }));
  }
}

/// Gates and ups, and results with scales, are stored while the next tile's first products run. Both are made of the
/// sums alone. A tile has one piece, or two of two warpgroups.
TEST_F(GemmGroups, GatesAndScaledResultsAreStoredBehindProducts) {
  constexpr const char* kScaled = "d = quantize(acc, e4m3, per=token_group(128), scale=s)";
  constexpr const char* kClamped = "(clamp(up, -7, 7) + 1) * min(gate, 7) * sigmoid(1.702 * min(gate, 7))";
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_n = 128, schedule.mma_in_flight = 0;
  for (const auto& [d, epilogue, warpgroups, groups] : {std::tuple{DType::kBf16, "silu(gate) * up", 3, 3},
                                                        {DType::kBf16, kClamped, 3, 0},
                                                        {DType::kE4m3, kScaled, 3, 3},
                                                        {DType::kE4m3, kScaled, 2, 0}}) {
    SCOPED_TRACE(epilogue);
    schedule.block_m = warpgroups == 3 ? 192 : 256, schedule.math_warpgroups = warpgroups;
    const GemmProblem problem = gemm_problem(DType::kE4m3, d, 384, 144, epilogue, ScaleKind::kPerBlock);
    const GemmCase call = groups == 0 ? make_gemm_inputs(problem, {"", 270, true}, {.seed = 8})
                                      : make_gemm_inputs(grouped(problem, GroupBounds::kStarts, groups),
                                                         rows_of({90, 0, 133}, 230), {.seed = 7});
    test::expect_right(call, run(call, schedule, [](GemmTensors& tensors) { tensors.sm_budget = 1; }));
  }
}

/// A scale has results of two tiles side by side, which a CTA takes one behind the other. The results of the first one
/// stay in shared memory.
TEST_F(GemmGroups, ScaledGatesOfTwoTilesSideBySide) {
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_n = 128, schedule.mma_in_flight = 0;
  const GemmProblem problem =
      gemm_problem(DType::kE4m3, DType::kE4m3, 768, 272,
                   "x = silu(gate) * up; d = quantize(x, e4m3, per=token_group(128), scale=s)", ScaleKind::kPerBlock);
  const GemmCase whole = make_gemm_inputs(problem, {"", 270, true}, {.seed = 8});
  const GemmCase call =
      make_gemm_inputs(grouped(problem, GroupBounds::kStarts, 4), rows_of({90, 0, 133, 7}, 240), {.seed = 7});
  for (const int warpgroups : {3, 2}) {
    SCOPED_TRACE(warpgroups);
    schedule.block_m = 64 * warpgroups, schedule.math_warpgroups = warpgroups;
    for (const int budget : {1, 4}) {
      const auto few = [&](GemmTensors& tensors) { tensors.sm_budget = budget; };
      test::expect_right(whole, run(whole, schedule, few));
      test::expect_right(call, run(call, schedule, few));
    }
  }
}

/// Pieces of a tile are stored one by one, however many stages there are.
TEST_F(GemmGroups, TilesOfTwoProductsWithRoomForAllResults) {
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_m = 128, schedule.block_n = 256, schedule.math_warpgroups = 2, schedule.store_stages = 4;
  const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 256, 272, "acc", ScaleKind::kPerBlock);
  const GemmCase call =
      make_gemm_inputs(grouped(problem, GroupBounds::kStarts, 3), rows_of({150, 0, 33}, 190), {.seed = 7});
  test::expect_right(call, run(call, schedule, [](GemmTensors& tensors) { tensors.sm_budget = 1; }));
}

TEST_F(GemmGroups, GatherRows) {
  for (const Tile& tile : test::kGroupTiles) {
    if (tile.cluster > 1) continue;
    // Rows of a are read several times, or not at all. Some rows of d are made of none.
    for (const int sources : {9, 300})
      expect_right(gathering(plain(GroupBounds::kStarts, 5)), from(rows_of({0, 17, 70, 1, 40}, 150), sources), tile, 3);
    expect_right(gathering(plain(GroupBounds::kCounts, 3)), from(rows_of({0, 17, 40}, 150), 60), tile);
  }
}

TEST_F(GemmGroups, GatherScaledRows) {
  for (const Tile& tile : test::kGroupTiles) {
    if (tile.cluster > 1) continue;
    for (const ScaleKind scales : {ScaleKind::kPerToken, ScaleKind::kPerBlock}) {
      const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", scales);
      expect_right(gathering(grouped(problem, GroupBounds::kStarts, 4)), from(rows_of({21, 0, 70, 3}, 100), 45), tile,
                   4);
    }
  }
}

TEST_F(GemmGroups, GatherNothing) {
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]}) {
    expect_right(gathering(plain(GroupBounds::kStarts, 3, 72, 0)), from(rows_of({33, 0, 9}, 50), 20), tile);
    GemmCase call =
        make_gemm_inputs(gathering(plain(GroupBounds::kStarts, 2)), from(rows_of({20, 30}, 50), 8), {.seed = 5});
    std::fill(call.gather.begin(), call.gather.end(), -1);
    test::expect_right(call, run(call, schedule_of(tile)));
  }
}

TEST_F(GemmGroups, GatherFromAMatrixWithoutRows) {
  const auto no_rows = [](GemmTensors& tensors) { tensors.a = tensors.scale_a = 0, tensors.source_rows = 0; };
  const GemmProblem scaled = gathering(
      grouped(gemm_problem(DType::kE4m3, DType::kBf16, 72, 272, "acc", ScaleKind::kPerBlock), GroupBounds::kStarts, 2));
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]})
    for (const GemmProblem& problem : {gathering(plain(GroupBounds::kStarts, 2)), scaled}) {
      SCOPED_TRACE(tile.name);
      GemmCase call = make_gemm_inputs(problem, from(rows_of({20, 30}, 50), 8), {.seed = 5});
      std::fill(call.gather.begin(), call.gather.end(), -1);
      test::expect_right(call, run(call, schedule_of(tile), no_rows));
    }
  const GemmCase one_scale = make_gemm_inputs(
      gathering(grouped(gemm_problem(DType::kE4m3, DType::kBf16, 72, 272, "acc", ScaleKind::kPerTensor),
                        GroupBounds::kStarts, 2)),
      from(rows_of({20, 30}, 50), 8), {.seed = 5});
  EXPECT_THAT(test::refusal_of_launch(engine_, one_scale, no_rows), HasSubstr("/scale_a: is null"));
}

TEST_F(GemmGroups, IndicesPastTheSourceAreRowsOfZeros) {
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]}) {
    SCOPED_TRACE(tile.name);
    test::expect_zeros_past_the_source(engine_, gathering(plain(GroupBounds::kStarts, 2)), schedule_of(tile));
  }
}

/// Bounds that the launch is given instead of those of the inputs.
struct Bad {
  GroupBounds kind;
  std::vector<std::int32_t> bounds;
};

TEST_F(GemmGroups, BadBoundsSetTheStatusAndWriteNothing) {
  const Bad cases[] = {
      {GroupBounds::kStarts, {0, 20, 10, 40}}, {GroupBounds::kStarts, {-1, 20, 30, 40}},
      {GroupBounds::kStarts, {0, 20, 30, 61}}, {GroupBounds::kStarts, {0, 2000000000, -2000000000, 60}},
      {GroupBounds::kEnds, {20, 10, 40}},      {GroupBounds::kEnds, {-5, 10, 40}},
      {GroupBounds::kEnds, {20, 30, 61}},      {GroupBounds::kCounts, {20, 21, 3}},
      {GroupBounds::kCounts, {20, -1, 3}},     {GroupBounds::kCounts, {2147483647, 2147483647, 2147483647}},
  };
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]})
    for (const Bad& bad : cases) {
      SCOPED_TRACE(std::string(tile.name) + " " + testing::PrintToString(bad.bounds));
      test::expect_bad_bounds_are_refused(engine_, plain(bad.kind, 3), schedule_of(tile), bad.bounds);
    }
}

TEST_F(GemmGroups, GoodBoundsLeaveTheStatus) {
  const GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 3), rows_of({20, 10, 15}, 60), {.seed = 5});
  GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem));
  on_device.poison();
  on_device.launch();
  EXPECT_EQ(on_device.status(), 0);
}

TEST_F(GemmGroups, NewBoundsNeedNoNewLaunchArguments) {
  // A graph replays the launch; the kernel reads what bounds are then.
  GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 3), rows_of({20, 20, 20}, 60), {.seed = 5});
  for (const std::vector<std::int32_t>& bounds :
       {std::vector<std::int32_t>{0, 20, 30, 45}, {5, 5, 40, 60}, {0, 0, 0, 60}}) {
    call.bounds = bounds;
    test::expect_right(call, run(call, schedule_of(test::kGroupTiles[3])));
  }
}

TEST_F(GemmGroups, LaunchesThatDoNotFitAreRefused) {
  const GemmCase call = make_gemm_inputs(plain(GroupBounds::kCounts, 3), rows_of({20, 10, 15}, 60), {.seed = 5});
  const auto refusal = [&](const GemmCase& of, const test::TensorChange& change) {
    return test::refusal_of_launch(engine_, of, change);
  };
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.bounds = 0; }), HasSubstr("/bounds: is null"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.bounds += 2; }), HasSubstr("/bounds"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.status += 1; }), HasSubstr("/status"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.bounds = t.d; }), HasSubstr("/bounds: overlaps d"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.status = t.d + 8; }), HasSubstr("/status: overlaps d"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.status = t.bounds + 4; }), HasSubstr("/status: overlaps bounds"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.m = 59; }), HasSubstr("60 would do"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.expected_m = -1; }), HasSubstr("/expected_m"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.gather = t.a; }), HasSubstr("/gather: is given"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.source_rows = 4; }), HasSubstr("/source_rows"));
  const GemmCase gathers =
      make_gemm_inputs(gathering(plain(GroupBounds::kStarts, 3)), from(rows_of({20, 10, 15}, 60), 12), {.seed = 5});
  EXPECT_THAT(refusal(gathers, [](GemmTensors& t) { t.gather = 0; }), HasSubstr("/gather: is null"));
  EXPECT_THAT(refusal(gathers, [](GemmTensors& t) { t.source_rows = -1; }), HasSubstr("/source_rows"));
  const GemmCase dense = make_gemm_inputs(gemm_problem(DType::kBf16, DType::kBf16, 72, 104), {"dense", 20, true});
  EXPECT_THAT(refusal(dense, [](GemmTensors& t) { t.bounds = t.a; }), HasSubstr("/bounds: is given"));
  EXPECT_THAT(refusal(dense, [](GemmTensors& t) { t.status = t.a; }), HasSubstr("/status: is given"));
  EXPECT_THAT(refusal(dense, [](GemmTensors& t) { t.expected_m = 4; }), HasSubstr("/expected_m"));
}

}  // namespace
}  // namespace kernelwright::gemm_groups_test
