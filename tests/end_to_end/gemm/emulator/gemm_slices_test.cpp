// GEMMs of groups of kind k on the emulator, with every check on: each group against the dense product of its rows of a
// and b. All other rows are NaN, so that one that reaches a result is found. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/checked_gemm.h"

namespace kernelwright::gemm_slices_test {
namespace {

using test::gemm_problem;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

// Forms that the planner has of kind k: two warpgroups that share a slot, one with several slabs in a slot.
constexpr Tile kTiles[] = {
    {"portable", Family::kPortable, 16, 32, 0, Roles::kCooperative, false},
    {"two_warpgroups", Family::kHopper, 128, 64, 2, Roles::kCooperative, false},
    {"one_warpgroup", Family::kHopper, 64, 128, 1, Roles::kCooperative, false},
};

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

class GemmSlices : public test::CheckedGemm {
 protected:
  GemmSlices() : CheckedGemm(emulator::Completion::kRandom) {}
};

TEST_F(GemmSlices, OfAnyLength) {
  const std::vector<int> lengths{0, 1, 63, 0, 64, 65, 7, 130, 0};
  for (const Tile& tile : kTiles)
    for (const GroupBounds bounds : {GroupBounds::kStarts, GroupBounds::kEnds})
      expect_right(sliced(9, 72, bounds), slices_of(lengths, 40, 350), tile, 3);
}

TEST_F(GemmSlices, OfTilesBesideMultiples) {
  for (const Tile& tile : kTiles)
    for (const int rows_of_d : {8, 136}) expect_right(sliced(3, 200), slices_of({20, 70, 5}, rows_of_d, 100), tile);
}

TEST_F(GemmSlices, InGroupsOfSlots) {
  GemmSchedule schedule = schedule_of(kTiles[2]);
  schedule.k_group = 2;
  const GemmCase call = make_gemm_inputs(sliced(4), slices_of({64, 100, 128, 30}, 64, 330), {.seed = 5});
  test::expect_right(call, run(call, schedule));
}

TEST_F(GemmSlices, WithoutRowsTheEpilogueIsOfZeros) {
  for (const Tile& tile : kTiles) {
    GemmProblem problem = sliced(2);
    problem.epilogue = "acc + bias";
    expect_right(problem, slices_of({0, 0}, 24, 16), tile);
    GemmCase call = make_gemm_inputs(sliced(2), slices_of({0, 0}, 24, 16), {.seed = 5});
    std::fill(call.bounds.begin(), call.bounds.end(), 0);
    const GemmOutput output = run(call, schedule_of(tile), [](GemmTensors& t) { t.a = t.b = 0, t.source_rows = 0; });
    EXPECT_TRUE(std::all_of(output.d.begin(), output.d.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

TEST_F(GemmSlices, AddToGradientsInF32) {
  for (const Tile& tile : kTiles) {
    SCOPED_TRACE(tile.name);
    GemmProblem problem = sliced(3);
    problem.dtype.d = problem.dtype.c = DType::kF32;
    problem.epilogue = "alpha * acc + beta * c";
    const GemmCase call = make_gemm_inputs(problem, slices_of({20, 0, 70}, 40, 90), {.seed = 5});
    const GemmOutput apart = run(call, schedule_of(tile));
    test::expect_right(call, apart);
    GemmDeviceCase in_place(engine_.device(0), call, engine_.prepare(problem, schedule_of(tile)));
    in_place.accumulate_in_place();
    in_place.poison();
    in_place.launch();
    EXPECT_EQ(in_place.download(), apart);
    test::expect_no_reports(engine_);
  }
}

TEST_F(GemmSlices, OneIsTheDenseProductToTheBit) {
  for (const Tile& tile : kTiles) {
    SCOPED_TRACE(tile.name);
    const GemmCase call = make_gemm_inputs(sliced(1, 136), slices_of({150}, 72, 150), {.seed = 3});
    EXPECT_EQ(run(call, schedule_of(tile)), run(call.dense_group(0), schedule_of(tile)));
  }
}

TEST_F(GemmSlices, AResultDependsNeitherOnTheSmsNorOnOtherSlices) {
  for (const Tile& tile : kTiles) {
    SCOPED_TRACE(tile.name);
    GemmCase call = make_gemm_inputs(sliced(3), slices_of({50, 60, 70}, 136, 200), {.seed = 3});
    const GemmOutput all = run(call, schedule_of(tile));
    EXPECT_EQ(run(call, schedule_of(tile), [](GemmTensors& tensors) { tensors.sm_budget = 1; }), all);
    call.bounds[1] = call.bounds[0];  // the first slice is empty, and the second one longer
    const GemmOutput changed = run(call, schedule_of(tile));
    test::expect_right(call, changed);
    const auto last = static_cast<std::ptrdiff_t>(all.d.size() / 3 * 2);
    EXPECT_TRUE(std::equal(all.d.begin() + last, all.d.end(), changed.d.begin() + last));
  }
}

TEST_F(GemmSlices, BadBoundsSetTheStatusAndWriteNothing) {
  const std::vector<std::int32_t> cases[] = {{0, 20, 10, 40}, {-1, 20, 30, 40}, {0, 20, 30, 61}};
  for (const Tile& tile : {kTiles[0], kTiles[1]})
    for (const std::vector<std::int32_t>& bounds : cases) {
      SCOPED_TRACE(std::string(tile.name) + " " + testing::PrintToString(bounds));
      const GemmCase call = make_gemm_inputs(sliced(3), slices_of({20, 10, 15}, 24, 60), {.seed = 5});
      GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, schedule_of(tile)));
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

TEST_F(GemmSlices, LaunchesThatDoNotFitAreRefused) {
  const GemmCase call = make_gemm_inputs(sliced(3), slices_of({20, 10, 15}, 24, 60), {.seed = 5});
  const auto refusal = [&](const test::TensorChange& change) { return test::refusal_of_launch(engine_, call, change); };
  EXPECT_THAT(refusal([](GemmTensors& t) { t.bounds = 0; }), HasSubstr("/bounds: is null"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.m = 71; }), HasSubstr("72 would do"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.source_rows = -1; }),
              HasSubstr("/source_rows: -1 rows of a are negative"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.a = 0; }), HasSubstr("/a: is null"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.b = 0; }), HasSubstr("/b: is null"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.a_batch_stride = 8; }),
              HasSubstr("/a_batch_stride: 8 is given, and the problem has no batch"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.d_batch_stride = 80; }),
              HasSubstr("/d_batch_stride: 80 brings rows of d of two groups together"));
  EXPECT_THAT(refusal([](GemmTensors& t) { t.d = t.b + 1280; }), HasSubstr("/d: overlaps b"));
}

}  // namespace
}  // namespace kernelwright::gemm_slices_test
