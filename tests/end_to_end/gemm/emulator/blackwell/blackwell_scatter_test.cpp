// Groups of gemm_sm100 whose rows the launch scatters, on the emulator with every check on. Rows of a that become no
// row of d hold NaN. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "end_to_end/gemm/emulator/blackwell/blackwell_tiles.h"
#include "support/grouped_gemm.h"

namespace kernelwright::blackwell_scatter_test {
namespace {

using namespace test::blackwell;
using test::gemm_problem;
using test::grouped;
using test::rows_of;

GemmProblem scattered(const GemmProblem& problem, GroupBounds bounds, int count) {
  GemmProblem changed = grouped(problem, bounds, count);
  changed.groups.scatter = true;
  return changed;
}
GemmProblem plain(GroupBounds bounds, int count, int n = 136, int k = 104) {
  return scattered(gemm_problem(DType::kBf16, DType::kBf16, n, k), bounds, count);
}
GemmShape rows_to(std::vector<int> group_rows, int m, int result_rows) {
  GemmShape shape = rows_of(std::move(group_rows), m);
  shape.result_rows = result_rows;
  return shape;
}
constexpr BlackwellTile kWideSwapped = {"wide_swapped", 64, 1, {1, 1}, true};

class BlackwellScatter : public test::CheckedBlackwellGemm {};

TEST_F(BlackwellScatter, RowsToAnyRows) {
  for (const BlackwellTile& tile : {kPair, kSwapped, kWideSwapped})
    for (const int result_rows : {60, 300})  // too few for all rows, or some that none becomes
      expect_each_right(plain(GroupBounds::kStarts, 7), rows_to({0, 17, 1, 0, 170, 15, 0}, 220, result_rows), tile, 3);
  for (const BlackwellTile& tile : {kCluster, kSwappedCluster})
    expect_each_right(plain(GroupBounds::kCounts, 5), rows_to({0, 17, 40, 1, 33}, 200, 91), tile);
}

TEST_F(BlackwellScatter, WithAddendsOfTheRowsThatTheyBecome) {
  for (const auto& [tile, c] : {std::pair{kPair, DType::kF32}, {kSwapped, DType::kBf16}, {kSwapped, DType::kF32}}) {
    GemmProblem problem = plain(GroupBounds::kEnds, 3);
    problem.epilogue = "silu(alpha * acc + bias) + beta * c";
    problem.dtype.d = problem.dtype.c = c;
    expect_each_right(problem, rows_to({33, 2, 70}, 110, 130), tile, 2);
  }
}

TEST_F(BlackwellScatter, AddsToRowsThatAreThere) {
  GemmProblem problem = plain(GroupBounds::kStarts, 3);
  problem.epilogue = "acc + c";
  const GemmCase call = make_gemm_inputs(problem, rows_to({33, 2, 70}, 110, 130), {.seed = 5});
  for (const BlackwellTile& tile : {kPair, kSwapped}) {
    SCOPED_TRACE(tile.name);
    GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(problem, schedule_of(tile)));
    on_device.accumulate_in_place();
    on_device.poison();
    on_device.launch();
    test::expect_right(call, on_device.download());
    EXPECT_TRUE(on_device.guards_are_intact());
    test::expect_no_reports(engine_);
  }
}

TEST_F(BlackwellScatter, GatheredRowsWithGatesAndScales) {
  for (const BlackwellTile& tile : {kPair, kSwapped}) {
    GemmProblem problem =
        scattered(gemm_problem(DType::kE4m3, DType::kBf16, 144, 272, "silu(gate) * up", ScaleKind::kPerBlock),
                  GroupBounds::kStarts, 3);
    problem.groups.gather = true;
    GemmShape shape = rows_to({21, 0, 40}, 3 * 40, 55);
    shape.source_rows = 45;
    expect_each_right(problem, shape, tile);
  }
}

TEST_F(BlackwellScatter, IndicesPastTheResultSetTheStatusAndWriteNothing) {
  for (const BlackwellTile& tile : {kPair, kSwapped})
    for (const std::int32_t bad : {-1, 90, -2, std::numeric_limits<std::int32_t>::min()}) {
      SCOPED_TRACE(std::string(tile.name) + " " + std::to_string(bad));
      GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 2), rows_to({20, 50}, 74, 90), {.seed = 5});
      std::vector<std::int32_t> given = call.scatter;
      given[30] = bad, call.scatter[30] = -1;
      GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, schedule_of(tile)));
      engine_.device(0).copy_to_device(on_device.tensors().scatter, given.data(), given.size() * 4);
      on_device.poison();
      on_device.launch();
      test::expect_right(call, on_device.download());
      EXPECT_TRUE(on_device.guards_are_intact()) << "a row that no index names was written";
      EXPECT_EQ(on_device.status(), bad == -1 ? 0 : 1) << "-1 is no fault, nor are indices of rows of no group";
      test::expect_no_reports(engine_);
    }
}

}  // namespace
}  // namespace kernelwright::blackwell_scatter_test
