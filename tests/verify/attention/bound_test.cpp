// The bound accepts a kernel's arithmetic and catches a kernel's mistakes.
#include "kernelwright/verify/attention/bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/simulated_attention.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

struct BoundCase {
  const char* name;
  AttentionProblem problem;
  int batch, q_len, kv_len;
  double q_magnitude = 1;
  float scale = 0;     // 0: the default
  bool exact = false;  // one key takes all the weight: only the output's rounding is left, and it is right
};

AttentionProblem problem_of(DType dtype, int head_dim = 64, int q_heads = 4, int kv_heads = 2) {
  AttentionProblem problem;
  problem.dtype = {dtype, dtype, dtype};
  problem.head_dim = {head_dim, head_dim};
  problem.heads = {q_heads, kv_heads};
  problem.lse = true;
  return problem;
}

template <class Change>
AttentionProblem with(AttentionProblem problem, Change change) {
  change(problem);
  return problem;
}

AttentionCase inputs_of(const BoundCase& test) {
  AttentionShape shape;
  shape.name = test.name;
  shape.batch = test.batch;
  shape.q_len = test.q_len;
  shape.kv_len = test.kv_len;
  AttentionCase call = make_inputs(test.problem, shape, {.seed = 11, .q_magnitude = test.q_magnitude});
  if (test.scale != 0) call.scale = test.scale;
  return call;
}

class Bound : public testing::TestWithParam<BoundCase> {};

TEST_P(Bound, LetsAKernelsArithmeticPass) {
  const AttentionCase call = inputs_of(GetParam());
  const Verdict report = verify(call, simulate_attention(call));
  EXPECT_TRUE(report.passed) << report.text;
  EXPECT_EQ(report.not_finite, 0u);
  EXPECT_LT(report.worst_ratio, 1);
  EXPECT_LT(report.worst_lse_ratio, 1);
  if (!GetParam().exact) {
    EXPECT_GT(report.worst_ratio, 1e-4) << "a bound this loose catches nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, Bound,
    testing::Values(
        BoundCase{"bf16", problem_of(DType::kBf16), 2, 70, 333}, BoundCase{"f16", problem_of(DType::kF16), 2, 70, 333},
        BoundCase{"bf16_d128", problem_of(DType::kBf16, 128, 2, 1), 1, 30, 2000},
        BoundCase{"one_key", problem_of(DType::kF16), 1, 40, 1, 1, 0, true},
        BoundCase{"decode", problem_of(DType::kBf16, 128, 8, 1), 1, 1, 4096},
        BoundCase{"causal_empty_rows", with(problem_of(DType::kBf16), [](auto& p) { p.mask.kind = MaskKind::kCausal; }),
                  1, 90, 40},
        BoundCase{"sinks", with(problem_of(DType::kBf16), [](auto& p) { p.sinks = true; }), 1, 30, 65},
        BoundCase{"softcap",
                  with(problem_of(DType::kF16),
                       [](auto& p) {
                         p.score_mod = {ScoreModKind::kSoftcap, 30};
                       }),
                  1, 50, 300, 100},
        BoundCase{
            "fp8_kv",
            with(problem_of(DType::kBf16), [](auto& p) { p.dtype.kv = DType::kE4m3, p.scales = ScaleKind::kPerHead; }),
            1, 50, 300},
        BoundCase{"f32_out", with(problem_of(DType::kF16), [](auto& p) { p.dtype.out = DType::kF32; }), 1, 50, 300},
        BoundCase{"scale_zero_like", problem_of(DType::kBf16), 1, 50, 300, 1, 1e-30f},
        BoundCase{"negative_scale", problem_of(DType::kBf16), 1, 50, 300, 1, -0.125f},
        BoundCase{"one_hot", problem_of(DType::kBf16), 1, 50, 300, 1, 1e4f, true}),
    [](const auto& info) { return info.param.name; });

// A mistake in each of these must be seen, in the short decode as well as in the long prefill.
class Mistakes : public testing::TestWithParam<std::tuple<DType, int>> {
 protected:
  Mistakes() {
    const auto [dtype, q_len] = GetParam();
    call_ = inputs_of({"mistake", problem_of(dtype, 128, 8, 2), 1, q_len, 4096});
  }
  Verdict report_with(const SimulatedFaults& faults) const { return verify(call_, simulate_attention(call_, faults)); }
  AttentionCase call_;
};

TEST_P(Mistakes, AMissingKeyAmong4096) {
  for (const int key : {0, 2000, 4095}) EXPECT_FALSE(report_with({.dropped_key = key}).passed) << key;
}
TEST_P(Mistakes, AScaleThatIsOffByAPercent) { EXPECT_FALSE(report_with({.scale_factor = 1.01f}).passed); }
TEST_P(Mistakes, SixteenBitSums) { EXPECT_FALSE(report_with({.sixteen_bit_sums = true}).passed); }
TEST_P(Mistakes, NoneAtAll) { EXPECT_TRUE(report_with({}).passed) << report_with({}).text; }

INSTANTIATE_TEST_SUITE_P(Kernels, Mistakes,
                         testing::Combine(testing::Values(DType::kBf16, DType::kF16), testing::Values(1, 4)),
                         [](const auto& info) {
                           return std::string(to_string(std::get<0>(info.param))) + "_q" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(Verify, NamesTheWorstPlace) {
  const AttentionCase call = inputs_of({"named", problem_of(DType::kBf16), 2, 5, 9});
  AttentionOutput output = simulate_attention(call);
  const std::vector<float> wrong{100};
  encode_row(DType::kBf16, wrong, output.o.data() + (call.o_index(1, 3, 2) + 7) * 2);
  const Verdict report = verify(call, output);
  EXPECT_FALSE(report.passed);
  EXPECT_THAT(report.text, HasSubstr("o[sequence 1, query 3, head 2, element 7]: 100 where "));
}

TEST(Verify, CountsNanThatShouldNotBe) {
  const AttentionCase call = inputs_of({"nan", problem_of(DType::kF16), 1, 5, 9});
  AttentionOutput output = simulate_attention(call);
  fill_with_nan(DType::kF16, {output.o.data(), 4});
  output.lse[3] = std::numeric_limits<float>::quiet_NaN();
  const Verdict report = verify(call, output);
  EXPECT_FALSE(report.passed);
  EXPECT_EQ(report.not_finite, 3u);
}

TEST(Verify, WantsNanWhereTheInputsHaveIt) {
  AttentionCase call = inputs_of({"nan_in", problem_of(DType::kF16, 64, 1, 1), 1, 5, 9});
  fill_with_nan(DType::kF16, {call.q_row(0, 2, 0), 128});
  AttentionOutput output = simulate_attention(call);
  EXPECT_TRUE(verify(call, output).passed) << verify(call, output).text;
  std::fill_n(output.o.begin() + static_cast<std::ptrdiff_t>(call.o_index(0, 2, 0)) * 2, 128, std::byte{0});
  EXPECT_FALSE(verify(call, output).passed);
}

TEST(Verify, AnEmptyRowIsExact) {
  AttentionCase call = inputs_of({"empty", problem_of(DType::kBf16), 1, 5, 0});
  AttentionOutput output = simulate_attention(call);
  EXPECT_TRUE(verify(call, output).passed);
  output.lse[0] = -1e30f;
  EXPECT_THAT(verify(call, output).text, HasSubstr("lse[sequence 0, query 0, head 0]: -1e+30 where -inf"));
}

TEST(Verify, HasNoQueriesToJudgeInAnEmptyBatch) {
  AttentionCase call = inputs_of({"none", problem_of(DType::kBf16), 2, 0, 7});
  EXPECT_TRUE(verify(call, simulate_attention(call)).passed);
}

TEST(AttentionOutputs, AreComparedBitByBit) {
  const AttentionOutput output{{std::byte{1}}, {std::numeric_limits<float>::quiet_NaN(), 0.f}};
  AttentionOutput other = output;
  EXPECT_TRUE(output == other);
  other.lse[1] = -0.f;
  EXPECT_FALSE(output == other);
  other = output;
  other.lse.pop_back();
  EXPECT_FALSE(output == other);
}

}  // namespace
}  // namespace kernelwright
