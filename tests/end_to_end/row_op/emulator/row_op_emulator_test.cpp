// Steps over rows, on the emulator with every check on, against the fp64 reference.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "contract/block_scales.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_row_op.h"

namespace kernelwright {
namespace {

using test::expect_right;
using test::normed_rows;
using test::run_checked;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

class RowOpOnTheEmulator : public test::OnTheEmulator<Arch> {
 protected:
  void expect_right_for(const RowOpProblem& problem, int rows, bool gaps = true) {
    SCOPED_TRACE(testing::Message() << problem.width << " elements, " << rows << " rows");
    const RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = rows}, {.gaps = gaps});
    expect_right(call, run_checked(engine_, call));
  }
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Archs, RowOpOnTheEmulator, testing::Values(Arch::kSm80, Arch::kSm90a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(RowOpOnTheEmulator, TakesRowsOfEveryWidthAndAnyNumberOfThem) {
  for (const int width : {8, 64, 1000, 4096, 7168, 14336, 28672}) {
    RowOpProblem problem = normed_rows(width);
    problem.input = RowInput::kAdd;
    for (const int rows : {0, 1, 3, 17})
      if (width <= 4096 || rows < 17) expect_right_for(problem, rows, rows == 3);
  }
}

TEST_P(RowOpOnTheEmulator, QuantisesWithScalesOfEachKind) {
  for (const DType out : {DType::kE4m3, DType::kE5m2})
    for (const ScaleKind kind : {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock}) {
      SCOPED_TRACE(std::string(to_string(out)) + " " + std::string(to_string(kind)));
      RowOpProblem problem = normed_rows(out == DType::kE4m3 ? 384 : 1024);
      problem.dtype = {out == DType::kE4m3 ? DType::kBf16 : DType::kF16, out};
      problem.scales.kind = kind;
      problem.scales.power_of_two = out == DType::kE5m2 && kind != ScaleKind::kNone && kind != ScaleKind::kPerTensor;
      if (kind == ScaleKind::kPerBlock && out == DType::kE5m2) problem.scales.layout = ScaleLayout::kRows;
      if (kind == ScaleKind::kPerToken && out == DType::kE5m2) problem.scales.least = 0.5;
      expect_right_for(problem, 5);
    }
}

TEST_P(RowOpOnTheEmulator, MultipliesGatesInEveryOrder) {
  for (const int pairs : {0, 1, 8})
    for (const Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
      SCOPED_TRACE(testing::Message() << pairs << " " << to_string(activation));
      RowOpProblem problem;
      problem.width = pairs == 0 ? 3200 : 1024;  // 3200: two CTAs have a row, and some of their threads nothing
      problem.input = RowInput::kGateUp;
      problem.dtype.out = pairs == 8 ? DType::kE4m3 : DType::kBf16;
      problem.gate.pairs = pairs;
      problem.gate.activation = activation;
      problem.gate.clamped = activation == Activation::kSilu && pairs > 0;
      expect_right_for(problem, 3);
    }
}

TEST_P(RowOpOnTheEmulator, MergesHeadsByTheirLses) {
  for (const auto& [width, heads] : {std::pair{2048, 16}, {192, 3}, {8, 1}, {4096, 1}}) {
    RowOpProblem problem;
    problem.width = width, problem.heads = heads;
    problem.input = RowInput::kMerge;
    if (width == 2048) problem.dtype.out = DType::kE4m3, problem.scales.kind = ScaleKind::kPerBlock;
    for (const int rows : {0, 1, 37}) expect_right_for(problem, rows, rows == 37);
  }
}

/// Blackwell has an instruction for elements of 4 bits.
class BlockScaledRows : public RowOpOnTheEmulator {};
INSTANTIATE_TEST_SUITE_P(Archs, BlockScaledRows, testing::Values(Arch::kSm80, Arch::kSm90a, Arch::kSm100a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(BlockScaledRows, AreOperandsOfAGemm) {
  for (const DType out : {DType::kMxfp8, DType::kMxfp4}) {
    SCOPED_TRACE(std::string(to_string(out)) + ", rounded up");
    RowOpProblem problem = normed_rows(288);
    problem.dtype.out = out;
    problem.scales = {.kind = ScaleKind::kPerBlock, .round = ScaleRound::kUp};
    expect_right_for(problem, 5);
  }
  for (const DType out : {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4})
    for (const int width : {32, 96, 2880}) {
      SCOPED_TRACE(to_string(out));
      RowOpProblem problem = normed_rows(width);
      problem.dtype = {width == 96 ? DType::kF32 : DType::kBf16, out};
      problem.scales.kind = ScaleKind::kPerBlock;
      expect_right_for(problem, width == 32 ? 130 : 3);
    }
}

/// What no architecture changes.
class RowOp : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
};
INSTANTIATE_TEST_SUITE_P(, RowOp, testing::Values(0));

TEST_P(RowOp, GivesTheSameElementsWithAnySchedule) {
  RowOpProblem problem;
  problem.width = 512;
  problem.input = RowInput::kGateUp;
  problem.dtype.out = DType::kE4m3;
  problem.scales.kind = ScaleKind::kPerBlock;
  const RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 5});
  const RowOpOutput usual = run_checked(engine_, call);
  for (const auto& [vector, threads, rows, ctas] : {std::tuple{8, 16, 2, 1},
                                                    {8, 32, 3, 1},
                                                    {8, 64, 1, 1},
                                                    {16, 16, 4, 1},
                                                    {16, 32, 1, 1},
                                                    {16, 96, 1, 1},
                                                    {8, 512, 1, 1},
                                                    {8, 16, 2, 4},
                                                    {8, 32, 1, 3},
                                                    {16, 8, 4, 2},
                                                    {8, 64, 1, 2}}) {
    RowOpSchedule schedule;
    schedule.vector = vector, schedule.threads_per_row = threads, schedule.rows_per_cta = rows;
    schedule.ctas_per_row = ctas;
    EXPECT_EQ(run_checked(engine_, call, schedule), usual) << vector << " " << threads << " " << rows << " " << ctas;
  }
}

TEST_P(RowOp, WorksInPlaceBehindAnotherKernel) {
  RowOpProblem problem = normed_rows(1000);
  problem.input = RowInput::kAdd;
  const RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 9, .check = true});
  RowOpOutput apart = run_checked(engine_, call);
  const RowOpOutput in_place = run_checked(engine_, call, {}, [](RowOpDeviceCase& on_device) {
    on_device.work_in_place();
    on_device.tensors().pdl = on_device.tensors().constant_weight = true;
  });
  const auto row_of = [&](const std::vector<std::byte>& bytes, std::int64_t row) {
    const auto first = bytes.begin() + row * call.out_stride * 2;
    return std::vector<std::byte>(first, first + 2000);
  };
  for (std::int64_t row = 0; row < call.rows; ++row) {
    EXPECT_EQ(row_of(in_place.out, row), row_of(apart.out, row));
    EXPECT_EQ(row_of(in_place.residual_out, row), row_of(apart.residual_out, row));
  }
}

/// The rows of the second of two launches that may overlap. Its weights are the first's rows where `written` says so.
RowOpOutput run_behind_another(Engine& engine, bool written, bool constant_weight) {
  const RowOpCase call = make_row_op_inputs(normed_rows(1024), {.name = "drawn", .rows = 3});
  const RowOpKernel kernel = engine.prepare(call.problem);
  RowOpDeviceCase first(engine.device(0), call, kernel), second(engine.device(0), call, kernel);
  first.poison();
  second.poison();
  second.use(first.stream());
  (written ? second.tensors().weight : second.tensors().x) = first.tensors().out;
  second.tensors().pdl = true, second.tensors().constant_weight = constant_weight;
  first.launch();
  second.launch();
  return second.download();
}

TEST_P(RowOp, WeightsComeEarlyWhereTheyAreConstant) {
  EXPECT_EQ(run_behind_another(engine_, false, true), run_behind_another(engine_, false, false));
  run_behind_another(engine_, true, false);
  test::expect_no_reports(engine_);
  run_behind_another(engine_, true, true);
  const auto reports = dynamic_cast<EmulatorBackend&>(engine_.backend()).take_reports();
  EXPECT_FALSE(reports.empty()) << "weights of the launch ahead were read before it had ended";
  for (const auto& [kernel, report] : reports)
    EXPECT_EQ(report.kind, emulator::HazardKind::kGridDependency) << report.text();
}

TEST_P(RowOp, KeepsNanAndInfinityInTheirRowOrBlock) {
  RowOpProblem problem;
  problem.width = 256;
  problem.dtype = {DType::kF32, DType::kE4m3};
  for (const ScaleKind kind : {ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock}) {
    SCOPED_TRACE(to_string(kind));
    problem.scales.kind = kind;
    RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 4});
    const float zeros[256] = {};
    std::memcpy(call.x.data(), zeros, sizeof zeros);               // row 0
    std::memcpy(call.x.data() + 256 * 4 + 40, &kNan, 4);           // of row 1
    std::memcpy(call.x.data() + 2 * 256 * 4 + 40, &kInfinity, 4);  // of row 2
    const RowOpOutput output = run_checked(engine_, call);
    expect_right(call, output);
    EXPECT_EQ(output.out[0], std::byte{0}) << "a row of zeros is zeros";
    if (kind == ScaleKind::kPerTensor) continue;
    float scale;
    std::memcpy(&scale, output.scale.data(), 4);
    EXPECT_EQ(scale, 0x1p-126f) << "the smallest normal f32, whose reciprocal is a number";
  }
}

TEST_P(RowOp, MergesNothingOfARowThatSawNoKey) {
  RowOpProblem problem;
  problem.width = 64, problem.heads = 2;
  problem.dtype = {DType::kF32, DType::kF32};
  problem.input = RowInput::kMerge;
  RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 4});
  call.lse = {1, 100, 1, kNan, -kInfinity, 3, -kInfinity, 3};  // of heads 0 and 1 of each row
  call.residual_lse = {1, -100, -kInfinity, 0, 2, 3, -kInfinity, kNan};
  const auto spoil = [&](std::vector<std::byte>& rows, int row) {
    std::memcpy(rows.data() + row * 64 * 4 + 40, &kNan, 4);  // of head 0
  };
  spoil(call.residual, 1);
  spoil(call.x, 2);
  spoil(call.x, 3);
  spoil(call.residual, 3);
  const RowOpOutput output = run_checked(engine_, call);
  expect_right(call, output);
  const auto element = [&](int row, int i) {
    float value;
    std::memcpy(&value, output.out.data() + (row * 64 + i) * 4, 4);
    return value;
  };
  for (int i = 0; i < 32; ++i) {
    EXPECT_TRUE(std::isfinite(element(1, i)) && std::isfinite(element(2, i)));
    EXPECT_EQ(element(3, i), 0) << "no key in either part";
    EXPECT_TRUE(std::isnan(element(1, 32 + i)) && std::isnan(element(3, 32 + i))) << "an LSE is NaN";
  }
}

TEST_P(RowOp, GivesABlockWithoutNumbersTheScaleNan) {
  RowOpProblem problem;
  problem.width = 128;
  problem.dtype = {DType::kF32, DType::kMxfp8};
  problem.scales.kind = ScaleKind::kPerBlock;
  RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 2});
  std::memcpy(call.x.data() + 40, &kNan, 4);
  std::memcpy(call.x.data() + 40 * 4, &kInfinity, 4);  // of the next block
  const RowOpOutput output = run_checked(engine_, call);
  expect_right(call, output);
  EXPECT_EQ(output.scale[0], std::byte{0xff});
  EXPECT_EQ(output.scale[1], std::byte{0xff});
  EXPECT_NE(output.scale[2], std::byte{0xff});
}

// A row 2^31 elements behind the first lies in no buffer of a test. The fault names the address, which has all 64 bits.
TEST(RowOpOffsets, HaveSixtyFourBits) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
  const RowOpCase call = make_row_op_inputs(normed_rows(64), {.name = "drawn", .rows = 2});
  RowOpDeviceCase on_device(engine.device(0), call, engine.prepare(call.problem));
  on_device.tensors().x_stride = on_device.tensors().out_stride = std::int64_t{1} << 31;
  on_device.poison();
  try {
    on_device.launch();
    on_device.wait();
    ADD_FAILURE() << "the second row was read elsewhere";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find(fmt::format("{:#x}", on_device.tensors().x + (DevicePtr{1} << 32))),
              std::string::npos)
        << error.what();
  }
}

TEST_P(RowOp, NamesEveryArgumentOfAMergeThatDoesNotFit) {
  RowOpProblem problem;
  problem.width = 64, problem.heads = 2;
  problem.input = RowInput::kMerge;
  const RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 3});
  const auto refusal = [&](const test::RowOpChange& change) { return test::refusal_of_launch(engine_, call, change); };
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.lse = 0; }), "/tensors/lse: is null; give a device address");
  EXPECT_THAT(
      refusal([](RowOpTensors& t) { t.residual_lse += 2; }),
      testing::MatchesRegex("/tensors/residual_lse: address 0x[0-9a-f]+ is not a multiple of 4; give an aligned "
                            "one"));
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.lse_stride = 1; }),
            "/tensors/lse_stride: 1 is less than the 2 elements of a row");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.lse_head_stride = 2, t.lse_stride = 1; }),
            "/tensors/lse_head_stride: 2 is less than the 3 elements of a row");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.lse_stride = -4; }),
            "/tensors/lse_stride: -4 is no distance from one row to the next");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.lse_out = t.residual_lse; }),
            "/tensors/lse_out: overlaps residual_lse; give one of them other memory");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.out = t.residual + 16; }),
            "/tensors/out: overlaps residual, and is not residual itself with its dtype and stride");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.lse = t.out; }),
            "/tensors/out: overlaps an LSE, which is still read while rows are written");
}

TEST_P(RowOp, NamesEveryArgumentThatDoesNotFit) {
  RowOpProblem problem = normed_rows(64);
  problem.input = RowInput::kAdd;
  const RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 3});
  const auto refusal = [&](const test::RowOpChange& change) { return test::refusal_of_launch(engine_, call, change); };
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.rows = -1; }), "/tensors/rows: -1 is outside [0, 2147482624]");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.x_stride = 68; }),
            "/tensors/x_stride: 68 elements of bf16 put rows off their 16-byte boundaries; it takes a multiple of 8");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.residual_stride = 32; }),
            "/tensors/residual_stride: 32 is less than the 64 elements of a row");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.eps = -1.f; }), "/tensors/eps: -1 is no finite number from 0 on");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.tensor_scale = 2; }),
            "/tensors/tensor_scale: 2 is for rows of mxfp8, mxfp4 and nvfp4; leave it out, or give a scale per tensor");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.out = t.x + 16; }),
            "/tensors/out: overlaps x, and is not x itself with its dtype and stride");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.residual_out = t.residual + 128; }),
            "/tensors/residual_out: overlaps residual, and is not residual itself with its stride");
  EXPECT_EQ(refusal([](RowOpTensors& t) { t.out = t.residual; }),
            "/tensors/out: overlaps residual, which is still read while rows are written");
  for (DevicePtr RowOpTensors::*member : {&RowOpTensors::x, &RowOpTensors::residual, &RowOpTensors::residual_out,
                                          &RowOpTensors::weight, &RowOpTensors::out})
    EXPECT_NE(refusal([&](RowOpTensors& t) { t.*member = 0; }), "");
}

TEST_P(RowOp, TakesRowsOfOneBufferSideBySide) {
  RowOpProblem problem = normed_rows(64);
  RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 3});
  call.x_stride = 128;  // x, and out behind it
  std::vector<std::byte> both(3 * 128 * 2);
  for (std::size_t row = 0; row < 3; ++row)
    std::copy_n(call.x.begin() + static_cast<std::ptrdiff_t>(row * 128), 128,
                both.begin() + static_cast<std::ptrdiff_t>(row * 256));
  call.x = both;
  EXPECT_EQ(test::refusal_of_launch(engine_, call, [](RowOpTensors& t) { t.out = t.x + 128, t.out_stride = 128; }), "");
  test::expect_no_reports(engine_);
}

TEST_P(RowOp, TakesEpsAndLimitOfTheLaunch) {
  RowOpProblem problem = normed_rows(64);
  RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 2});
  const RowOpOutput output =
      run_checked(engine_, call, {}, [](RowOpDeviceCase& on_device) { on_device.tensors().eps = 0.5f; });
  call.problem.norm.eps = 0.5;
  expect_right(call, output);
  problem = {.width = 64, .input = RowInput::kGateUp, .gate = {.clamped = true}};
  call = make_row_op_inputs(problem, {.name = "drawn", .rows = 2});
  const RowOpOutput clamped = run_checked(engine_, call, {}, [](RowOpDeviceCase& on_device) {
    on_device.tensors().gate_limit = 1.5f, on_device.tensors().gate_alpha = 1.f;
  });
  call.problem.gate.limit = 1.5, call.problem.gate.alpha = 1;
  expect_right(call, clamped);
}

}  // namespace
}  // namespace kernelwright
