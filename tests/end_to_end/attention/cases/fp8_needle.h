/// Small values behind a long sum of large ones, under fp8 queries. Hopper's tensor cores keep about 14 bits of such a
/// sum. Left there, the small values would vanish from it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

constexpr int kNeedleKeys = 1 << 17, kNeedleDepth = 64;
constexpr float kNeedleValue = 0x1p-4f;

/// One query, for which all keys weigh the same. The last half of the keys, which the kernel walks first, has values of
/// 1; the first half has kNeedleValue.
inline CudaCase needle_case() {
  CudaCase test{"needle", heads(dims(default_problem(), kNeedleDepth, kNeedleDepth), 1, 1),
                shape_of(1, 1, kNeedleKeys)};
  test.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  test.problem.lse = true;
  test.schedule.family = Family::kHopper;
  test.schedule.math_warpgroups = 1;
  return test;
}

inline AttentionCase needle_call(const CudaCase& test) {
  AttentionCase call = make_inputs(test.problem, test.shape);
  call.random_values = false;
  const std::vector<float> none(kNeedleDepth, 0), ones(kNeedleDepth, 1), small(kNeedleDepth, kNeedleValue);
  encode_row(DType::kE4m3, none, call.q_row(0, 0, 0));
  for (int j = 0; j < kNeedleKeys; ++j)
    encode_row(DType::kE4m3, j < kNeedleKeys / 2 ? small : ones, call.v_row(0, j, 0));
  return call;
}

inline void expect_needle(const AttentionCase& call, const AttentionOutput& output) {
  double got[kNeedleDepth];
  decode_row(DType::kBf16, output.o.data() + call.o_index(0, 0, 0) * 2, kNeedleDepth, got);
  for (const double element : got) ASSERT_LT(std::fabs(element - (1 + kNeedleValue) / 2), 0x1p-9) << element;
  EXPECT_NEAR(output.lse[call.lse_index(0, 0, 0)], std::log(kNeedleKeys), 1e-4);
}

}  // namespace kernelwright
