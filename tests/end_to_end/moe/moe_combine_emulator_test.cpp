// Sums over the rows of tokens' experts, on the emulator with every check on, against the reference in fp64.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_moe_combine.h"

namespace kernelwright::moe_combine_emulator_test {
namespace {

using test::combined_rows;
using test::run_checked;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_right(const MoeCombineCase& call, const MoeCombineOutput& output) {
  test::expect_right<MoeCombineCase, MoeCombineOutput>(call, output);
}

MoeCombineCase drawn(const MoeCombineProblem& problem, int tokens, const MoeCombineInputOptions& options = {}) {
  return make_moe_combine_inputs(problem, {.name = "drawn", .tokens = tokens}, options);
}

class MoeCombineOnTheEmulator : public test::OnTheEmulator<Arch> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Archs, MoeCombineOnTheEmulator, testing::Values(Arch::kSm80, Arch::kSm90a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(MoeCombineOnTheEmulator, TakesAnyWidthTopKAndNumberOfTokens) {
  for (const auto& [width, top_k] : {std::pair{8, 1}, {24, 2}, {264, 3}, {2048, 8}, {1032, 6}, {40, 32}})
    for (const int tokens : {0, 1, 7}) {
      SCOPED_TRACE(testing::Message() << width << " wide, top " << top_k << ", " << tokens << " tokens");
      const MoeCombineCase call = drawn(combined_rows(width, top_k), tokens, {.gaps = true, .odd = true});
      expect_right(call, run_checked(engine_, call));
    }
}

TEST_P(MoeCombineOnTheEmulator, TakesEachDTypeWithAndWithoutWeightsAndResidual) {
  for (const DType in : {DType::kBf16, DType::kF16})
    for (const DType out : {DType::kBf16, DType::kF16, DType::kF32})
      for (const bool weighted : {false, true})
        for (const bool residual : {false, true}) {
          SCOPED_TRACE(testing::Message() << to_string(in) << " to " << to_string(out) << (weighted ? " weighted" : "")
                                          << (residual ? " residual" : ""));
          MoeCombineProblem problem = combined_rows(136, 4);
          problem.dtype = {in, out};
          problem.weighted = weighted, problem.residual = residual;
          const MoeCombineCase call = drawn(problem, 9, {.odd = true});
          expect_right(call, run_checked(engine_, call));
        }
}

/// What no architecture changes.
class MoeCombine : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
};
INSTANTIATE_TEST_SUITE_P(, MoeCombine, testing::Values(0));

/// Two rows of eight elements for one token: 1 and 2 everywhere.
MoeCombineCase two_rows(float second = 2) {
  MoeCombineProblem problem = combined_rows(8, 2);
  problem.dtype.out = DType::kF32;
  MoeCombineCase call = drawn(problem, 1);
  std::vector<float> values(8, 1.f);
  values.resize(16, second);
  encode_row(DType::kBf16, values, call.rows.data());
  call.positions = {0, 1};
  call.weights = {3, 0.5};
  return call;
}
float first_of(const MoeCombineOutput& output) {
  float value;
  std::memcpy(&value, output.out.data(), sizeof value);
  return value;
}

TEST_P(MoeCombine, ReadsNoRowWhoseWeightIsZero) {
  MoeCombineCase call = two_rows(kNan);
  call.weights[1] = 0;
  EXPECT_EQ(first_of(run_checked(engine_, call)), 3) << "NaN spread";
  call.weights[1] = -0.f;
  EXPECT_EQ(first_of(run_checked(engine_, call)), 3) << "NaN spread";
  call.weights[1] = 1;
  EXPECT_TRUE(std::isnan(first_of(run_checked(engine_, call))));
}

TEST_P(MoeCombine, SkipsPositionsThatNoRowHas) {
  MoeCombineCase call = two_rows();
  EXPECT_EQ(first_of(run_checked(engine_, call)), 4);
  for (const std::int32_t nowhere : {-1, 2, std::numeric_limits<std::int32_t>::min()}) {
    call.positions[1] = nowhere;
    EXPECT_EQ(first_of(run_checked(engine_, call)), 3) << nowhere;
    call.weights[1] = kInfinity;
    EXPECT_EQ(first_of(run_checked(engine_, call)), 3) << "the weight of no row spread";
    call.weights[1] = kNan;
    EXPECT_EQ(first_of(run_checked(engine_, call)), 3) << "the weight of no row spread";
  }
}

TEST_P(MoeCombine, AddsInTheOrderOfSlotsAndTheResidualLast) {
  MoeCombineProblem problem = combined_rows(8, 2);
  problem.dtype.out = DType::kF32;
  problem.weighted = false, problem.residual = true;
  MoeCombineCase call = drawn(problem, 1);
  const std::vector<float> values{0x1p30f, 0, 0, 0, 0, 0, 0, 0, 1};
  encode_row(DType::kBf16, values, call.rows.data());
  call.positions = {0, 1};
  encode_row(DType::kBf16, std::vector<float>{-0x1p30f}, call.residual.data());
  EXPECT_EQ(first_of(run_checked(engine_, call)), 0) << "2^30 + 1 is rounded before the residual comes";
}

TEST_P(MoeCombine, TakesALaunchWithoutRows) {
  MoeCombineProblem problem = combined_rows(64, 2);
  problem.residual = true;
  MoeCombineCase call = drawn(problem, 3);
  std::fill(call.positions.begin(), call.positions.end(), -1);
  call.num_rows = 0;
  expect_right(call,
               run_checked(engine_, call, {}, [](MoeCombineDeviceCase& on_device) { on_device.tensors().rows = 0; }));
}

TEST_P(MoeCombine, GivesTheSameBitsWithAnyGridAndInPlace) {
  MoeCombineProblem problem = combined_rows(520, 4);
  problem.residual = true;
  const MoeCombineCase call = drawn(problem, 11, {.odd = true});
  const MoeCombineOutput usual = run_checked(engine_, call);
  for (const int threads : {32, 96, 512}) {
    MoeCombineSchedule schedule;
    schedule.threads = threads;
    EXPECT_EQ(run_checked(engine_, call, schedule), usual) << threads;
  }
  EXPECT_EQ(run_checked(engine_, call, {}, [](auto& on_device) { on_device.tensors().pdl = true; }), usual);
  EXPECT_EQ(run_checked(engine_, call, {}, [](auto& on_device) { on_device.add_in_place(); }), usual);
}

TEST_P(MoeCombine, LaunchesAgainWithOtherDataBehindTheSameArguments) {
  MoeCombineProblem problem = combined_rows(264, 4);
  problem.residual = true;
  const MoeCombineCase first = drawn(problem, 9, {.seed = 1, .odd = true});
  const MoeCombineCase second = drawn(problem, 9, {.seed = 2, .odd = true});
  MoeCombineDeviceCase on_device(engine_.device(0), first, engine_.prepare(problem));
  on_device.poison();
  on_device.launch();
  const MoeCombineOutput once = on_device.download();
  expect_right(first, once);
  on_device.take_inputs(second);
  on_device.launch();
  expect_right(second, on_device.download());
  on_device.take_inputs(first);
  on_device.launch();
  EXPECT_EQ(on_device.download(), once);
  test::expect_no_reports(engine_);
}

TEST_P(MoeCombine, NamesEveryArgumentThatDoesNotFit) {
  MoeCombineProblem problem = combined_rows(64, 4);
  problem.residual = true;
  const MoeCombineCase call = drawn(problem, 5, {.gaps = true});
  const auto refusal = [&](const std::function<void(MoeCombineTensors&)>& change) {
    return test::refusal_of<MoeCombineDeviceCase>(engine_, call, change);
  };
  EXPECT_EQ(refusal([](auto& t) { t.tokens = -1; }), "/tensors/tokens: -1 is outside [0, 16777216]");
  EXPECT_EQ(refusal([](auto& t) { t.num_rows = std::int64_t{1} << 31; }),
            "/tensors/num_rows: 2147483648 is outside [0, 2147483647]");
  EXPECT_EQ(refusal([](auto& t) { t.rows_stride = 60; }),
            "/tensors/rows_stride: 60 is less than the 64 elements of a row\n/tensors/rows_stride: 60 elements of bf16 "
            "put rows off their 16-byte boundaries; it takes a multiple of 8");
  EXPECT_EQ(refusal([](auto& t) { t.out_stride = 68; }),
            "/tensors/out_stride: 68 elements of bf16 put rows off their 16-byte boundaries; it takes a multiple of 8");
  EXPECT_EQ(refusal([](auto& t) { t.out = t.rows; }), "/tensors/out: overlaps rows; give one of them other memory");
  EXPECT_EQ(refusal([](auto& t) { t.out = t.weights; }),
            "/tensors/out: overlaps weights; give one of them other memory");
  EXPECT_EQ(refusal([](auto& t) { t.out = t.residual + 16; }),
            "/tensors/out: overlaps residual, and is not residual itself with its dtype and stride");
  const std::string odd = refusal([](auto& t) { t.positions += 8; });
  EXPECT_NE(odd.find("/tensors/positions: address"), std::string::npos) << odd;
  EXPECT_NE(odd.find("is not a multiple of 16"), std::string::npos) << odd;
  for (DevicePtr MoeCombineTensors::*member :
       {&MoeCombineTensors::rows, &MoeCombineTensors::positions, &MoeCombineTensors::weights,
        &MoeCombineTensors::residual, &MoeCombineTensors::out})
    EXPECT_NE(refusal([&](auto& t) { t.*member = 0; }).find("is null; give a device address"), std::string::npos);
  MoeCombineCase old = drawn(combined_rows(64, 4), 5);
  Engine ampere = test::make_checking_engine(4, emulator::Completion::kRandom, 1, Arch::kSm80);
  EXPECT_NE(test::refusal_of<MoeCombineDeviceCase>(ampere, old, [](auto& t) { t.pdl = true; }).find("/tensors/pdl"),
            std::string::npos);
}

}  // namespace
}  // namespace kernelwright::moe_combine_emulator_test
