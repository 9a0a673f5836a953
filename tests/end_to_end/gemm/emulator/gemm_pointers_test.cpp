// GEMMs of groups whose matrices b the launch gives by their addresses, on the emulator with every check on: each group
// against its dense product. Matrices lie apart, and groups without rows have null. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "support/grouped_gemm.h"

namespace kernelwright::gemm_pointers_test {
namespace {

using test::gemm_problem;
using test::grouped;
using test::rows_of;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

GemmProblem by_pointers(const GemmProblem& problem, GroupBounds bounds, int count) {
  GemmProblem changed = grouped(problem, bounds, count);
  changed.groups.pointers = true;
  return changed;
}
GemmProblem plain(GroupBounds bounds, int count, int n = 72, int k = 104) {
  return by_pointers(gemm_problem(DType::kBf16, DType::kBf16, n, k), bounds, count);
}

class GemmPointers : public test::CheckedGemm {
 protected:
  /// Calls run(tile) for each way of walking tiles that goes with pointers.
  template <class Run>
  void for_each_tile(const Run& run) {
    for (const Tile& tile : test::kGroupTiles) {
      SCOPED_TRACE(tile.name);
      if (tile.cluster == 1) run(tile);
    }
  }
  /// Launches with the address of group `group` replaced, and expects that nothing is computed.
  void expect_refused_on_device(const GemmProblem& problem, const Tile& tile, std::size_t group,
                                const std::function<std::uint64_t(std::uint64_t)>& change) {
    const GemmCase call = make_gemm_inputs(problem, rows_of({20, 0, 15}, 60), {.seed = 5});
    GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(problem, schedule_of(tile)));
    std::vector<std::uint64_t> addresses(3);
    Device& device = engine_.device(0);
    device.copy_to_host(addresses.data(), on_device.tensors().b, addresses.size() * 8);
    EXPECT_EQ(addresses[1], 0u) << "a group without rows";
    addresses[group] = change(addresses[group]);
    device.copy_to_device(on_device.tensors().b, addresses.data(), addresses.size() * 8);
    on_device.poison();
    on_device.launch();
    const GemmOutput output = on_device.download();
    EXPECT_TRUE(std::all_of(output.d.begin(), output.d.end(), [&](std::byte byte) { return byte == output.d[0]; }))
        << "something was written";
    EXPECT_EQ(on_device.status(), 1);
    test::expect_no_reports(engine_);
  }
};

TEST_F(GemmPointers, OfMatricesThatLieApart) {
  for_each_tile([&](const Tile& tile) {
    expect_right(plain(GroupBounds::kStarts, 7), rows_of({0, 17, 1, 0, 70, 15, 0}, 120), tile, 3);
    expect_right(plain(GroupBounds::kCounts, 5, 200, 64), rows_of({0, 17, 40, 1, 33}, 200), tile);
  });
}

TEST_F(GemmPointers, OfMatricesWithColumnsInnermost) {
  for_each_tile([&](const Tile& tile) {
    if (tile.block_n % 64 != 0 && tile.family == Family::kHopper && !tile.swap_ab) return;
    GemmProblem problem = plain(GroupBounds::kEnds, 3, 136);
    problem.layout = OperandLayout::kNn;
    expect_right(problem, rows_of({33, 2, 9}, 50), tile, 3);
  });
}

TEST_F(GemmPointers, OfScaledOperands) {
  for_each_tile([&](const Tile& tile) {
    const bool swapped = tile.swap_ab;
    const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", ScaleKind::kPerBlock);
    expect_right(by_pointers(problem, swapped ? GroupBounds::kCounts : GroupBounds::kStarts, 4),
                 rows_of({21, 0, 40, 3}, 4 * 42), tile, 4);
  });
}

TEST_F(GemmPointers, WithEpiloguesAndRowsThatAreGatheredAndScattered) {
  for_each_tile([&](const Tile& tile) {
    GemmProblem problem = plain(GroupBounds::kStarts, 3);
    problem.epilogue = "silu(alpha * acc + bias) + beta * c";
    problem.groups.gather = problem.groups.scatter = true;
    GemmShape shape = rows_of({33, 2, 70}, 110);
    shape.source_rows = 40, shape.result_rows = 130;
    expect_right(problem, shape, tile, 2);
    GemmProblem scaled =
        by_pointers(gemm_problem(DType::kE4m3, DType::kBf16, 96, 272, "silu(gate) * up", ScaleKind::kPerBlock),
                    GroupBounds::kStarts, 3);
    scaled.groups.gather = true;
    shape.result_rows = 0;
    expect_right(scaled, shape, tile, 4);
  });
}

TEST_F(GemmPointers, InGroupsOfSlots) {
  GemmSchedule schedule = schedule_of(test::kGroupTiles[3]);
  schedule.k_group = 2;
  schedule.stages = 4;
  const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 200, 656, "acc", ScaleKind::kPerBlock);
  expect_right(by_pointers(problem, GroupBounds::kStarts, 3), rows_of({21, 0, 40}, 70), schedule, {.seed = 5});
}

TEST_F(GemmPointers, IsTheProductOfMatricesInARowToTheBit) {
  for_each_tile([&](const Tile& tile) {
    const GemmCase call =
        make_gemm_inputs(plain(GroupBounds::kStarts, 3, 136), rows_of({80, 30, 50}, 170), {.seed = 3});
    GemmCase in_a_row = call;
    in_a_row.problem.groups.pointers = false;
    const GemmOutput all = run(call, schedule_of(tile));
    EXPECT_EQ(all, run(in_a_row, schedule_of(tile)));
    EXPECT_EQ(all, run(call, schedule_of(tile), [](GemmTensors& tensors) { tensors.sm_budget = 2; }));
  });
}

TEST_F(GemmPointers, NullAndUnalignedAddressesOfGroupsWithRowsSetTheStatus) {
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]}) {
    SCOPED_TRACE(tile.name);
    expect_refused_on_device(plain(GroupBounds::kStarts, 3), tile, 0, [](std::uint64_t) { return 0; });
    expect_refused_on_device(plain(GroupBounds::kCounts, 3), tile, 2, [](std::uint64_t at) { return at + 8; });
  }
}

TEST_F(GemmPointers, LaunchesThatDoNotFitAreRefused) {
  const GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 3), rows_of({20, 10, 15}, 60), {.seed = 5});
  const auto refusal = [&](const test::TensorChange& change) { return test::refusal_of_launch(engine_, call, change); };
  EXPECT_THAT(refusal([](GemmTensors& t) { t.b = 0; }), HasSubstr("/b: is null"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.b += 4; }), HasSubstr("/b"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.b = t.d + 16; }), HasSubstr("/b: overlaps d"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.status = t.b + 20; }), HasSubstr("/status: overlaps b"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.b_stride = 96; }), HasSubstr("/b_stride"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.b_stride = 109; }), HasSubstr("/b_stride"));
}

}  // namespace
}  // namespace kernelwright::gemm_pointers_test
