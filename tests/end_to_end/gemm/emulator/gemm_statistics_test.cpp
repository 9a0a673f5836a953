// GEMMs with outputs beside d, and with factors of rows, on the emulator, with every check on. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernelwright/verify/formats/float_formats.h"
#include "support/checked_gemm.h"

namespace kernelwright::gemm_statistics_test {
namespace {

using test::gemm_problem;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

constexpr const char* kBoth = "; d = x; amax = amax(x); squares = sum(x * x, over=n)";
std::string measured(const std::string& value) { return "x = " + value + kBoth; }
GemmProblem measured_problem(const std::string& value, int n = 200, int k = 72, DType result = DType::kBf16) {
  return gemm_problem(DType::kBf16, result, n, k, measured(value).c_str());
}

constexpr Tile kFewRows{"portable_16", Family::kPortable, 16, 128, 0};
constexpr Tile kPortable{"portable_128", Family::kPortable, 128, 128, 0};
constexpr Tile kGates{"gates", Family::kHopper, 64, 256, 1};
constexpr Tile kPingPong{"ping_pong", Family::kHopper, 64, 128, 2, Roles::kPingPong};
constexpr Tile kPair{"pair", Family::kHopper, 64, 128, 1, Roles::kCooperative, false, 2};

GemmSchedule blackwell() {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = 128, schedule.stages = 2;
  schedule.scheduler = Scheduler::kPersistent;
  return schedule;
}
float f32_at(const std::vector<std::byte>& bytes, std::size_t index) {
  float value;
  std::memcpy(&value, bytes.data() + 4 * index, sizeof value);
  return value;
}

class GemmStatistics : public test::CheckedGemm {};

TEST_F(GemmStatistics, OfEachKernel) {
  // 200 columns leave the last sum a part of 128, and 75 rows the last tile a part of its rows.
  for (const Tile& tile : {kPortable, kPair})
    expect_right(measured_problem("relu(alpha * acc + bias) + beta * c"), {"", 75, true}, tile, 5);
  expect_right(measured_problem("silu(rstd * gate + bias) * (rstd * up + bias)", 528), {"", 75, true}, kGates, 5);
}

TEST_F(GemmStatistics, AreMadeBesideAQuantisedResult) {
  GemmProblem problem = gemm_problem(DType::kBf16, DType::kE4m3, 256, 72,
                                     "x = acc + bias; d = quantize(x, e4m3, per=token_group(128), scale=s); amax = "
                                     "amax(x); squares = sum(x * x, over=n)");
  for (const Tile& tile : {kFewRows, kPingPong}) expect_right(problem, {"", 75, true}, tile, 5);
}

TEST_F(GemmStatistics, PartsOfK) {
  GemmSchedule schedule = schedule_of(kPair);
  schedule.cluster = ClusterShape{1, 1}, schedule.split_k = 2, schedule.block_n = 256;
  expect_right(measured_problem("acc", 384, 328), {"", 70, true}, schedule);
}

TEST_F(GemmStatistics, OnBlackwell) {
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 7, Arch::kSm100a);
  for (const DType result : {DType::kBf16, DType::kF32}) {
    const GemmCase call = make_gemm_inputs(measured_problem("rstd * acc + bias", 200, 200, result), {"", 203, true},
                                           {.seed = 3, .padding = 5});
    test::expect_right(call, test::run_checked(engine, call, blackwell()));
  }
}

TEST_F(GemmStatistics, SquaresNormTheNextGemm) {
  for (const Tile& tile : {kFewRows, kPingPong}) {
    SCOPED_TRACE(tile.name);
    const GemmCase first = make_gemm_inputs(measured_problem("acc + c", 256), {"", 37, true}, {.seed = 3});
    const GemmOutput middle = run(first, schedule_of(tile));
    test::expect_right(first, middle);
    GemmCase second =
        make_gemm_inputs(gemm_problem(DType::kBf16, DType::kF32, 64, 256, "rstd * acc"), {"", 37, true}, {.seed = 4});
    second.a.bytes = middle.d;
    second.squares_a_stride = 37;
    second.squares_a.resize(2 * 37);
    std::memcpy(second.squares_a.data(), middle.squares.data(), middle.squares.size());
    const GemmOutput out = run(second, schedule_of(tile));
    test::expect_right(second, out);
    // The norm as it is defined, of the rounded rows.
    for (int row = 0; row < 37; ++row) {
      std::vector<double> a(256), b(256);
      second.a.decode(row, 0, 256, a.data());
      second.b.decode(5, 0, 256, b.data());
      double squares = 0, product = 0, magnitude = 0;
      for (std::size_t i = 0; i < 256; ++i)
        squares += a[i] * a[i], product += a[i] * b[i], magnitude += std::fabs(a[i] * b[i]);
      const double factor = 1 / std::sqrt(squares / 256 + second.rms_eps);
      EXPECT_NEAR(f32_at(out.d, static_cast<std::size_t>(row) * 64 + 5), product * factor, 2e-3 * magnitude * factor);
    }
  }
}

TEST_F(GemmStatistics, LargestMagnitudesAreNanWhereAValueIs) {
  GemmCase call = make_gemm_inputs(measured_problem("acc"), {"", 37, true});
  for (const Tile& tile : {kPortable, kPair}) {
    SCOPED_TRACE(tile.name);
    const auto largest = [&](float value) {
      GemmCase changed = call;
      std::vector<float> row(72, 0.f);
      row[7] = value;
      changed.a.set_row(20, row);
      const GemmOutput output = run(changed, schedule_of(tile));
      test::expect_right(changed, output);
      return f32_at(output.amax, 0);
    };
    EXPECT_TRUE(std::isnan(largest(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_TRUE(std::isinf(largest(std::numeric_limits<float>::infinity())));
  }
}

TEST_F(GemmStatistics, BudgetsChangeNoBitsAndAmaxKeepsALargerWord) {
  const GemmCase call = make_gemm_inputs(measured_problem("acc", 384), {"", 150, true});
  const GemmOutput whole = run(call, schedule_of(kPair));
  EXPECT_EQ(run(call, schedule_of(kPair), [](GemmTensors& t) { t.sm_budget = 1; }), whole);
  GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, schedule_of(kPair)));
  on_device.poison();
  const float larger = 1e6f;
  engine_.device(0).copy_to_device(on_device.tensors().amax, &larger, sizeof larger);
  on_device.launch();
  EXPECT_EQ(f32_at(on_device.download().amax, 0), larger);
}

TEST_F(GemmStatistics, RefuseProblemsAndTiles) {
  GemmProblem problem = measured_problem("acc");
  GemmSchedule schedule = schedule_of({"", Family::kHopper, 128, 32, 2, Roles::kCooperative, true});
  EXPECT_THAT(refusal(problem, schedule),
              HasSubstr("/schedule/swap_ab: true: rows of the result are columns of the tile, "
                        "which have no amax, squares or rstd; false would do"));
  schedule = schedule_of(kPair), schedule.block_n = 192;
  EXPECT_THAT(refusal(problem, schedule), HasSubstr("/schedule/block_n: 192 columns hold a part of the 128 that have a "
                                                    "sum of squares of d; 256 would do"));
  problem.groups = {GroupKind::kRows, 2};
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/groups/kind: \"rows\" does not go with amax, squares or rstd; it "
                                          "takes none"));
  problem = gemm_problem(DType::kBf16, DType::kBf16, 64, 0, "rstd * acc");
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/k: 0 leaves rows without a mean of squares"));
}

}  // namespace
}  // namespace kernelwright::gemm_statistics_test
