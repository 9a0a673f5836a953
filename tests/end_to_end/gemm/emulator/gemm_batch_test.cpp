// Batches of GEMMs on the emulator, with every check on: each group against the dense product of its rows and its
// matrix, with groups behind each other and side by side. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/grouped_gemm.h"

namespace kernelwright::gemm_batch_test {
namespace {

using test::batched;
using test::gemm_problem;
using test::plain_batch;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

class GemmBatch : public test::CheckedGemm {
 protected:
  void expect_right(const GemmProblem& problem, int rows, const Tile& tile, int padding = 0) {
    SCOPED_TRACE(std::string(tile.name) + " " + std::to_string(rows));
    test::expect_batch_right(engine_, problem, rows, schedule_of(tile), padding);
  }
  std::string refusal(const GemmCase& of, const test::TensorChange& change) {
    return test::refusal_of_launch(engine_, of, change);
  }
};

TEST_F(GemmBatch, RowsBesideMultiplesOfATile) {
  for (const Tile& tile : test::kGroupTiles)
    for (const int rows : {1, 17, 64, 130}) expect_right(plain_batch(3), rows, tile, 3);
}

TEST_F(GemmBatch, OfOneGroupIsTheDenseProductToTheBit) {
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    const GemmCase call = make_gemm_inputs(plain_batch(1, 136, 200), {"batch", 150, true}, {.seed = 3});
    EXPECT_EQ(run(call, schedule_of(tile)), run(call.dense_group(0), schedule_of(tile)));
  }
}

TEST_F(GemmBatch, OfMoreGroupsThanCtas) {
  for (const Tile& tile : test::kGroupTiles) expect_right(plain_batch(70, 16, 16), 3, tile);
}

TEST_F(GemmBatch, OfScaledOperands) {
  for (const Tile& tile : test::kGroupTiles)
    for (const ScaleKind scales : {ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock})
      expect_right(batched(gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", scales), 3), 42, tile, 4);
}

TEST_F(GemmBatch, InGroupsOfSlots) {
  // The last group of slots reaches past k: its scales are the batch's own.
  GemmSchedule schedule = schedule_of(test::kGroupTiles[3]);
  schedule.k_group = 2;
  const GemmProblem problem =
      batched(gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", ScaleKind::kPerBlock), 2);
  GemmCase call = make_gemm_inputs(problem, {"batch", 42, true}, {.seed = 5});
  // Scales of the second group are NaN, and so are its results alone.
  const GemmOutput fine = run(call, schedule);
  test::expect_right(call, fine);
  const auto half = static_cast<std::ptrdiff_t>(call.scale_a.size() / 2);
  std::fill(call.scale_a.begin() + half, call.scale_a.end(), std::numeric_limits<float>::quiet_NaN());
  const GemmOutput changed = run(call, schedule);
  const auto of_first = static_cast<std::ptrdiff_t>(fine.d.size() / 2);
  EXPECT_TRUE(std::equal(fine.d.begin(), fine.d.begin() + of_first, changed.d.begin()));
  EXPECT_NE(fine, changed);
}

TEST_F(GemmBatch, WithEpilogues) {
  for (const Tile& tile : test::kGroupTiles)
    for (const DType result : {DType::kBf16, DType::kF32}) {
      GemmProblem problem = plain_batch(3);
      problem.epilogue = "silu(alpha * acc + bias) + beta * c";
      problem.dtype.d = result;
      expect_right(problem, 21, tile, 2);
    }
}

TEST_F(GemmBatch, OfGatesAndQuantisedResults) {
  constexpr Tile kWhole[] = {
      {"portable", Family::kPortable, 16, 256, 0, Roles::kCooperative, false},
      {"cooperative", Family::kHopper, 64, 256, 1, Roles::kCooperative, false},
      {"swapped", Family::kHopper, 256, 16, 2, Roles::kCooperative, true},
  };
  for (const Tile& tile : kWhole) {
    GemmProblem problem = plain_batch(2, 512, 104);
    problem.dtype.d = DType::kE4m3;
    problem.epilogue = "d = quantize(silu(gate) * up, e4m3, per=token_group(128), scale=s)";
    expect_right(problem, 21, tile);
  }
}

TEST_F(GemmBatch, OfMatricesWithColumnsInnermost) {
  for (const Tile& tile : test::kGroupTiles) {
    if (tile.block_n % 64 != 0 && tile.family == Family::kHopper && !tile.swap_ab) continue;
    GemmProblem problem = plain_batch(3);
    problem.layout = OperandLayout::kNn;
    expect_right(problem, 33, tile, 3);
  }
}

TEST_F(GemmBatch, WithoutKTheEpilogueIsOfZeros) {
  for (const Tile& tile : {test::kGroupTiles[0], test::kGroupTiles[1], test::kGroupTiles[3]}) {
    GemmProblem problem = plain_batch(3, 72, 0);
    problem.epilogue = "acc + bias";
    expect_right(problem, 9, tile);
  }
}

TEST_F(GemmBatch, WritesColumnsOfAWiderTensor) {
  // As the absorbed q of a latent attention: a is the first part of each head's query, d the first part of its latent
  // query. What lies beside them stays.
  const GemmCase call = [] {
    GemmCase made = make_gemm_inputs(plain_batch(4, 64, 32), {"batch", 4 * 19, true}, {.seed = 5, .padding = 16});
    made.side_by_side = true;
    return made;
  }();
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    test::expect_right(call, run(call, schedule_of(tile)));
  }
}

TEST_F(GemmBatch, AResultDoesNotDependOnTheSms) {
  for (const Tile& tile : test::kGroupTiles) {
    SCOPED_TRACE(tile.name);
    const GemmCase call = make_gemm_inputs(plain_batch(3), {"batch", 3 * 70, true}, {.seed = 3});
    EXPECT_EQ(run(call, schedule_of(tile)),
              run(call, schedule_of(tile), [](GemmTensors& tensors) { tensors.sm_budget = 2; }));
  }
}

TEST_F(GemmBatch, WeightsMayComeEarly) {
  for (const Tile& tile : {test::kGroupTiles[1], test::kGroupTiles[3]}) {
    const GemmCase call = make_gemm_inputs(plain_batch(3), {"batch", 3 * 20, true}, {.seed = 3});
    test::expect_right(
        call, run(call, schedule_of(tile), [](GemmTensors& tensors) { tensors.pdl = tensors.constant_b = true; }));
  }
}

TEST_F(GemmBatch, LaunchesThatDoNotFitAreRefused) {
  const GemmCase call = make_gemm_inputs(plain_batch(3), {"batch", 60, true}, {.seed = 5});
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.m = 59; }), HasSubstr("60 would do"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.bounds = t.a; }), HasSubstr("/bounds: is given"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.expected_m = 4; }), HasSubstr("/expected_m: 4 is given"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.a_batch_stride = -8; }), HasSubstr("/a_batch_stride: -8"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.a_batch_stride = 20 * 104 + 4; }),
              HasSubstr("/a_batch_stride: 2084 elements of bf16 put groups off their 16-byte boundaries"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.d_batch_stride = 80; }),
              HasSubstr("/d_batch_stride: 80 brings rows of d of two groups together"));
  EXPECT_THAT(
      refusal(call, [](GemmTensors& t) { t.b_batch_stride = std::int64_t{1} << 60; }),
      HasSubstr("/b_batch_stride: 1152921504606846976 elements of bf16 from one group to the next bring 3 groups"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.d = t.a + 19 * 104 * 2 * 3; }), HasSubstr("/d: overlaps a"));
  const GemmCase dense = make_gemm_inputs(gemm_problem(DType::kBf16, DType::kBf16, 72, 104), {"dense", 20, true});
  EXPECT_THAT(refusal(dense, [](GemmTensors& t) { t.d_batch_stride = 8; }),
              HasSubstr("/d_batch_stride: 8 is given, and the problem has no batch"));
}

}  // namespace
}  // namespace kernelwright::gemm_batch_test
