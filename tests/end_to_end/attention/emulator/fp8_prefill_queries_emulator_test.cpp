// attention_sm90 over fp8 keys and values under bf16 queries on the emulator, with every check on: the products are of
// f16, so that each row of Q is divided by a power of two of its own. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/verify/formats/float_formats.h"
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
