/// What attention gives where a sequence has one key: every code of an fp8 format is tried so.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>

namespace kernelwright {

/// Expects a row of attention over one key, whose score is `scale` * `value` and whose values are all `value`. Its
/// weight is divided by itself, so that an element of `output` is off by no more than `relative` of the value.
inline void expect_one_key(double value, std::span<const double> output, double relative, float lse, float scale) {
  for (const double element : output) {
    if (std::isfinite(value))
      ASSERT_NEAR(element, value, std::fabs(value) * relative);
    else if (std::isnan(value))
      ASSERT_TRUE(std::isnan(element));
    else
      ASSERT_FALSE(std::isfinite(element));
  }
  if (std::isfinite(value))
    EXPECT_NEAR(lse, scale * value, 1e-6 * (1 + scale * std::fabs(value)));
  else
    EXPECT_FALSE(std::isfinite(lse));
}

}  // namespace kernelwright
