// attention_sm90 over fp8 keys and values on the emulator, with every check on: every code, under queries of each type,
// and small values behind long sums. The cases of its tiles are in hopper_fp8_cases_test.cpp. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "end_to_end/attention/cases/fp8_needle.h"
#include "end_to_end/attention/emulator/fp8_codes.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_attention.h"

namespace kernelwright::fp8_prefill_emulator_test {
namespace {

using test::expect_right;
using test::expect_same_bits;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

constexpr int kDepth = 64, kCodes = 256;

/// The same value in every element of a row.
void fill(HostTensor& tensor, std::byte* row, float value) {
  const std::vector<float> values(static_cast<std::size_t>(tensor.head_dim), value);
  encode_row(tensor.dtype, values, row);
}

class Fp8Prefill : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = make_checking_engine(3, emulator::Completion::kRandom, 7);
};

/// Sequence i has one key: element i of it is code i and the others are 0, and its value has code i everywhere. With
/// queries of ones, the LSE is the scaled code and O is the code.
TEST_F(Fp8Prefill, TakesEveryCodeExactly) {
  constexpr float kScale = 0x1p-6f;  // scores below 2^10, whose exponents f32 holds to 2^-14
  for (const DType dtype : {DType::kE4m3, DType::kE5m2})
    for (const DType q : {DType::kBf16, DType::kF16, DType::kE4m3}) {
      if (q == DType::kE4m3 && dtype != q) continue;
      CudaCase test{fmt::format("{}_{}", to_string(dtype), to_string(q)),
                    fp8(heads(dims(default_problem(), kDepth, kDepth), 1, 1), ScaleKind::kNone, dtype),
                    shape_of(kCodes, 1, 1)};
      test.schedule.family = Family::kHopper;
      test.schedule.token_gen = false;
      test.problem.lse = true;
      const DType out = q == DType::kE4m3 ? DType::kBf16 : q;
      test.problem.dtype.q = q, test.problem.dtype.out = out;
      AttentionCase call = inputs_of(test);
      call.random_values = false;
      call.scale = kScale;
      std::vector<double> values(kCodes);
      for (int code = 0; code < kCodes; ++code) {
        fill(call.q, call.q_row(code, 0, 0), 1);
        fill(call.k, call.k_row(code, 0, 0), 0);
        call.k_row(code, 0, 0)[code % kDepth] = static_cast<std::byte>(code);
        const std::vector<std::byte> row(kDepth, static_cast<std::byte>(code));
        std::copy(row.begin(), row.end(), call.v_row(code, 0, 0));
        decode_row(dtype, row.data(), 1, &values[static_cast<std::size_t>(code)]);
      }
      const AttentionOutput output = run_checked(engine_, test, call);
      for (int code = 0; code < kCodes; ++code) {
        SCOPED_TRACE(fmt::format("{}, code {}", test.name, code));
        const double value = values[static_cast<std::size_t>(code)];
        const float lse = output.lse[call.lse_index(code, 0, 0)];
        double got[kDepth];
        decode_row(out, output.o.data() + call.o_index(code, 0, 0) * 2, kDepth, got);
        expect_one_key(value, got, 0, lse, kScale);
      }
    }
}

TEST_F(Fp8Prefill, KeepsTheBitsOfLongSums) {
  for (const auto& [pv_promote, warpgroups] : {std::pair{1, 1}, {8, 1}, {8, 3}}) {
    const CudaCase test = needle_case(pv_promote, warpgroups);
    for (const NeedleValues values : {NeedleValues::kSmallBehindLarge, NeedleValues::kOnes, NeedleValues::kRandom}) {
      const AttentionCase call = needle_call(test, values);
      EXPECT_LT(needle_error(call, run_checked(engine_, test, call)), kNeedleError)
          << pv_promote << " " << static_cast<int>(values);
    }
  }
}

/// So the test above fails for a kernel that leaves its sums in the tensor cores.
TEST_F(Fp8Prefill, LosesTheBitsOfLongSumsInTheTensorCores) {
  const CudaCase test = needle_case(0);
  for (const NeedleValues values : {NeedleValues::kSmallBehindLarge, NeedleValues::kRandom}) {
    const AttentionCase call = needle_call(test, values);
    EXPECT_GT(needle_error(call, run_checked(engine_, test, call)), 8 * kNeedleError) << static_cast<int>(values);
  }
  // The sum of probabilities, which divides O, is truncated as a sum of ones is.
  const AttentionCase ones = needle_call(test, NeedleValues::kOnes);
  EXPECT_EQ(needle_error(ones, run_checked(engine_, test, ones)), 0);
}

TEST_F(Fp8Prefill, FindsANeedleAmong128kKeys) {
  expect_needle_among_many_keys(engine_, NeedleValues::kSmallBehindLarge);
  test::expect_no_reports(engine_);
}

/// Queries whose scores stay, or rise by one power of two or more from tile to tile. A row has the same bits beside any
/// rows of its warp: they may move the row's reference before it must move.
TEST_F(Fp8Prefill, GivesARowTheSameBitsWhicheverRowsOfItsWarpMove) {
  constexpr int kRows = 64, kTiles = 6, kKinds = 4;
  for (const auto& [depth, tile, scales, lse] : {std::tuple{64, 96, ScaleKind::kNone, false},
                                                 {64, 64, ScaleKind::kPerToken, true},
                                                 {256, 128, ScaleKind::kNone, false}}) {
    CudaCase test{fmt::format("moved_d{}_{}", depth, lse),
                  fp8(heads(dims(default_problem(), depth, depth), 1, 1), scales, DType::kE4m3),
                  shape_of(1 + kKinds, kRows, tile * kTiles)};
    test.problem.dtype.q = DType::kE4m3, test.problem.lse = lse;
    test.schedule.family = Family::kHopper, test.schedule.block_n = tile;
    SCOPED_TRACE(test.name);
    AttentionCase call = inputs_of(test);
    call.scale = std::log(2.f);
    std::fill(call.k_scale.begin(), call.k_scale.end(), 1.f);
    std::fill(call.q_scale.begin(), call.q_scale.end(), 1.f);
    // Of the first sequence, three warps have other kinds in the threads' first rows than in their second rows, and one
    // has all kinds. Each other sequence has one kind.
    const auto kind_of = [](int sequence, int row) {
      constexpr int kHalves[] = {2, 3, 3, 2, 0, 1};
      return sequence > 0 ? sequence - 1 : row < 48 ? kHalves[row / 8] : row % kKinds;
    };
    const float rises[kKinds][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 0, 1}};
    std::vector<float> values(static_cast<std::size_t>(depth), 0);
    for (int b = 0; b < call.batch; ++b) {
      for (int row = 0; row < kRows; ++row) {
        std::copy_n(rises[kind_of(b, row)], 3, values.begin());
        values[3] = 0.5f;
        encode_row(DType::kE4m3, values, call.q_row(b, row, 0));
      }
      for (int j = 0; j < tile * kTiles; ++j) {
        const int step = kTiles - 1 - j / tile;  // the last tile is the first of the walk
        values[0] = static_cast<float>(step), values[1] = step < 3 ? 0.f : 8.f, values[2] = step < 2 ? 0.f : 6.f;
        values[3] = static_cast<float>(j * 7 % 17) / 8 - 1;
        encode_row(DType::kE4m3, values, call.k_row(b, j, 0));
        std::copy_n(call.v_row(0, j, 0), depth, call.v_row(b, j, 0));
        if (call.has_key_scales())
          call.v_scale[call.key_scale_index(b, j, 0)] = call.v_scale[call.key_scale_index(0, j, 0)];
      }
    }
    const AttentionOutput output = run_checked(engine_, test, call);
    expect_right(call, output);
    const auto bits_of = [&](int b, int row) {
      const std::byte* begin = output.o.data() + call.o_index(b, row, 0) * 2;
      return std::vector<std::byte>(begin, begin + depth * 2);
    };
    for (int row = 0; row < kRows; ++row) {
      const int kind = kind_of(0, row);
      EXPECT_EQ(bits_of(0, row), bits_of(1 + kind, row)) << row << " of kind " << kind;
      if (lse) EXPECT_EQ(output.lse[call.lse_index(0, row, 0)], output.lse[call.lse_index(1 + kind, row, 0)]) << row;
    }
  }
}

/// Columns are what rows are, also beside NaN that no row sees.
TEST_F(Fp8Prefill, GivesTheSameBitsForValuesInColumns) {
  for (const auto& [depth, page, dtype] : {std::tuple{48, 16, DType::kE5m2}, std::tuple{128, 128, DType::kE4m3}}) {
    const AttentionProblem problem = causal(
        left_padded(paged(fp8(heads(dims(default_problem(), depth, depth), 2, 1), ScaleKind::kPerHead, dtype), page)));
    CudaCase test{fmt::format("d{}_page{}", depth, page), problem, lists({}, {130, 100, 0, 67})};
    test.shape.q_len = 40;
    test.schedule.family = Family::kHopper;
    const AttentionOutput rows = run_checked(engine_, test, inputs_of(test));
    test.problem.v_layout = VLayout::kColumns;
    expect_same_bits(rows, run_checked(engine_, test, inputs_of(test)), test.name.c_str());
  }
}

}  // namespace
}  // namespace kernelwright::fp8_prefill_emulator_test
