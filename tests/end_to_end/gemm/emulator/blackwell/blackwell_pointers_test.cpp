// Groups of gemm_sm100 whose matrices b the launch gives by their addresses, on the emulator with every check on.
// Matrices lie apart, and groups without rows have null. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "end_to_end/gemm/emulator/blackwell/blackwell_tiles.h"
#include "support/grouped_gemm.h"

namespace kernelwright::blackwell_pointers_test {
namespace {

using namespace test::blackwell;
using test::gemm_problem;
using test::grouped;
using test::rows_of;

GemmProblem by_pointers(const GemmProblem& problem, GroupBounds bounds, int count) {
  GemmProblem changed = grouped(problem, bounds, count);
  changed.groups.pointers = true;
  return changed;
}
GemmProblem plain(GroupBounds bounds, int count, int n = 200, int k = 104) {
  return by_pointers(gemm_problem(DType::kBf16, DType::kBf16, n, k), bounds, count);
}
constexpr BlackwellTile kNarrow = {"narrow", 48};

class BlackwellPointers : public test::CheckedBlackwellGemm {
 protected:
  explicit BlackwellPointers(emulator::Completion completion = emulator::Completion::kEager)
      : CheckedBlackwellGemm(completion) {}
};

TEST_F(BlackwellPointers, OfMatricesThatLieApart) {
  for (const BlackwellTile& tile : {kAlone, kNarrow, kSwapped}) {
    expect_each_right(plain(GroupBounds::kStarts, 7), rows_of({0, 17, 1, 0, 170, 15, 0}, 220), tile, 3);
    expect_each_right(plain(GroupBounds::kCounts, 5, 136, 64), rows_of({0, 17, 40, 1, 33}, 200), tile);
  }
}

TEST_F(BlackwellPointers, OfMatricesWithColumnsInnermost) {
  GemmProblem problem = plain(GroupBounds::kEnds, 3, 136);
  problem.layout = OperandLayout::kNn;
  for (const BlackwellTile& tile : {kAlone, kSwapped}) expect_each_right(problem, rows_of({33, 2, 9}, 50), tile, 3);
}

TEST_F(BlackwellPointers, InGroupsOfSlots) {
  GemmSchedule schedule = schedule_of(kSwapped);
  schedule.k_group = 2;
  const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 200, 656, "acc", ScaleKind::kPerBlock);
  expect_right(by_pointers(problem, GroupBounds::kStarts, 3), rows_of({21, 0, 40}, 70), schedule, {.seed = 5});
}

TEST_F(BlackwellPointers, IsTheProductOfMatricesInARowToTheBit) {
  for (const BlackwellTile& tile : {kAlone, kSwapped}) {
    SCOPED_TRACE(tile.name);
    const GemmCase call =
        make_gemm_inputs(plain(GroupBounds::kStarts, 3, 136), rows_of({80, 30, 50}, 170), {.seed = 3});
    GemmCase in_a_row = call;
    in_a_row.problem.groups.pointers = false;
    const GemmOutput all = run(call, schedule_of(tile));
    EXPECT_EQ(all, run(in_a_row, schedule_of(tile)));
    EXPECT_EQ(all, run(call, schedule_of(tile), [](GemmTensors& tensors) { tensors.sm_budget = 2; }));
  }
}

TEST_F(BlackwellPointers, NullAndUnalignedAddressesOfGroupsWithRowsSetTheStatus) {
  const GemmCase call = make_gemm_inputs(plain(GroupBounds::kStarts, 3), rows_of({20, 0, 15}, 60), {.seed = 5});
  Device& device = engine_.device(0);
  for (const std::uint64_t low : {0, 8}) {
    GemmDeviceCase on_device(device, call, engine_.prepare(call.problem, schedule_of(kAlone)));
    std::vector<std::uint64_t> addresses(3);
    device.copy_to_host(addresses.data(), on_device.tensors().b, addresses.size() * 8);
    EXPECT_EQ(addresses[1], 0u) << "a group without rows";
    addresses[2] = low == 0 ? 0 : addresses[2] + low;
    device.copy_to_device(on_device.tensors().b, addresses.data(), addresses.size() * 8);
    on_device.poison();
    on_device.launch();
    const GemmOutput output = on_device.download();
    EXPECT_TRUE(std::all_of(output.d.begin(), output.d.end(), [&](std::byte byte) { return byte == output.d[0]; }))
        << "something was written";
    EXPECT_EQ(on_device.status(), 1);
    test::expect_no_reports(engine_);
  }
}

/// Machines on which copies land, and warps run, in another order.
class BlackwellPointersInAnyOrder : public BlackwellPointers {
 protected:
  BlackwellPointersInAnyOrder() : BlackwellPointers(emulator::Completion::kRandom) {}
};

TEST_F(BlackwellPointersInAnyOrder, WithRowsThatAreGatheredScaledAndScattered) {
  for (const BlackwellTile& tile : {kAlone, kSwapped}) {
    GemmProblem problem =
        by_pointers(gemm_problem(DType::kE4m3, DType::kBf16, 96, 272, "silu(gate) * up", ScaleKind::kPerBlock),
                    GroupBounds::kStarts, 3);
    problem.groups.gather = problem.groups.scatter = true;
    GemmShape shape = rows_of({33, 2, 70}, 110);
    shape.source_rows = 40, shape.result_rows = 130;
    expect_each_right(problem, shape, tile, 4);
  }
}

}  // namespace
}  // namespace kernelwright::blackwell_pointers_test
