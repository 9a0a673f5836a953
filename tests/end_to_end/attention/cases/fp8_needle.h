/// Long sums of fp8. Hopper's tensor cores keep about 14 bits of such a sum: beside a large one, small addends lose
/// bits or vanish. Kernels that promote their products with V keep them (`pv_promote`).
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

enum class NeedleValues {
  kSmallBehindLarge,  // 1 for the last half of the keys, which the kernel walks first, then kNeedleValue
  kOnes,
  kRandom,  // in [0, 1]
};
constexpr int kNeedleKeys = 1 << 13, kManyNeedleKeys = 1 << 17, kNeedleDepth = 64;
constexpr float kNeedleValue = 0x1p-4f;
constexpr double kNeedleError = 0x1p-9;

/// One query, for which all keys weigh the same. Of three warpgroups, runs keep halves of sums in shared memory.
inline CudaCase needle_case(int pv_promote = 1, int warpgroups = 1, int keys = kNeedleKeys) {
  CudaCase test{fmt::format("needle_{}_{}_{}", pv_promote, warpgroups, keys),
                heads(dims(default_problem(), kNeedleDepth, kNeedleDepth), 1, 1), shape_of(1, 1, keys)};
  test.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kF16};
  test.problem.lse = true;
  test.schedule.family = Family::kHopper;
  test.schedule.math_warpgroups = warpgroups;
  test.schedule.pv_promote = pv_promote;
  return test;
}

inline AttentionCase needle_call(const CudaCase& test, NeedleValues values) {
  AttentionCase call = make_inputs(test.problem, test.shape);
  call.random_values = false;
  std::mt19937 random(1);
  std::vector<float> row(kNeedleDepth, 0);
  encode_row(DType::kE4m3, row, call.q_row(0, 0, 0));
  for (int j = 0; j < call.kv_len; ++j) {
    const bool small = values == NeedleValues::kSmallBehindLarge && j < call.kv_len / 2;
    for (float& element : row)
      element = values == NeedleValues::kRandom ? static_cast<float>(random() % 1025) / 1024 : small ? kNeedleValue : 1;
    encode_row(DType::kE4m3, row, call.v_row(0, j, 0));
  }
  return call;
}

/// The largest error of an element of O. The true O is the mean of the values.
inline double needle_error(const AttentionCase& call, const AttentionOutput& output) {
  std::array<double, kNeedleDepth> sums{}, row;
  for (int j = 0; j < call.kv_len; ++j) {
    decode_row(DType::kE4m3, call.v_row(0, j, 0), kNeedleDepth, row.data());
    for (int i = 0; i < kNeedleDepth; ++i) sums[static_cast<std::size_t>(i)] += row[static_cast<std::size_t>(i)];
  }
  decode_row(DType::kF16, output.o.data() + call.o_index(0, 0, 0) * 2, kNeedleDepth, row.data());
  double worst = 0;
  for (std::size_t i = 0; i < row.size(); ++i) worst = std::max(worst, std::fabs(row[i] - sums[i] / call.kv_len));
  EXPECT_NEAR(output.lse[call.lse_index(0, 0, 0)], std::log(call.kv_len), 1e-4);
  return worst;
}

/// Prefill that promotes finds the needle among 128 Ki keys. Prefill that does not promote loses it, unless all values
/// are equal. A decode that takes all keys in one part adds in f32.
inline void expect_needle_among_many_keys(Engine& engine, NeedleValues values) {
  const auto expect = [&](const CudaCase& test, bool loses) {
    SCOPED_TRACE(fmt::format("{}, values {}", test.name, static_cast<int>(values)));
    const AttentionCase call = needle_call(test, values);
    DeviceCase on_device(engine.device(0), call, engine.prepare(test.problem, test.schedule));
    on_device.poison();
    on_device.launch();
    const double error = needle_error(call, on_device.download());
    EXPECT_EQ(error > kNeedleError, loses) << error;
  };
  for (const auto& [pv_promote, warpgroups] : {std::pair{1, 1}, {8, 1}, {8, 3}})
    expect(needle_case(pv_promote, warpgroups, kManyNeedleKeys), false);
  expect(needle_case(0, 1, kManyNeedleKeys), values != NeedleValues::kOnes);
  CudaCase decoding = needle_case(1, 1, kManyNeedleKeys);
  decoding.name = "needle_decode";
  decoding.problem = decode(decoding.problem);
  decoding.schedule = splits(1);
  decoding.schedule.family = Family::kHopper;
  decoding.schedule.token_gen = true;
  expect(decoding, false);
}

}  // namespace kernelwright
