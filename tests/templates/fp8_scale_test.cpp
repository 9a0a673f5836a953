// Scales of quantised values: quotients and reciprocals without branches have the bits of divisions.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "policy/fp8_scale.cuh"
#include "ptx/math.cuh"  // of shadow

namespace kernelwright {
namespace {

constexpr uint32_t kMantissas = 1u << 23;

float number(int exponent, uint32_t mantissa) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23 | mantissa);
}

/// The quotient of numbers with other exponents has the same mantissa. -118 and -117 have quotients on both sides of
/// the smallest normal number.
template <DType kTo>
void expect_scales_of_divisions() {
  constexpr float kLeast = std::numeric_limits<float>::min();
  for (const int exponent : {-126, -118, -117, -110, 0, 127})
    for (uint32_t mantissa = 0; mantissa < kMantissas; ++mantissa) {
      const float largest = number(exponent, mantissa);
      const float scale = policy::scale_of_head<kTo, false>(std::bit_cast<uint32_t>(largest));
      ASSERT_EQ(scale, std::max(largest / policy::kLargestFp8<kTo>, kLeast)) << largest;
    }
}

TEST(ScaleOfHead, HasTheBitsOfADivisionForE4m3) { expect_scales_of_divisions<DType::kE4m3>(); }
TEST(ScaleOfHead, HasTheBitsOfADivisionForE5m2) { expect_scales_of_divisions<DType::kE5m2>(); }

TEST(ScaleOfHead, OfWhatIsNoNumberIsThatItself) {
  const auto scale = [](uint32_t largest) {
    return std::bit_cast<uint32_t>(policy::scale_of_head<DType::kE4m3, false>(largest));
  };
  EXPECT_EQ(scale(0), 0x00800000u) << "of zeros, the smallest normal number";
  EXPECT_EQ(scale(1), 0x00800000u);
  EXPECT_EQ(scale(0x7f800000), 0x7f800000u) << "infinity";
  EXPECT_EQ(scale(0x7fc12345), 0x7fc12345u) << "NaN";
}

TEST(ScaleOfHead, IsRoundedUpToAPowerOfTwo) {
  const auto scale = [](float largest) {
    return policy::scale_of_head<DType::kE4m3, true>(std::bit_cast<uint32_t>(largest));
  };
  EXPECT_EQ(scale(448), 1);
  EXPECT_EQ(scale(449), 2);
  EXPECT_EQ(scale(500), 2);
  EXPECT_EQ(scale(896), 2);
}

TEST(ReciprocalOfScale, IsRoundedToNearest) {
  for (const int exponent : {-126, 0, 119})
    for (uint32_t mantissa = 0; mantissa < kMantissas; ++mantissa) {
      const float scale = number(exponent, mantissa);
      ASSERT_EQ(policy::reciprocal_of_scale(scale), 1.f / scale) << scale;
    }
  EXPECT_EQ(policy::reciprocal_of_scale(std::numeric_limits<float>::infinity()), 0.f);
  EXPECT_TRUE(std::isnan(policy::reciprocal_of_scale(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace kernelwright
