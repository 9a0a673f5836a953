// GEMMs of groups whose rows the launch scatters, on the emulator with every check on: each group against the dense
// product of the rows that it writes. Rows of a that become no row of d hold NaN. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/grouped_gemm.h"

namespace kernelwright::gemm_scatter_test {
namespace {

using test::gemm_problem;
using test::grouped;
using test::rows_of;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

GemmProblem scattered(const GemmProblem& problem, GroupBounds bounds, int count) {
  GemmProblem changed = grouped(problem, bounds, count);
  changed.groups.scatter = true;
  return changed;
}
GemmProblem plain(GroupBounds bounds, int count, int n = 72, int k = 104) {
  return scattered(gemm_problem(DType::kBf16, DType::kBf16, n, k), bounds, count);
}
GemmShape rows_to(std::vector<int> group_rows, int m, int result_rows) {
  GemmShape shape = rows_of(std::move(group_rows), m);
  shape.result_rows = result_rows;
  return shape;
}

class GemmScatter : public test::CheckedGemm {
 protected:
  /// A launch with `given` for indices where the call has those that are right.
  GemmOutput run_with(const GemmCase& call, const Tile& tile, const std::vector<std::int32_t>& given, int& status) {
    GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, schedule_of(tile)));
    engine_.device(0).copy_to_device(on_device.tensors().scatter, given.data(), given.size() * 4);
    on_device.poison();
    on_device.launch();
    EXPECT_TRUE(on_device.guards_are_intact()) << "a row that no index names was written";
    test::expect_no_reports(engine_);
    status = on_device.status();
    return on_device.download();
  }
};

TEST_F(GemmScatter, RowsOfGroupsToAnyRows) {
  for (const Tile& tile : test::kGroupTiles)
    for (const int result_rows : {60, 300})  // too few for all rows, or some that none becomes
      expect_right(plain(GroupBounds::kStarts, 7), rows_to({0, 17, 1, 0, 70, 15, 0}, 120, result_rows), tile, 3);
}

TEST_F(GemmScatter, RowsOfMaskedGroups) {
  for (const Tile& tile : test::kGroupTiles)
    expect_right(plain(GroupBounds::kCounts, 5, 200), rows_to({0, 17, 40, 1, 33}, 200, 91), tile);
}

TEST_F(GemmScatter, WithAddendsOfTheRowsThatTheyBecome) {
  for (const Tile& tile : test::kGroupTiles)
    for (const DType result : {DType::kBf16, DType::kF32}) {
      GemmProblem problem = plain(GroupBounds::kEnds, 3);
      problem.epilogue = "silu(alpha * acc + bias) + beta * c";
      problem.dtype.d = result;
      expect_right(problem, rows_to({33, 2, 70}, 110, 130), tile, 2);
    }
}

TEST_F(GemmScatter, AddsToRowsThatAreThere) {
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    GemmProblem problem = plain(GroupBounds::kStarts, 3);
    problem.epilogue = "acc + c";
    const GemmCase call = make_gemm_inputs(problem, rows_to({33, 2, 70}, 110, 130), {.seed = 5});
    GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(problem, schedule_of(tile)));
    on_device.accumulate_in_place();
    on_device.poison();
    on_device.launch();
    test::expect_right(call, on_device.download());
    EXPECT_TRUE(on_device.guards_are_intact());
    test::expect_no_reports(engine_);
  }
}

TEST_F(GemmScatter, GatesAndResultsOf8Bits) {
  for (const Tile& tile : test::kGroupTiles) {
    GemmProblem gates = plain(GroupBounds::kStarts, 3, 96);
    gates.epilogue = "silu(gate) * up";
    expect_right(gates, rows_to({33, 2, 9}, 50, 44), tile);
    GemmProblem narrow = plain(GroupBounds::kStarts, 3, 80);
    narrow.dtype.d = DType::kE4m3;
    expect_right(narrow, rows_to({33, 2, 9}, 50, 44), tile);
  }
}

TEST_F(GemmScatter, RowsThatWereGatheredAndScaled) {
  for (const Tile& tile : test::kGroupTiles)
    for (const GroupBounds bounds : {GroupBounds::kStarts, GroupBounds::kCounts})
      for (const ScaleKind scales : {ScaleKind::kPerToken, ScaleKind::kPerBlock}) {
        GemmProblem problem = scattered(gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", scales), bounds, 3);
        problem.groups.gather = bounds == GroupBounds::kStarts && tile.cluster == 1;
        if (scales == ScaleKind::kPerToken && !problem.groups.gather) continue;
        GemmShape shape = rows_to({21, 0, 40}, 3 * 40, 55);
        if (problem.groups.gather) shape.source_rows = 45;
        expect_right(problem, shape, tile, 4);
      }
}

TEST_F(GemmScatter, WithoutKTheEpilogueIsOfZeros) {
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]}) {
    GemmProblem problem = plain(GroupBounds::kStarts, 3, 72, 0);
    problem.epilogue = "acc + bias";
    expect_right(problem, rows_to({33, 0, 9}, 50, 45), tile);
  }
}

TEST_F(GemmScatter, InOrderIsTheGroupedProductToTheBit) {
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 2), rows_to({70, 30}, 100, 100), {.seed = 3});
    for (std::size_t row = 0; row < call.scatter.size(); ++row) call.scatter[row] = static_cast<std::int32_t>(row);
    std::fill(call.a.bytes.begin(), call.a.bytes.end(), std::byte{0x3f});  // for rows that hold NaN
    GemmCase in_order = call;
    in_order.problem.groups.scatter = false, in_order.scatter.clear(), in_order.result_rows = 0;
    EXPECT_EQ(run(call, schedule_of(tile)), run(in_order, schedule_of(tile)));
  }
}

TEST_F(GemmScatter, IndicesPastTheResultSetTheStatusAndWriteNothing) {
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]}) {
    SCOPED_TRACE(tile.name);
    GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 2), rows_to({20, 50}, 74, 90), {.seed = 5});
    int status = -1;
    const GemmOutput right = run_with(call, tile, call.scatter, status);
    test::expect_right(call, right);
    EXPECT_EQ(status, 0) << "rows of no group have indices that d does not have, and -1 is no fault";
    for (const std::int32_t bad : {90, std::numeric_limits<std::int32_t>::max(), -2, kLeast}) {
      std::vector<std::int32_t> given = call.scatter;
      given[30] = bad;
      GemmCase without = call;
      without.scatter[30] = -1;
      test::expect_right(without, run_with(without, tile, given, status));
      EXPECT_EQ(status, 1) << bad;
    }
  }
}

TEST_F(GemmScatter, NoStatusIsNeeded) {
  GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 2), rows_to({20, 50}, 74, 90), {.seed = 5});
  call.scatter[30] = 90;
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]})
    test::expect_right(call, run(call, schedule_of(tile), [](GemmTensors& t) { t.status = 0; }));
}

TEST_F(GemmScatter, LaunchesThatDoNotFitAreRefused) {
  const GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 3), rows_to({20, 10, 15}, 60, 50), {.seed = 5});
  const auto refusal = [&](const GemmCase& of, const test::TensorChange& change) {
    return test::refusal_of_launch(engine_, of, change);
  };
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.scatter = 0; }), HasSubstr("/scatter: is null"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.scatter += 2; }), HasSubstr("/scatter"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.scatter = t.d; }), HasSubstr("/scatter: overlaps d"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.status = t.scatter; }), HasSubstr("/status: overlaps scatter"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.result_rows = 0; }),
              HasSubstr("/result_rows: 0 rows of d are too few to write any; it takes 1 or more"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.result_rows = -3; }), HasSubstr("/result_rows: -3"));
  GemmProblem in_order = plain(GroupBounds::kStarts, 3);
  in_order.groups.scatter = false;
  const GemmCase other = make_gemm_inputs(in_order, rows_to({20, 10, 15}, 60, 0), {.seed = 5});
  EXPECT_THAT(refusal(other, [](GemmTensors& t) { t.scatter = t.a; }), HasSubstr("/scatter: is given"));
  EXPECT_THAT(refusal(other, [](GemmTensors& t) { t.result_rows = 4; }), HasSubstr("/result_rows: 4 is given"));
  const GemmCase dense = make_gemm_inputs(gemm_problem(DType::kBf16, DType::kBf16, 72, 104), {"dense", 20, true});
  EXPECT_THAT(refusal(dense, [](GemmTensors& t) { t.scatter = t.a; }), HasSubstr("/scatter: is given"));
  EXPECT_THAT(refusal(dense, [](GemmTensors& t) { t.result_rows = 4; }), HasSubstr("/result_rows: 4 is given"));
}

}  // namespace
}  // namespace kernelwright::gemm_scatter_test
