// GEMMs of groups of kind k on the emulator, with every check on: each group against the dense product of its rows of a
// and b. All other rows are NaN, so that one that reaches a result is found. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/grouped_gemm.h"

namespace kernelwright::gemm_slices_test {
namespace {

using test::schedule_of;
using test::sliced;
using test::slices_of;
using test::Tile;
using testing::HasSubstr;

// Forms that the planner has of kind k: two warpgroups that share a slot, one with several slabs in a slot.
constexpr Tile kTiles[] = {
    {"portable", Family::kPortable, 16, 32, 0, Roles::kCooperative, false},
    {"two_warpgroups", Family::kHopper, 128, 64, 2, Roles::kCooperative, false},
    {"one_warpgroup", Family::kHopper, 64, 128, 1, Roles::kCooperative, false},
};

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
    test::expect_zeros_without_rows(engine_, schedule_of(tile));
  }
}

TEST_F(GemmSlices, AddToGradientsInF32) {
  for (const Tile& tile : kTiles) {
    SCOPED_TRACE(tile.name);
    test::expect_slices_add_to_gradients(engine_, schedule_of(tile));
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
    test::expect_slices_stand_alone(engine_, schedule_of(tile), 1);
  }
}

TEST_F(GemmSlices, BadBoundsSetTheStatusAndWriteNothing) {
  for (const Tile& tile : {kTiles[0], kTiles[1]}) {
    SCOPED_TRACE(tile.name);
    test::expect_bad_slices_are_refused(engine_, schedule_of(tile));
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
