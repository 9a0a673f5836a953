// attention_decode_sm90 over fp8 keys and values on the emulator, with every check on: every code, queries at both ends
// of bf16, scales, sinks far above all scores, and every tile that the planner makes. The cases that all families share
// are in decode_emulator_test.cpp. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "end_to_end/attention/emulator/fp8_codes.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_attention.h"

namespace kernelwright::fp8_decode_emulator_test {
namespace {

using test::expect_right;
using test::expect_same_bits;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

AttentionProblem narrow(AttentionProblem problem, ScaleKind scales = ScaleKind::kPerTensor,
                        DType dtype = DType::kE4m3) {
  return decode(fp8(std::move(problem), scales, dtype), std::max(1, problem.max_q_len));
}

/// The same value in every element of a row.
void fill(HostTensor& tensor, std::byte* row, float value) {
  const std::vector<float> values(static_cast<std::size_t>(tensor.head_dim), value);
  encode_row(tensor.dtype, values, row);
}

void fill_queries(AttentionCase& call, int head, float value) {
  for (int b = 0; b < call.batch; ++b)
    for (int i = 0; i < call.q_lens[b]; ++i) fill(call.q, call.q_row(b, i, head), value);
}

/// A schedule that asks for the decode form of Hopper.
AttentionSchedule on_hopper() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.token_gen = true;
  return schedule;
}

class Fp8Decode : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = make_checking_engine(3, emulator::Completion::kRandom, 7);

  /// The output, which is right, of the decode form of Hopper.
  AttentionOutput run(CudaCase test, const AttentionCase& call) {
    SCOPED_TRACE(test.name);
    test.schedule.family = Family::kHopper;
    test.schedule.token_gen = true;
    AttentionOutput output = run_checked(engine_, test, call);
    expect_right(call, output);
    return output;
  }
  AttentionOutput run(const CudaCase& test) { return run(test, inputs_of(test)); }
};

// ---- codes ----

/// Sequence i has one key: element i of it is code i and the others are 0, and its value has code i everywhere. With
/// queries of ones, the LSE is the scaled code and O is the code.
TEST_F(Fp8Decode, TakesEveryCodeExactly) {
  constexpr int kCodes = 256;
  constexpr float kScale = 4;
  for (const DType dtype : {DType::kE4m3, DType::kE5m2})
    for (const DType q : {DType::kBf16, DType::kF16}) {
      CudaCase test{fmt::format("{}_{}", to_string(dtype), to_string(q)),
                    narrow(heads(dims(default_problem(q), 128, 128), 2, 1), ScaleKind::kNone, dtype),
                    shape_of(kCodes, 1, 1)};
      test.schedule = on_hopper();
      AttentionCase call = inputs_of(test);
      call.random_values = false;
      call.scale = kScale;
      for (int head = 0; head < 2; ++head) fill_queries(call, head, 1);
      std::vector<double> values(kCodes);
      for (int code = 0; code < kCodes; ++code) {
        fill(call.k, call.k_row(code, 0, 0), 0);
        call.k_row(code, 0, 0)[code % 128] = static_cast<std::byte>(code);
        const std::vector<std::byte> row(128, static_cast<std::byte>(code));
        std::copy(row.begin(), row.end(), call.v_row(code, 0, 0));
        decode_row(dtype, row.data(), 1, &values[static_cast<std::size_t>(code)]);
      }
      const AttentionOutput output = run_checked(engine_, test, call);
      for (int code = 0; code < kCodes; ++code) {
        SCOPED_TRACE(fmt::format("{}, code {}", test.name, code));
        const double value = values[static_cast<std::size_t>(code)];
        const float lse = output.lse[call.lse_index(code, 0, 1)];
        double got[128];
        decode_row(q, output.o.data() + call.o_index(code, 0, 1) * 2, 128, got);
        expect_one_key(value, got, 0x1p-10, lse, kScale);
      }
    }
}

// ---- queries ----

/// Rows far beyond what f16 holds, with the scale that makes something of their scores.
TEST_F(Fp8Decode, TakesQueriesAtBothEndsOfBf16) {
  for (const auto& [value, scale] : {std::pair{3e38f, 1e-39f}, std::pair{1e-38f, 3e37f}, std::pair{1e-40f, 1e38f}})
    for (const bool modified : {false, true}) {
      AttentionProblem problem = narrow(with_sinks(heads(dims(default_problem(), 64, 64), 4, 1)), ScaleKind::kNone);
      if (modified) problem = capped(problem, 20);
      CudaCase test{fmt::format("q{}{}", value, modified ? "_capped" : ""), problem, lists({}, {90, 3})};
      test.schedule = splits(2);
      AttentionCase call = inputs_of(test);
      call.scale = scale;
      std::vector<float> row(64);
      for (int head = 0; head < 3; ++head)  // the last head keeps its usual numbers
        for (int b = 0; b < call.batch; ++b) {
          for (int i = 0; i < 64; ++i) row[static_cast<std::size_t>(i)] = value * ((i * 7 + head * 3) % 5 - 2) / 2;
          encode_row(DType::kBf16, row, call.q_row(b, 0, head));
        }
      if (value > 1) fill_queries(call, 3, 0);
      if (value < 1)  // scores of usual queries would overflow with that scale
        fill_queries(call, 3, 1e-38f);
      run(test, call);
    }
}

/// With the usual scale, rows of 3e38 see the key of the largest score alone, where f32 scores overflow.
TEST_F(Fp8Decode, GivesHugeQueriesTheirLargestKey) {
  CudaCase test{"huge", narrow(heads(dims(default_problem(), 64, 64), 2, 1)), shape_of(1, 1, 70)};
  test.schedule = on_hopper();
  AttentionCase call = inputs_of(test);
  for (int head = 0; head < 2; ++head) fill_queries(call, head, 3e38f);
  for (int j = 0; j < 70; ++j) fill(call.k, call.k_row(0, j, 0), j == 41 ? 448 : j);
  const AttentionOutput output = run_checked(engine_, test, call);
  double want[64], got[64];
  decode_row(call.v.dtype, call.v_row(0, 41, 0), 64, want);
  for (int head = 0; head < 2; ++head) {
    decode_row(DType::kBf16, output.o.data() + call.o_index(0, 0, head) * 2, 64, got);
    for (int i = 0; i < 64; ++i) {
      const double scaled = want[i] * static_cast<double>(call.v_scale[0]);
      EXPECT_NEAR(got[i], scaled, std::fabs(scaled) * 0x1p-8) << i;
    }
  }
}

// ---- scales and sinks ----

TEST_F(Fp8Decode, TakesScalesOfEverySize) {
  for (const float scale : {0.f, 1e-12f, 1e6f, -0.5f}) {
    CudaCase test{fmt::format("scale{}", scale), narrow(default_problem(), ScaleKind::kPerHead), lists({}, {90, 1})};
    AttentionCase call = inputs_of(test);
    call.k_scale = {scale, 0.25f};
    call.v_scale = {0.5f, scale};
    run(test, call);
  }
}

/// No writer of a cache makes them. The report says what they do.
TEST_F(Fp8Decode, TellsScalesThatAreNotAboveZero) {
  if (test::tests_run_on_cuda()) GTEST_SKIP() << "the emulator tells, and a GPU does not";
  const CudaCase test{"odd scales", narrow(default_problem(), ScaleKind::kPerHead), lists({}, {9})};
  AttentionCase call = inputs_of(test);
  call.k_scale = {-0.5f, 0}, call.v_scale = {INFINITY, NAN};
  DeviceCase on_device(engine_.device(0), call, engine_.prepare(test.problem, test.schedule));
  on_device.poison();
  on_device.launch();
  EXPECT_TRUE(on_device.guards_are_intact());
  std::vector<std::string> told;
  for (const auto& [kernel, report] : test::take_reports(engine_)) told.push_back(report.what);
  const std::string rule = ", and a scale is finite and above 0; it multiplies ";
  EXPECT_EQ(told, (std::vector{"k_scale[0] is -0.5" + rule + "scores all the same",
                               "k_scale[1] is 0" + rule + "scores all the same",
                               "v_scale[0] is inf" + rule + "values all the same",
                               "v_scale[1] is nan" + rule + "values all the same"}));
}

/// Weights far below that of key 0 still add up: f16 alone would lose half of their bits.
TEST_F(Fp8Decode, KeepsSmallWeightsBehindALargeOne) {
  for (const float nats : {0.f, 7.f, 14.f}) {
    CudaCase test{fmt::format("nats{}", nats),
                  narrow(heads(dims(default_problem(DType::kF16), 64, 64), 1, 1), ScaleKind::kNone),
                  shape_of(1, 1, 3000)};
    test.schedule = splits(1);
    test.schedule.num_warps = 1;  // each warp has a maximum of its own
    AttentionCase call = inputs_of(test);
    call.random_values = false;
    call.scale = 1;
    fill_queries(call, 0, 0);
    std::vector<float> row(64, 0);
    row[0] = 1;
    encode_row(DType::kF16, row, call.q_row(0, 0, 0));
    for (int j = 0; j < 3000; ++j) {
      row[0] = j == 0 ? nats : 0;
      encode_row(call.k.dtype, row, call.k_row(0, j, 0));
      fill(call.v, call.v_row(0, j, 0), j == 0 ? 0 : 1);
    }
    const AttentionOutput output = run(test, call);
    double got = 0;
    decode_row(DType::kF16, output.o.data(), 1, &got);
    const double rest = 2999, want = rest / (rest + std::exp(static_cast<double>(nats)));
    EXPECT_NEAR(got, want, want * 0x1p-10) << nats;  // hardly more than the output loses
  }
}

// ---- tiles ----

struct Shape {
  int group, qk, v, page, q_len;
  DType dtype;
};
void PrintTo(const Shape& shape, std::ostream* out) {
  *out << fmt::format("g{}_d{}_{}_page{}_q{}_{}", shape.group, shape.qk, shape.v, shape.page, shape.q_len,
                      to_string(shape.dtype));
}

/// Rows of one to four tiles, every head size with its slabs and with tails of them, and boxes of every page.
TEST_F(Fp8Decode, TakesEveryHeadGroupAndPage) {
  for (const Shape& shape : {Shape{1, 64, 64, 8, 1, DType::kE4m3}, Shape{64, 64, 64, 64, 1, DType::kE5m2},
                             Shape{5, 80, 80, 16, 1, DType::kE4m3}, Shape{3, 112, 48, 48, 1, DType::kE5m2},
                             Shape{2, 96, 96, 0, 2, DType::kE4m3}, Shape{20, 128, 128, 48, 1, DType::kE4m3},
                             Shape{4, 192, 128, 16, 3, DType::kE4m3}, Shape{16, 256, 256, 64, 2, DType::kE4m3},
                             Shape{7, 32, 16, 16, 1, DType::kE4m3}}) {
    AttentionProblem problem = heads(dims(default_problem(), shape.qk, shape.v), shape.group, 1);
    problem.max_q_len = shape.q_len;
    problem = causal(narrow(problem, ScaleKind::kPerTensor, shape.dtype));
    if (shape.page) problem = paged(problem, shape.page);
    CudaCase test{testing::PrintToString(shape), problem, lists({}, {150, 31, 0})};
    test.shape.q_len = shape.q_len;
    test.schedule = splits(2);
    run(test);
  }
}

/// Columns are what rows are: boxes of each width, heads with a pair of MMAs that is alone, and starts.
TEST_F(Fp8Decode, GivesTheSameBitsForValuesInColumns) {
  for (const Shape& shape : {Shape{2, 64, 64, 16, 1, DType::kE4m3}, Shape{3, 112, 48, 48, 1, DType::kE5m2},
                             Shape{4, 128, 128, 64, 2, DType::kE4m3}, Shape{20, 256, 16, 128, 1, DType::kE4m3}}) {
    AttentionProblem problem = heads(dims(default_problem(), shape.qk, shape.v), shape.group, 1);
    problem.max_q_len = shape.q_len;
    problem = causal(left_padded(paged(narrow(problem, ScaleKind::kPerHead, shape.dtype), shape.page)));
    CudaCase test{testing::PrintToString(shape), problem, lists({}, {150, 31, 0})};
    test.shape.q_len = shape.q_len;
    test.shape.kv_starts = {0, 5, 0};
    test.schedule = splits(2);
    const AttentionOutput rows = run(test, inputs_of(test));
    test.name += "_columns";
    test.problem.v_layout = VLayout::kColumns;
    expect_same_bits(rows, run(test, inputs_of(test)), test.name.c_str());
  }
}

TEST_F(Fp8Decode, TakesEverythingAtOnceHoweverItIsScheduled) {
  Engine many = make_checking_engine(132, emulator::Completion::kLazy, 0);
  for (const int page : {8, 48}) {
    AttentionProblem problem = capped(with_sinks(windowed(heads(default_problem(), 12, 2), 100, 0)), 15);
    problem.max_q_len = 3;
    problem.q_layout = QLayout::kRagged;
    problem = paged(narrow(problem, ScaleKind::kPerHead), page);
    CudaCase test{fmt::format("page{}", page), problem, lists({3, 0, 2}, {260, 64, 17})};
    test.schedule = on_hopper();
    test.schedule.splits = 3;
    const AttentionCase call = inputs_of(test);
    expect_same_bits(run(test, call), run_checked(many, test, call), "two machines differ");
  }
}

// ---- the choice ----

TEST(Fp8DecodePlan, IsTakenWhereItIsFastestAndWhereNothingElseTakesTheProblem) {
  const auto form = [](const AttentionProblem& problem, const AttentionSchedule& schedule = {}) {
    return plan_attention(problem, schedule, Arch::kSm90a).main.form();
  };
  EXPECT_EQ(form(paged(narrow(default_problem()), 16), on_hopper()), AttentionForm::kHopperDecode);
  EXPECT_EQ(form(paged(narrow(default_problem()), 16)), AttentionForm::kHopperDecode);
  EXPECT_EQ(form(narrow(dims(default_problem(), 64, 64))), AttentionForm::kHopperDecode);
  AttentionProblem rows = narrow(default_problem());
  rows.max_q_len = 5;
  EXPECT_EQ(form(rows), AttentionForm::kPortableDecode) << "not measured";
  EXPECT_FALSE(
      validate(AttentionConfig{"", paged(narrow(default_problem()), 1), on_hopper(), {}}, Arch::kSm90a).empty());
  const AttentionProblem tall = narrow(dims(default_problem(), 112, 48));  // heads that portable lacks
  EXPECT_EQ(form(tall), AttentionForm::kHopperDecode);
  EXPECT_TRUE(validate(AttentionConfig{"", tall, {}, {}}, Arch::kSm90a).empty());
  EXPECT_EQ(validate(AttentionConfig{"", tall, {}, {}}, Arch::kSm80).size(), 2u);
}

/// Bytes on their way, of one SM: no fewer than those of 16-bit keys.
TEST(Fp8DecodePlan, KeepsAsManyBytesOnTheirWayAs16BitKeys) {
  const auto bytes = [](const AttentionProblem& problem) {
    const AttentionSpec spec = plan_attention(problem, on_hopper(), Arch::kSm90a).main;
    return spec.min_ctas * spec.num_stages * spec.block_n * (spec.head_dim_qk + spec.head_dim_v) * bits_of(spec.kv) / 8;
  };
  EXPECT_EQ(bytes(decode(default_problem())), 192 * 1024);
  EXPECT_EQ(bytes(narrow(default_problem())), 192 * 1024);
  EXPECT_EQ(bytes(narrow(dims(default_problem(), 64, 64))), 192 * 1024);
  EXPECT_EQ(bytes(narrow(dims(default_problem(), 256, 256))), 192 * 1024);
}

}  // namespace
}  // namespace kernelwright::fp8_decode_emulator_test
