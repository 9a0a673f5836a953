// GEMM launches at the edges: no rows, no k, memory with unusual strides and alignment, and arguments that a launch
// must refuse. On the emulator, with every check on. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_gemm.h"

namespace kernelwright::gemm_edges_test {
namespace {

using test::gemm_problem;
using testing::HasSubstr;

class GemmEdges : public testing::Test {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  GemmOutput run(const GemmCase& call, const test::TensorChange& change = {}) {
    return test::run_checked(engine_, call, {}, change);
  }
  void expect_right(const GemmCase& call) { test::expect_right(call, run(call)); }
  std::string refusal(const GemmCase& call, const test::TensorChange& change) {
    return test::refusal_of_launch(engine_, call, change);
  }
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kEager, 1);
};

GemmProblem problem_of(const char* epilogue = "acc", int n = 72, int k = 104) {
  return gemm_problem(DType::kBf16, DType::kBf16, n, k, epilogue);
}
GemmCase inputs(const GemmProblem& problem, int m, int padding = 0) {
  return make_gemm_inputs(problem, {"edge", m, true}, {.seed = 9, .padding = padding});
}

TEST_F(GemmEdges, NoRowsQueueNothing) { EXPECT_TRUE(run(inputs(problem_of("acc + bias"), 0)).d.empty()); }

TEST_F(GemmEdges, WithoutKTheEpilogueIsOfZeros) {
  for (const char* epilogue : {"acc", "acc + bias", "relu(acc + bias)", "alpha * acc + bias + beta * c"})
    for (const int m : {1, 70}) expect_right(inputs(problem_of(epilogue, 72, 0), m, 3));
}

TEST_F(GemmEdges, WithoutKPartsAddZeros) {
  GemmSchedule parts;
  parts.split_k = 4;
  for (const SplitMode mode : {SplitMode::kCluster, SplitMode::kTurnstile})
    for (const DType dtype : {DType::kBf16, DType::kE4m3}) {
      parts.split_mode = mode;
      const auto scales = dtype == DType::kE4m3 ? ScaleKind::kPerBlock : ScaleKind::kNone;
      const GemmCase call = inputs(gemm_problem(dtype, DType::kBf16, 72, 0, "acc + bias + c", scales), 70, 3);
      test::expect_right(call, test::run_checked(engine_, call, parts));
    }
}

TEST_F(GemmEdges, OneRow) { expect_right(inputs(problem_of("acc + bias + c"), 1, 5)); }

TEST_F(GemmEdges, TheSmallestProblem) { expect_right(inputs(problem_of("acc", 8, 8), 1)); }

TEST_F(GemmEdges, RowsMayBePadded) {
  for (const OperandLayout layout : {OperandLayout::kNt, OperandLayout::kNn, OperandLayout::kTn, OperandLayout::kTt}) {
    GemmProblem problem = problem_of("acc + c");
    problem.layout = layout;
    expect_right(inputs(problem, 77, 11));
  }
}

TEST_F(GemmEdges, AnOddNumberOfRowsOfATransposedA) {
  GemmProblem problem = problem_of();
  problem.layout = OperandLayout::kTn;
  expect_right(inputs(problem, 13));
}

TEST_F(GemmEdges, DMayBeC) {
  GemmProblem problem = problem_of("acc + beta * c");
  const GemmCase call = inputs(problem, 70, 8);
  GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(problem));
  on_device.accumulate_in_place();
  on_device.poison();
  on_device.launch();
  test::expect_right(call, on_device.download());
  EXPECT_TRUE(on_device.guards_are_intact());
}

TEST_F(GemmEdges, NanAndInfinityPropagate) {
  GemmCase call = inputs(problem_of(), 70);
  fill_with_nan(DType::kBf16, {call.a.row(3), 2});
  const float infinity = std::numeric_limits<float>::infinity();
  encode_row(DType::kBf16, {&infinity, 1}, call.b.row(50));
  call.random_values = false;
  expect_right(call);
}

/// Cases in which parts of a sum, or of an operand, come from another CTA, and cases in which f32 sums are added slab
/// by slab.
TEST_F(GemmEdges, NanAndInfinityPropagateThroughClustersAndParts) {
  GemmSchedule cluster, parts, turns;
  for (GemmSchedule* schedule : {&cluster, &parts, &turns}) {
    schedule->block_m = 64, schedule->block_n = 128, schedule->math_warpgroups = 1, schedule->stages = 4;
    schedule->roles = Roles::kCooperative;
  }
  cluster.cluster = ClusterShape{2, 1};
  parts.split_k = turns.split_k = 2;
  turns.split_mode = SplitMode::kTurnstile;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::kBf16, DType::kE5m2})
    for (const GemmSchedule& schedule : {cluster, parts, turns}) {
      GemmCase call = inputs(gemm_problem(dtype, DType::kBf16, 128, 272), 130);
      fill_with_nan(dtype, {call.a.row(70), bytes_of(dtype)});
      encode_row(dtype, {&infinity, 1}, call.b.row(50));
      call.random_values = false;
      test::expect_right(call, test::run_checked(engine_, call, schedule));
    }
}

TEST_F(GemmEdges, StridesThatPutRowsOffTheirBoundariesAreNamed) {
  const GemmCase call = inputs(problem_of(), 9, 20);
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.a_stride = 107; }),
              HasSubstr("/tensors/a_stride: 107 elements of bf16 put rows off their 16-byte boundaries"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.d_stride = 76; }), HasSubstr("/tensors/d_stride: 76 elements"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.b_stride = 96; }),
              HasSubstr("/tensors/b_stride: 96 is less than the 104 elements of a row"));
}

TEST_F(GemmEdges, AddressesAreNamed) {
  const GemmCase call = inputs(problem_of("acc + bias"), 9);
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.a += 8; }), HasSubstr("/tensors/a: address "));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.b = 0; }), HasSubstr("/tensors/b: is null"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.bias = 0; }), HasSubstr("/tensors/bias: is null"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.c = t.bias; }), HasSubstr("/tensors/c: is given"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.m = -1; }), HasSubstr("/tensors/m: -1 is negative"));
}

TEST_F(GemmEdges, AllThatIsWrongIsToldAtOnce) {
  const std::string text = refusal(inputs(problem_of(), 9), [](GemmTensors& t) {
    t.a = 0;
    t.b += 2;
    t.sm_budget = -1;
  });
  for (const char* part : {"/tensors/a: ", "/tensors/b: ", "/tensors/sm_budget: "}) EXPECT_THAT(text, HasSubstr(part));
}

TEST_F(GemmEdges, BuffersThatOverlapAreNamed) {
  const GemmCase call = inputs(problem_of("acc + c"), 9, 8);
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.d = t.a; }), HasSubstr("/tensors/d: overlaps a"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.d = t.b + 1600; }), HasSubstr("/tensors/d: overlaps b"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.c = t.d + 16; }),
              HasSubstr("/tensors/d: overlaps c without being it"));
}

TEST_F(GemmEdges, StridesOfBlockScalesAreNamed) {
  const GemmProblem problem = gemm_problem(DType::kE4m3, DType::kBf16, 72, 272, "acc", ScaleKind::kPerBlock);
  const GemmCase call = inputs(problem, 9);
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.scale_a_stride = 10; }), HasSubstr("/tensors/scale_a_stride: 10"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.scale_a_stride = 8; }), HasSubstr("12 would do"));
  EXPECT_THAT(refusal(call, [](GemmTensors& t) { t.scale_b_stride = 2; }),
              HasSubstr("/tensors/scale_b_stride: 2 is less than the 3 blocks"));
}

TEST_F(GemmEdges, DependentLaunchesChangeNothing) {
  const GemmCase call = inputs(problem_of(), 70);
  EXPECT_EQ(run(call, [](GemmTensors& t) { t.pdl = true; }), run(call));
}

}  // namespace
}  // namespace kernelwright::gemm_edges_test
