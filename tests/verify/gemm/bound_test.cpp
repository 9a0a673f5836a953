// The bound accepts a kernel's arithmetic and catches a kernel's mistakes.
#include "kernelwright/verify/gemm/bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernelwright/generator/error.h"
#include "support/simulated_gemm.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

GemmProblem problem_of(DType operands, DType result, int n, int k, const char* epilogue = "acc",
                       ScaleKind scales = ScaleKind::kNone) {
  GemmProblem problem;
  problem.n = n;
  problem.k = k;
  problem.dtype = {operands, operands, result, DType::kF32};
  problem.epilogue = epilogue;
  problem.scales = scales;
  return problem;
}
GemmProblem fast(GemmProblem problem) {
  problem.fast_accumulation = true;
  return problem;
}

struct BoundCase {
  const char* name;
  GemmProblem problem;
  int m;
};
class GemmBound : public testing::TestWithParam<BoundCase> {};

TEST_P(GemmBound, LetsAKernelsArithmeticPass) {
  const auto& [name, problem, m] = GetParam();
  const GemmCase call = make_gemm_inputs(problem, {"shape", m, true}, {.seed = 7});
  for (const bool core : {false, true}) {
    if (core && !is_fp8(problem.dtype.a)) continue;
    const GemmVerdict report = verify(call, simulate_gemm(call, {.core_sums = core}));
    EXPECT_TRUE(report.passed) << report.text;
    EXPECT_EQ(report.not_finite, 0u);
    EXPECT_LT(report.worst_ratio, 1);
    EXPECT_LT(report.tile_ratio, 1);
    EXPECT_FALSE(report.sampled);
    if (core) {
      EXPECT_GT(report.rms_ratio, 0.05) << "a bound this loose catches nothing";
    }
  }
}

TEST_P(GemmBound, OfExactInputsIsOneValue) {
  const auto& [name, problem, m] = GetParam();
  const GemmCase call = make_gemm_inputs(problem, {"shape", m, true}, {.seed = 7, .exact = true});
  const GemmVerdict report = verify(call, simulate_gemm(call, {.core_sums = is_fp8(problem.dtype.a)}));
  EXPECT_TRUE(report.passed) << report.text;
  const Activation activation = parse_epilogue(problem.epilogue).activation;
  EXPECT_EQ(report.exact, activation == Activation::kNone || activation == Activation::kRelu);
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, GemmBound,
    testing::Values(
        BoundCase{"bf16", problem_of(DType::kBf16, DType::kBf16, 100, 1000), 70},
        BoundCase{"f16", problem_of(DType::kF16, DType::kF16, 100, 1000), 70},
        BoundCase{"f16_to_f32", problem_of(DType::kF16, DType::kF32, 100, 1000), 70},
        BoundCase{"one_row", problem_of(DType::kBf16, DType::kBf16, 64, 4096), 1},
        BoundCase{"short_k", problem_of(DType::kBf16, DType::kF32, 64, 8), 65},
        BoundCase{"fp8", problem_of(DType::kE4m3, DType::kBf16, 100, 1000, "acc", ScaleKind::kPerTensor), 70},
        BoundCase{"fp8_fast", fast(problem_of(DType::kE4m3, DType::kBf16, 64, 2048)), 64},
        BoundCase{"fp8_token", problem_of(DType::kE5m2, DType::kF16, 100, 200, "acc", ScaleKind::kPerToken), 70},
        BoundCase{"fp8_block", problem_of(DType::kE4m3, DType::kF32, 130, 1000, "acc", ScaleKind::kPerBlock), 70},
        BoundCase{"fp8_result", problem_of(DType::kE4m3, DType::kE4m3, 100, 256, "alpha * acc"), 70},
        BoundCase{"saturates", problem_of(DType::kE4m3, DType::kE4m3, 100, 40000, "acc"), 3},
        BoundCase{"gelu", problem_of(DType::kBf16, DType::kBf16, 100, 200, "gelu(acc + bias)"), 70},
        BoundCase{"gelu_tanh", problem_of(DType::kF16, DType::kF32, 100, 200, "gelu_tanh(alpha * acc)"), 70},
        BoundCase{"silu", problem_of(DType::kBf16, DType::kBf16, 100, 200, "silu(acc) + beta * c"), 70},
        BoundCase{"relu", problem_of(DType::kBf16, DType::kBf16, 100, 200, "relu(acc + bias) + c"), 70},
        BoundCase{"quantised",
                  problem_of(DType::kBf16, DType::kE4m3, 256, 200,
                             "d = quantize(gelu(acc + bias), e4m3, per=token_group(128), scale=s)"),
                  70},
        BoundCase{"power_of_two",
                  problem_of(DType::kE4m3, DType::kE5m2, 128, 200,
                             "d = quantize(acc, e5m2, per=token_group(128), scale=s, round=power_of_two)",
                             ScaleKind::kPerBlock),
                  70},
        BoundCase{"tf32", problem_of(DType::kTf32, DType::kF32, 100, 1000), 70},
        BoundCase{"mxfp8", problem_of(DType::kMxfp8, DType::kF32, 100, 1024, "acc", ScaleKind::kPerBlock), 70},
        BoundCase{"mxfp4", problem_of(DType::kMxfp4, DType::kBf16, 100, 992, "alpha * acc", ScaleKind::kPerBlock), 70},
        BoundCase{"nvfp4", problem_of(DType::kNvfp4, DType::kF16, 100, 992, "acc + c", ScaleKind::kPerBlock), 70},
        BoundCase{"without_k", problem_of(DType::kBf16, DType::kBf16, 100, 0, "acc + bias"), 5}),
    [](const auto& info) { return info.param.name; });

// A mistake in each of these must be seen.
class GemmMistakes : public testing::TestWithParam<DType> {
 protected:
  static constexpr int kDepth = 4096;
  GemmMistakes()
      : call_(make_gemm_inputs(problem_of(GetParam(), DType::kBf16, 64, kDepth, "acc",
                                          is_block_scaled(GetParam()) ? ScaleKind::kPerBlock : ScaleKind::kNone),
                               {"mistake", 128, true}, {.seed = 3})) {}
  GemmVerdict report_with(SimulatedGemmFaults faults) const { return verify(call_, simulate_gemm(call_, faults)); }
  GemmCase call_;
};

TEST_P(GemmMistakes, AMissingKAmong4096) {
  for (const int k : {0, kDepth - 1}) EXPECT_FALSE(report_with({.dropped_k = k}).passed) << k;
}
TEST_P(GemmMistakes, AScaleThatIsOffByAPercent) { EXPECT_FALSE(report_with({.scale_factor = 1.01f}).passed); }
TEST_P(GemmMistakes, SixteenBitSums) { EXPECT_FALSE(report_with({.sixteen_bit_sums = true}).passed); }
TEST_P(GemmMistakes, ATileOfItsNeighboursRows) { EXPECT_FALSE(report_with({.tile_row = 0}).passed); }
TEST_P(GemmMistakes, NoneAtAll) { EXPECT_TRUE(report_with({}).passed) << report_with({}).text; }

INSTANTIATE_TEST_SUITE_P(Kernels, GemmMistakes,
                         testing::Values(DType::kBf16, DType::kF16, DType::kE4m3, DType::kTf32, DType::kMxfp8,
                                         DType::kMxfp4, DType::kNvfp4),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(GemmMistakesOfBlocks, AScaleOfAnotherBlock) {
  for (const DType dtype : {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4}) {
    const GemmCase call = make_gemm_inputs(problem_of(dtype, DType::kBf16, 64, 4096, "acc", ScaleKind::kPerBlock),
                                           {"mistake", 128, true}, {.seed = 3});
    GemmCase wrong = call;
    int other = 6;
    while (wrong.a.scale_byte(77, other) == wrong.a.scale_byte(77, 5)) ++other;
    wrong.a.scale_byte(77, 5) = wrong.a.scale_byte(77, other);
    EXPECT_FALSE(verify(call, simulate_gemm(wrong)).passed) << to_string(dtype);
  }
}

GemmCase small_case(bool exact = false, const char* epilogue = "acc") {
  return make_gemm_inputs(problem_of(DType::kBf16, DType::kBf16, 40, 64, epilogue), {"small", 9, true},
                          {.seed = 5, .exact = exact});
}
void overwrite(const GemmCase& call, GemmOutput& output, int row, int column, float value) {
  encode_row(
      call.problem.dtype.d, {&value, 1},
      output.d.data() + (static_cast<std::size_t>(row) * call.problem.n + column) * bytes_of(call.problem.dtype.d));
}

TEST(VerifyGemm, NamesTheWorstPlace) {
  const GemmCase call = small_case();
  GemmOutput output = simulate_gemm(call);
  overwrite(call, output, 7, 33, 1000);
  const GemmVerdict report = verify(call, output);
  EXPECT_FALSE(report.passed);
  EXPECT_THAT(report.text, HasSubstr("d[7, 33]: 1000 where "));
  EXPECT_GT(report.tile_diff, 0.5);
}

TEST(VerifyGemm, HoldsExactInputsToTheBit) {
  const GemmCase call = small_case(true);
  GemmOutput output = simulate_gemm(call);
  ASSERT_TRUE(verify(call, output).passed);
  double value;
  decode_row(DType::kBf16, output.d.data() + 2 * (4 * 40 + 5), 1, &value);
  overwrite(call, output, 4, 5, static_cast<float>(value * (1 + 0x1p-7)) + 0x1p-7f);
  EXPECT_THAT(verify(call, output).text, HasSubstr("alone is right"));
}

TEST(VerifyGemm, CountsNanThatShouldNotBe) {
  const GemmCase call = small_case();
  GemmOutput output = simulate_gemm(call);
  fill_with_nan(DType::kBf16, {output.d.data(), 6});
  const GemmVerdict report = verify(call, output);
  EXPECT_FALSE(report.passed);
  EXPECT_EQ(report.not_finite, 3u);
}

TEST(VerifyGemm, WantsNanWhereTheInputsHaveIt) {
  GemmCase call = small_case();
  fill_with_nan(DType::kBf16, {call.a.row(2), 2});
  GemmOutput output = simulate_gemm(call);
  EXPECT_TRUE(verify(call, output).passed) << verify(call, output).text;
  overwrite(call, output, 2, 0, 0);
  EXPECT_FALSE(verify(call, output).passed);
}

TEST(VerifyGemm, LetsWideResultsOverflowAndNarrowOnesSaturate) {
  GemmCase call = make_gemm_inputs(problem_of(DType::kF16, DType::kF16, 8, 64), {"large", 1, true});
  encode_row(DType::kF16, std::vector<float>(64, 1000), call.a.row(0));
  for (int j = 0; j < 8; ++j) encode_row(DType::kF16, std::vector<float>(64, 1000), call.b.row(j));
  GemmOutput output = simulate_gemm(call);
  EXPECT_TRUE(verify(call, output).passed);
  overwrite(call, output, 0, 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(verify(call, output).passed);
}

TEST(VerifyGemm, HoldsScalesAndElementsOfAQuantisedResult) {
  for (const bool exact : {false, true}) {
    const GemmCase call = make_gemm_inputs(
        problem_of(DType::kBf16, DType::kE4m3, 256, 64, "d = quantize(acc, e4m3, per=token_group(128), scale=s)"),
        {"shape", 9, true}, {.seed = 5, .exact = exact});
    const GemmOutput right = simulate_gemm(call);
    ASSERT_TRUE(verify(call, right).passed) << verify(call, right).text;
    const auto with_scale = [&](std::size_t index, float factor) {
      GemmOutput output = right;
      float scale;
      std::memcpy(&scale, output.scale_d.data() + index * 4, 4);
      scale *= factor;
      std::memcpy(output.scale_d.data() + index * 4, &scale, 4);
      return verify(call, output);
    };
    EXPECT_THAT(with_scale(9 + 4, 2).text, HasSubstr("scale_d[1, 4]"));
    EXPECT_FALSE(with_scale(3, 1.001f).passed);
    EXPECT_EQ(with_scale(3, 1 + 0x1p-23f).passed, !exact);
    EXPECT_FALSE(with_scale(3, std::numeric_limits<float>::quiet_NaN()).passed);
    GemmOutput other = right;  // the scales of another group
    std::swap_ranges(other.scale_d.begin(), other.scale_d.begin() + 36, other.scale_d.begin() + 36);
    EXPECT_FALSE(verify(call, other).passed);
    other = right;
    std::byte& element = other.d[2 * 256 + 140];
    element = static_cast<std::byte>(std::to_integer<unsigned>(element) ^ 2);
    EXPECT_THAT(verify(call, other).text, HasSubstr("d[2, 140]"));
  }
}

TEST(VerifyGemm, HoldsScalesAndElementsOfABlockScaledResult) {
  constexpr int kRows = 9, kColumns = 96;
  for (const DType format : {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4})
    for (const bool exact : {false, true})
      for (const bool rows : {false, true}) {
        SCOPED_TRACE(to_string(format));
        const int vector = scale_vector(format);
        const std::string options =
            std::string(rows ? ", layout=rows" : "") + (vector == 32 && rows ? ", round=up" : "");
        const std::string epilogue = "d = quantize(acc, " + std::string(to_string(format)) + ", per=token_group(" +
                                     std::to_string(vector) + "), scale=s" + options + ")";
        const GemmCase call = make_gemm_inputs(problem_of(DType::kBf16, format, kColumns, 64, epilogue.c_str()),
                                               {"shape", kRows, true}, {.seed = 5, .exact = exact});
        const GemmOutput right = simulate_gemm(call);
        ASSERT_TRUE(verify(call, right).passed) << verify(call, right).text;
        const auto with_scale = [&](std::size_t index, int change) {
          GemmOutput output = right;
          std::byte& scale = output.scale_d[index];
          scale = static_cast<std::byte>(std::to_integer<int>(scale) + change);
          return verify(call, output).text;
        };
        const std::size_t at = call.scale_d_index(4, 1);
        EXPECT_THAT(with_scale(at, 2), HasSubstr("scale_d[4, block 1]"));
        EXPECT_THAT(with_scale(at, -2), HasSubstr("scale_d[4, block 1]"));
        if (call.has_atoms_of_d() && vector == 32)  // of which a row has three
          EXPECT_THAT(with_scale(call.scale_d_index(4, 3), 1), HasSubstr("scale_d[4, block 3]: byte 1 past the end"));
        if (call.has_atoms_of_d()) EXPECT_THAT(with_scale(call.scale_d_index(kRows, 0), 1), HasSubstr("past the end"));
        GemmOutput other = right;
        const std::size_t element = bytes_of(format, 2 * kColumns + 40);
        other.d[element] = static_cast<std::byte>(std::to_integer<unsigned>(other.d[element]) ^ 5);
        EXPECT_THAT(verify(call, other).text, HasSubstr("d[2, 40]"));
      }
}

TEST(VerifyGemm, HoldsOutputsBesideD) {
  constexpr int kRows = 5, kColumns = 200;
  for (const DType result : {DType::kBf16, DType::kF32}) {
    const GemmCase call = make_gemm_inputs(
        problem_of(DType::kBf16, result, kColumns, 64, "x = acc; d = x; amax = amax(x); squares = sum(x * x, over=n)"),
        {"shape", kRows, true}, {.seed = 5});
    GemmOutput right = simulate_gemm(call);
    std::vector<float> squares(2 * kRows, 0.f), amax(1, 0.f);
    for (int row = 0; row < kRows; ++row) {
      std::vector<double> values(kColumns);
      decode_row(result, right.d.data() + bytes_of(result, kColumns) * static_cast<std::size_t>(row), kColumns,
                 values.data());
      for (std::size_t i = 0; i < kColumns; ++i) {
        squares[i / 128 * kRows + static_cast<std::size_t>(row)] += static_cast<float>(values[i] * values[i]);
        amax[0] = std::max(amax[0], static_cast<float>(std::fabs(values[i])));
      }
    }
    const auto verdict = [&](int wrong, float factor) {
      std::vector<float> sums = squares, largest = amax;
      if (wrong >= 0) sums[static_cast<std::size_t>(wrong)] *= factor;
      if (wrong == -2) largest[0] *= factor;
      GemmOutput output = right;
      output.squares.resize(sums.size() * 4), output.amax.resize(4);
      std::memcpy(output.squares.data(), sums.data(), sums.size() * 4);
      std::memcpy(output.amax.data(), largest.data(), 4);
      return verify(call, output).text;
    };
    EXPECT_EQ(verdict(-1, 1), "");
    EXPECT_THAT(verdict(7, 1.02f), HasSubstr("squares[1, 2]"));
    EXPECT_THAT(verdict(7, 0.98f), HasSubstr("squares[1, 2]"));
    EXPECT_THAT(verdict(-2, 1.01f), HasSubstr("amax"));
    EXPECT_THAT(verdict(-2, 0.99f), HasSubstr("amax"));
    EXPECT_THAT(verdict(0, std::numeric_limits<float>::quiet_NaN()), HasSubstr("squares[0, 0]"));
  }
}

TEST(VerifyGemm, RefusesExactInputsThatF32DoesNotHold) {
  GemmCase call = small_case(true, "acc + c");
  encode_row(DType::kF32, std::vector<float>(1, 0x1p-30f), call.c.row(0));
  encode_row(DType::kBf16, std::vector<float>(64, 1), call.a.row(0));
  encode_row(DType::kBf16, std::vector<float>(64, 1), call.b.row(0));
  EXPECT_THROW(verify(call, simulate_gemm(call)), Error);
}

TEST(VerifyGemm, SaysWhatItHasSampled) {
  const GemmCase call = make_gemm_inputs(problem_of(DType::kBf16, DType::kBf16, 256, 256), {"sampled", 300, true});
  const GemmVerdict report = verify(call, simulate_gemm(call), {.budget_operations = 1e6});
  EXPECT_TRUE(report.passed) << report.text;
  EXPECT_TRUE(report.sampled);
  EXPECT_EQ(report.elements, report.rows * report.columns);
  EXPECT_LT(report.elements, call.d_elems() / 4);
}

TEST(VerifyGemm, HasNothingToJudgeWithoutRows) {
  const GemmCase call = make_gemm_inputs(problem_of(DType::kBf16, DType::kBf16, 40, 64), {"none", 0, true});
  EXPECT_TRUE(verify(call, simulate_gemm(call)).passed);
}

}  // namespace
}  // namespace kernelwright
