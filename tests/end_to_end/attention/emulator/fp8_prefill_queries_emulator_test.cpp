// attention_sm90 over fp8 keys and values under bf16 queries on the emulator, with every check on: each row of Q is
// divided by a power of two of its own, and becomes two terms of e4m3. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/random.h"
#include "support/emulated_attention.h"

namespace kernelwright::fp8_prefill_queries_emulator_test {
namespace {

using test::expect_right;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

class NormalisedQueries : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = make_checking_engine(3, emulator::Completion::kRandom, 7);
};

/// Rows far beyond what f16 holds and rows of zeros side by side, with the scale that makes something of their scores.
/// The sequences are more than the SMs, so that a row of the next item has another factor than one that is stored.
TEST_F(NormalisedQueries, TakesQueriesAtBothEndsOfBf16) {
  for (const auto& [value, scale] : {std::pair{3e38f, 1e-39f}, std::pair{1e-38f, 3e37f}, std::pair{1e-40f, 1e38f}})
    for (const bool modified : {false, true}) {
      AttentionProblem problem =
          fp8(with_sinks(heads(dims(default_problem(), 64, 64), 1, 1)), ScaleKind::kNone, DType::kE4m3);
      if (modified) problem = capped(problem, 20);
      CudaCase test{fmt::format("q{}{}", value, modified ? "_capped" : ""), problem, shape_of(5, 70, 150)};
      test.schedule.family = Family::kHopper;
      test.schedule.block_m = 64;
      SCOPED_TRACE(test.name);
      AttentionCase call = inputs_of(test);
      call.scale = scale;
      std::vector<float> row(64);
      for (int b = 0; b < call.batch; ++b)
        for (int i = 0; i < 70; ++i) {
          const float magnitude = (i + b) % 3 == 0 ? 0 : (i + b) % 3 == 1 ? value : value / 1024;
          for (int e = 0; e < 64; ++e)
            row[static_cast<std::size_t>(e)] = magnitude * static_cast<float>((e * 7 + i * 3) % 5 - 2) / 2;
          encode_row(DType::kBf16, row, call.q_row(b, i, 0));
        }
      expect_right(call, run_checked(engine_, test, call));
    }
}

/// Probabilities are f16, 2^7 times as large. So a key of 2^-22 of the sink still counts, and one of 2^-44 counts for
/// nothing.
TEST_F(NormalisedQueries, EndWhereF16DoesBehindASinkFarAboveAllScores) {
  for (const float sink : {15.f, 30.f}) {
    CudaCase test{fmt::format("sink{}", sink),
                  fp8(with_sinks(heads(dims(default_problem(), 64, 64), 1, 1)), ScaleKind::kNone, DType::kE5m2),
                  shape_of(2, 70, 1)};
    test.schedule.family = Family::kHopper;
    SCOPED_TRACE(test.name);
    AttentionCase call = inputs_of(test);
    call.sinks = {sink};
    call.scale = 0;
    const AttentionOutput output = run_checked(engine_, test, call);
    expect_right(call, output);
    double value[64], got[64];
    decode_row(call.v.dtype, call.v_row(0, 0, 0), 64, value);
    decode_row(DType::kBf16, output.o.data() + call.o_index(0, 0, 0) * 2, 64, got);
    for (int i = 0; i < 64; ++i) {
      const double want = sink < 20 ? value[i] * std::exp(-static_cast<double>(sink)) : 0;
      EXPECT_NEAR(got[i], want, std::fabs(want) * 0x1p-7) << i;
    }
  }
}

/// One key that is 1 in one element: the LSE is that element of the query. Elements from 2^-9 of the row's largest one
/// on come out to the bit. Those below are off by 2^-17 of the largest one at most.
TEST_F(NormalisedQueries, HaveTwoTermsThatAddUpToThem) {
  for (const int depth : {64, 96}) {
    AttentionProblem problem = fp8(heads(dims(default_problem(), depth, depth), 1, 1), ScaleKind::kNone, DType::kE4m3);
    problem.lse = true;
    CudaCase test{fmt::format("terms{}", depth), problem, shape_of(4, 70, 1)};
    test.schedule.family = Family::kHopper;
    SCOPED_TRACE(test.name);
    AttentionCase call = inputs_of(test);
    call.scale = 1;
    Random random(static_cast<std::uint64_t>(depth));
    const auto at = [&](int sequence) { return sequence * (depth / 4) + 3; };
    std::vector<float> key(static_cast<std::size_t>(depth)), row(key.size());
    std::vector<double> exact;
    for (int b = 0; b < call.batch; ++b) {
      std::fill(key.begin(), key.end(), 0.f);
      key[static_cast<std::size_t>(at(b))] = 1;
      encode_row(DType::kE4m3, key, call.k_row(b, 0, 0));
      for (int i = 0; i < 70; ++i) {
        for (int e = 0; e < depth; ++e)
          row[static_cast<std::size_t>(e)] = static_cast<float>(
              random.uniform(-2, 2) * std::ldexp(1.0, -static_cast<int>(random.uniform(0, e % 2 ? 14 : 9))));
        row[0] = 1.9f;
        encode_row(DType::kBf16, row, call.q_row(b, i, 0));
        std::vector<double> got(row.size());
        decode_row(DType::kBf16, call.q_row(b, i, 0), got.size(), got.data());
        exact.push_back(got[static_cast<std::size_t>(at(b))]);
      }
    }
    const AttentionOutput output = run_checked(engine_, test, call);
    expect_right(call, output);
    for (int b = 0; b < call.batch; ++b)
      for (int i = 0; i < 70; ++i) {
        const double want = exact[static_cast<std::size_t>(b * 70 + i)], got = output.lse[call.lse_index(b, i, 0)];
        EXPECT_NEAR(got, want, std::fabs(want) >= 0x1p-9 ? 0x1p-22 + std::fabs(want) * 0x1p-21 : 0x1p-16)
            << b << ' ' << i;
      }
  }
}

/// e4m3 has no infinity. A row with one becomes NaN, as a softmax over infinite scores is, and no other row does.
TEST_F(NormalisedQueries, AreNaNWhereOneIsInfinite) {
  CudaCase test{"infinite", fp8(heads(dims(default_problem(), 64, 64), 1, 1), ScaleKind::kNone, DType::kE4m3),
                shape_of(1, 70, 40)};
  test.schedule.family = Family::kHopper;
  AttentionCase call = inputs_of(test);
  std::vector<float> row(64, 0.5f);
  row[5] = std::numeric_limits<float>::infinity();
  encode_row(DType::kBf16, row, call.q_row(0, 9, 0));
  const AttentionOutput output = run_checked(engine_, test, call);
  double got[64];
  for (int i = 0; i < 70; ++i) {
    decode_row(DType::kBf16, output.o.data() + call.o_index(0, i, 0) * 2, 64, got);
    for (const double element : got) EXPECT_EQ(std::isnan(element), i == 9) << i;
  }
}

/// Rows of f16 are multiplied as they are, and their probabilities are not raised: such a weight keeps few bits.
TEST_F(NormalisedQueries, LeaveRowsOfF16AsTheyAre) {
  CudaCase test{
      "f16", fp8(with_sinks(heads(dims(default_problem(DType::kF16), 64, 64), 1, 1)), ScaleKind::kNone, DType::kE5m2),
      shape_of(2, 70, 1)};
  test.schedule.family = Family::kHopper;
  AttentionCase call = inputs_of(test);
  call.sinks = {15.5f};
  call.scale = 0;
  expect_right(call, run_checked(engine_, test, call));
}

}  // namespace
}  // namespace kernelwright::fp8_prefill_queries_emulator_test
