// The decode forms over fp8 keys and values under fp8 queries on the emulator, with every check on. A row has the
// probabilities of Hopper's fp8 prefill, however its keys are cut. The cases that all families share are in
// fp8_query_cases_test.cpp. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "end_to_end/attention/emulator/fp8_codes.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_attention.h"

namespace kernelwright::fp8_query_decode_emulator_test {
namespace {

using test::expect_right;
using test::expect_same_bits;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

AttentionProblem narrow(AttentionProblem problem, ScaleKind scales = ScaleKind::kPerTensor) {
  return decode(fp8_queries(std::move(problem), scales), std::max(1, problem.max_q_len));
}

AttentionSchedule decode_form(Family family, int parts = 1) {
  AttentionSchedule schedule = splits(parts);
  schedule.family = family;
  schedule.token_gen = true;
  return schedule;
}

/// The same value in every element of a row.
void fill(HostTensor& tensor, std::byte* row, float value) {
  const std::vector<float> values(static_cast<std::size_t>(tensor.head_dim), value);
  encode_row(tensor.dtype, values, row);
}
/// `value` in element 0 of a row, and 0 in the others.
void set_first(HostTensor& tensor, std::byte* row, float value) {
  std::vector<float> values(static_cast<std::size_t>(tensor.head_dim), 0);
  values[0] = value;
  encode_row(tensor.dtype, values, row);
}

std::vector<double> numbers_of(const AttentionCase& call, const AttentionOutput& output) {
  std::vector<double> numbers(call.o_elems());
  decode_row(call.problem.dtype.out, output.o.data(), numbers.size(), numbers.data());
  return numbers;
}

/// Expects elements of bf16 that differ by two units in the last place at most. An element is compared at the scale of
/// its row's largest value where it is smaller by cancellation: sums have that error, too.
void expect_close(const std::vector<double>& one, const std::vector<double>& other, int row) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    double scale = std::fabs(one[i]);
    for (int e = 0; e < row; ++e)
      scale = std::max(
          scale,
          std::fabs(
              one[i / static_cast<std::size_t>(row) * static_cast<std::size_t>(row) + static_cast<std::size_t>(e)]) /
              16);
    ASSERT_LE(std::fabs(one[i] - other[i]), 2 * std::exp2(std::floor(std::log2(scale)) - 7)) << "element " << i;
  }
}

class Fp8QueryDecode : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = make_checking_engine(3, emulator::Completion::kRandom, 7);

  AttentionOutput run(const CudaCase& test, const AttentionCase& call) {
    SCOPED_TRACE(test.name);
    AttentionOutput output = run_checked(engine_, test, call);
    expect_right(call, output);
    return output;
  }
};

// ---- codes ----

/// Sequence i has one query and one key: element i of the query is code i and the others are 0, and the value has code
/// i everywhere. With keys of ones, the LSE is the scaled code and O is the code.
TEST_F(Fp8QueryDecode, TakesEveryCodeExactly) {
  constexpr int kCodes = 256;
  constexpr float kScale = 4;
  // A GPU runs the portable kernel of its own architecture.
  const Arch arch = test::tests_run_on_cuda() ? Arch::kSm90a : Arch::kSm80;
  Engine old = make_checking_engine(3, emulator::Completion::kRandom, 7, arch);
  for (const auto& [family, engine] : {std::pair{Family::kHopper, &engine_}, std::pair{Family::kPortable, &old}}) {
    CudaCase test{std::string(to_string(family)), narrow(heads(dims(default_problem(), 128, 128), 1, 1)),
                  shape_of(kCodes, 1, 1), decode_form(family)};
    test.problem.scales = ScaleKind::kNone;
    AttentionCase call = inputs_of(test);
    call.random_values = false;
    call.scale = kScale;
    std::vector<double> values(kCodes);
    for (int code = 0; code < kCodes; ++code) {
      fill(call.q, call.q_row(code, 0, 0), 0);
      call.q_row(code, 0, 0)[code % 128] = static_cast<std::byte>(code);
      fill(call.k, call.k_row(code, 0, 0), 1);
      const std::vector<std::byte> row(128, static_cast<std::byte>(code));
      std::copy(row.begin(), row.end(), call.v_row(code, 0, 0));
      decode_row(DType::kE4m3, row.data(), 1, &values[static_cast<std::size_t>(code)]);
    }
    const AttentionOutput output = run_checked(*engine, test, call);
    for (int code = 0; code < kCodes; ++code) {
      SCOPED_TRACE(fmt::format("{}, code {}", test.name, code));
      const double value = values[static_cast<std::size_t>(code)];
      const float lse = output.lse[call.lse_index(code, 0, 0)];
      double got[128];
      decode_row(DType::kBf16, output.o.data() + call.o_index(code, 0, 0) * 2, 128, got);
      expect_one_key(value, got, 0, lse, kScale);  // bf16 holds it
    }
  }
}

// ---- decode and prefill ----

/// Tiles of prefill are of 96 and 192 keys, and those of a decode of 16 or 32 keys a warp. Rounded probabilities are
/// the same. Where keys have scales, so are the products of probabilities and scales that are rounded.
TEST_F(Fp8QueryDecode, GivesARowThatPrefillGives) {
  const struct {
    ScaleKind scales;
    int page_size;
    std::vector<int> keys;
  } kinds[] = {{ScaleKind::kPerTensor, 0, {88, 96, 97, 128, 193, 256}},
               {ScaleKind::kPerToken, 0, {97, 193}},
               {ScaleKind::kPerPage, 16, {97, 256}}};
  for (const auto& [scales, page_size, lengths] : kinds)
    for (const int keys : lengths) {
      CudaCase test{fmt::format("{}_page{}_keys{}", to_string(scales), page_size, keys),
                    fp8_queries(with_sinks(heads(dims(default_problem(), 64, 64), 4, 1)), scales),
                    shape_of(1, 1, keys)};
      if (page_size > 0) test.problem = paged(test.problem, page_size);
      test.schedule.family = Family::kHopper;
      test.schedule.token_gen = false;
      const AttentionCase call = inputs_of(test);
      const std::vector<double> prefill = numbers_of(call, run(test, call));
      test.problem = narrow(test.problem, scales);
      for (const Family family : {Family::kHopper, Family::kPortable}) {
        test.schedule = decode_form(family, 2);
        SCOPED_TRACE(fmt::format("{} of {}", test.name, to_string(family)));
        expect_close(prefill, numbers_of(call, run(test, call)), 64);
      }
    }
}

/// Rounding lowers the probabilities of the second half of the keys by 3 %, and those of the first half by a tenth of
/// that. Values are 1 and -1. So O is far from right wherever a part weighs by another sum than the one that divided
/// it.
TEST_F(Fp8QueryDecode, WeighsPartsByTheSumsThatDividedThem) {
  constexpr int kKeys = 256;
  for (const Family family : {Family::kHopper, Family::kPortable})
    for (const bool lse : {false, true}) {
      CudaCase test{fmt::format("{}{}", to_string(family), lse ? "_lse" : ""),
                    narrow(heads(dims(default_problem(), 64, 64), 1, 1), ScaleKind::kNone), shape_of(1, 1, kKeys),
                    decode_form(family)};
      test.problem.lse = lse;
      AttentionCase call = inputs_of(test);
      call.random_values = false;
      call.scale = static_cast<float>(std::log(2.0) / 16);  // 16 units of score are a power of two
      set_first(call.q, call.q_row(0, 0, 0), 1);
      for (int j = 0; j < kKeys; ++j) {
        // 2^(13/16) = 1.7562 rounds to 1.75, and 2^(12/16) = 1.6818 to 1.625.
        set_first(call.k, call.k_row(0, j, 0), j < kKeys / 2 ? 13 : 12);
        fill(call.v, call.v_row(0, j, 0), j < kKeys / 2 ? 1 : -1);
      }
      const double want = (1.75 - 1.625) / (1.75 + 1.625);
      for (const int parts : {1, 2, 4})
        for (const Merge merge : {Merge::kInKernel, Merge::kCombine}) {
          test.schedule = decode_form(family, parts);
          test.schedule.merge = merge;
          SCOPED_TRACE(fmt::format("{} in {} parts", test.name, parts));
          const AttentionOutput output = run(test, call);
          EXPECT_NEAR(numbers_of(call, output)[0], want, want * 0x1p-8);
          if (!lse) continue;
          const double sum = kKeys / 2 * (std::exp2(13.0 / 16) + std::exp2(12.0 / 16));
          EXPECT_NEAR(output.lse[0], std::log(sum), 2e-6 * std::log(sum)) << "the LSE is of what is not rounded";
        }
    }
}

/// Small weights behind a sink far above them keep their bits. Scores are 0, so rounding changes no probability.
TEST_F(Fp8QueryDecode, KeepsSmallWeightsBehindASink) {
  for (const float nats : {0.f, 5.f, 9.f})
    for (const Family family : {Family::kHopper, Family::kPortable}) {
      CudaCase test{fmt::format("{}_nats{}", to_string(family), nats),
                    narrow(with_sinks(heads(dims(default_problem(), 64, 64), 2, 1)), ScaleKind::kNone),
                    shape_of(1, 1, 300), decode_form(family, 2)};
      AttentionCase call = inputs_of(test);
      call.random_values = false;
      for (int head = 0; head < 2; ++head) fill(call.q, call.q_row(0, 0, head), 0);
      for (int j = 0; j < 300; ++j) fill(call.v, call.v_row(0, j, 0), 1);
      call.sinks = {nats, nats};
      const double got = numbers_of(call, run(test, call))[0];
      const double want = 300 / (300 + std::exp(static_cast<double>(nats)));
      EXPECT_NEAR(got, want, want * 0x1p-8) << nats;
    }
}

// ---- the choice ----

TEST(Fp8QueryDecodePlan, IsADecodeFormWhereRowsAreFew) {
  const auto plan = [](const AttentionProblem& problem, Arch arch = Arch::kSm90a) {
    return plan_attention(problem, {}, arch);
  };
  EXPECT_EQ(plan(paged(narrow(default_problem()), 16)).main.form(), AttentionForm::kHopperDecode);
  EXPECT_EQ(plan(narrow(dims(default_problem(), 256, 256))).main.form(), AttentionForm::kHopperDecode);
  EXPECT_EQ(plan(paged(narrow(default_problem()), 1)).main.form(), AttentionForm::kPortableDecode);
  AttentionProblem rows = narrow(default_problem());
  rows.max_q_len = 5;
  EXPECT_EQ(plan(rows).main.form(), AttentionForm::kPortableDecode) << "20 rows of a KV head";
  rows.max_q_len = 17;
  EXPECT_EQ(plan(rows).main.form(), AttentionForm::kHopperPrefill) << "68 rows of a KV head";
  EXPECT_EQ(plan(narrow(default_problem()), Arch::kSm80).main.form(), AttentionForm::kPortableDecode);
  EXPECT_EQ(plan(narrow(default_problem()), Arch::kSm100a).main.form(), AttentionForm::kBlackwellPrefill);
  const std::vector<Choice> choices = plan(narrow(default_problem())).choices;
  const auto family = std::ranges::find(choices, "family", &Choice::field);
  ASSERT_NE(family, choices.end());
  EXPECT_EQ(family->reason, "few rows: bandwidth decides, and TMA keeps most bytes on their way");
}

}  // namespace
}  // namespace kernelwright::fp8_query_decode_emulator_test
