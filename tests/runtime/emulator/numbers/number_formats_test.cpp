#include "kernelwright/runtime/emulator/numbers/number_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kernelwright::emulator {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t width(const NumberFormat& format) { return 1u + format.exponent_bits + format.mantissa_bits; }

/// f32 codes all over the range: a prime step, from a different start each time.
template <class Visit>
void for_f32_codes(std::uint32_t step, Visit&& visit) {
  for (std::uint64_t code = 0; code < (1ull << 32); code += step)
    visit(std::bit_cast<float>(static_cast<std::uint32_t>(code)));
}

TEST(NumberFormats, EveryF16CodeSurvivesTheWayThroughFloat) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float value = f16_to_f32(half);
    const bool nan = (code & 0x7fff) > 0x7c00;
    ASSERT_EQ(std::isnan(value), nan) << code;
    if (!nan) ASSERT_EQ(value, decode_number(kF16, code)) << code;
    ASSERT_EQ(f32_to_f16(value), nan ? 0x7fff : half) << code;
  }
}

TEST(NumberFormats, EveryBf16CodeSurvivesTheWayThroughFloat) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const bool nan = (code & 0x7fff) > 0x7f80;
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(half)), nan ? 0x7fff : half) << code;
  }
}

TEST(NumberFormats, FastConversionsRoundAsTheGeneralOneDoes) {
  for_f32_codes(4099, [](float value) {
    ASSERT_EQ(f32_to_f16(value), encode_number(kF16, value, Rounding::kNearestEven)) << value;
    ASSERT_EQ(f32_to_bf16(value), encode_number(kBf16, value, Rounding::kNearestEven)) << value;
    const std::uint32_t away = encode_number(kTf32, value, Rounding::kNearestAway) << 13;
    ASSERT_EQ(f32_to_tf32_away(value), std::isnan(value) ? bits(value) & ~0x1fffu : away) << value;
    if (!std::isnan(value)) {
      ASSERT_EQ(encode_number(kF32, value, Rounding::kUp), bits(value)) << value;
    }
  });
}

/// Codes of the finite values next to `value`, by looking at all: the largest not above, the smallest not below.
struct Neighbours {
  double below = -INFINITY, above = INFINITY;
};
Neighbours neighbours(const NumberFormat& format, double value) {
  Neighbours found;
  for (std::uint32_t code = 0; code < 1u << width(format); ++code) {
    const double each = decode_number(format, code);
    if (!std::isfinite(each)) continue;
    if (each <= value) found.below = std::max(found.below, each);
    if (each >= value) found.above = std::min(found.above, each);
  }
  return found;
}

class NarrowFormat : public testing::TestWithParam<NumberFormat> {};

TEST_P(NarrowFormat, RoundsToANeighbourInTheDirectionAsked) {
  const NumberFormat& format = GetParam();
  for (double value = 1.0 / 4096; value < 70000; value *= 1.0371) {
    for (const double x : {value, -value}) {
      const Neighbours near = neighbours(format, x);
      if (std::isinf(near.below) || std::isinf(near.above)) continue;
      const auto rounded = [&](Rounding how) { return decode_number(format, encode_number(format, x, how)); };
      EXPECT_EQ(rounded(Rounding::kDown), near.below) << x;
      EXPECT_EQ(rounded(Rounding::kUp), near.above) << x;
      EXPECT_EQ(rounded(Rounding::kTowardZero), x < 0 ? near.above : near.below) << x;
      const bool lower = x - near.below < near.above - x;
      EXPECT_EQ(rounded(Rounding::kNearestEven), lower ? near.below : near.above) << x;
    }
  }
}

TEST_P(NarrowFormat, TiesGoToTheEvenCodeOrAway) {
  const NumberFormat& format = GetParam();
  for (std::uint32_t code = 0; code < format.max_code; ++code) {
    const double tie = (decode_number(format, code) + decode_number(format, code + 1)) / 2;
    EXPECT_EQ(encode_number(format, tie, Rounding::kNearestEven), code + (code & 1)) << tie;
    EXPECT_EQ(encode_number(format, tie, Rounding::kNearestAway), code + 1) << tie;
    EXPECT_EQ(encode_number(format, std::nextafter(tie, 0), Rounding::kNearestEven), code) << tie;
  }
}

TEST_P(NarrowFormat, SaturatesToTheLargestAndKeepsNan) {
  const NumberFormat& format = GetParam();
  const std::uint32_t sign = 1u << (width(format) - 1);
  for (const double large : {1e30, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(encode_number(format, large, Rounding::kNearestEven, true), format.max_code);
    EXPECT_EQ(encode_number(format, -large, Rounding::kNearestEven, true), format.max_code | sign);
  }
  EXPECT_EQ(encode_number(format, -NAN, Rounding::kNearestEven, true), format.nan_code);
  EXPECT_EQ(encode_number(format, -0.0, Rounding::kNearestEven), sign);
}

INSTANTIATE_TEST_SUITE_P(, NarrowFormat, testing::Values(kE4m3, kE5m2, kE3m2, kE2m3, kE2m1));

TEST(NumberFormats, OverflowFollowsTheRounding) {
  const double huge = 70000;
  EXPECT_EQ(encode_number(kF16, huge, Rounding::kNearestEven), 0x7c00u);
  EXPECT_EQ(encode_number(kF16, huge, Rounding::kTowardZero), 0x7bffu);
  EXPECT_EQ(encode_number(kF16, huge, Rounding::kDown), 0x7bffu);
  EXPECT_EQ(encode_number(kF16, -huge, Rounding::kDown), 0xfc00u);
  EXPECT_EQ(encode_number(kF16, -huge, Rounding::kUp), 0xfbffu);
  EXPECT_EQ(encode_number(kF16, 65519.999, Rounding::kNearestEven), 0x7bffu);
  EXPECT_EQ(encode_number(kF16, 65520, Rounding::kNearestEven), 0x7c00u);
}

TEST(NumberFormats, KnowsTheValuesThatTheFormatsAreNamedFor) {
  EXPECT_EQ(kE4m3Values[0x7e], 448.0f);
  EXPECT_TRUE(std::isnan(kE4m3Values[0x7f]));
  EXPECT_EQ(kE4m3Values[0x01], 0x1p-9f);
  EXPECT_EQ(kE5m2Values[0x7b], 57344.0f);
  EXPECT_TRUE(std::isinf(kE5m2Values[0x7c]));
  EXPECT_TRUE(std::isnan(kE5m2Values[0xfd]));
  EXPECT_EQ(kE3m2Values[0x1f], 28.0f);
  EXPECT_EQ(kE2m3Values[0x1f], 7.5f);
  EXPECT_EQ(kE2m1Values[0xf], -6.0f);
  EXPECT_EQ(kE2m1Values[0x1], 0.5f);
}

TEST(NumberFormats, ScalesArePowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const float value = ue8m0_to_f32(static_cast<std::uint8_t>(code));
    ASSERT_EQ(value, std::ldexp(1.0f, code - 127));
    ASSERT_EQ(f32_to_ue8m0(-value, true, true), code);
    ASSERT_EQ(f32_to_ue8m0(value * 1.5f, false, true), code);
    ASSERT_EQ(f32_to_ue8m0(value * 1.5f, true, true), std::min(code + 1, 254));
  }
  EXPECT_TRUE(std::isnan(ue8m0_to_f32(0xff)));
  EXPECT_EQ(f32_to_ue8m0(INFINITY, false, false), 0xff);
  EXPECT_EQ(f32_to_ue8m0(INFINITY, false, true), 0xfe);
  EXPECT_EQ(f32_to_ue8m0(NAN, true, true), 0xff);
  EXPECT_EQ(f32_to_ue8m0(0, true, true), 0);
}

TEST(NumberFormats, ArraysConvertAsSingleNumbersDo) {
  std::vector<std::uint16_t> codes(4097);
  std::vector<std::uint8_t> bytes(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint16_t>(i * 16);
    bytes[i] = static_cast<std::uint8_t>(i);
  }
  std::vector<float> values(codes.size());
  std::vector<std::uint16_t> back(codes.size());
  f16_to_f32(values.data(), codes.data(), codes.size());
  f32_to_bf16(back.data(), values.data(), values.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    ASSERT_EQ(bits(values[i]), bits(f16_to_f32(codes[i])));
    ASSERT_EQ(back[i], f32_to_bf16(values[i]));
  }
  bf16_to_f32(values.data(), codes.data(), codes.size());
  f32_to_f16(back.data(), values.data(), values.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    ASSERT_EQ(bits(values[i]), bits(bf16_to_f32(codes[i])));
    ASSERT_EQ(back[i], f32_to_f16(values[i]));
  }
  e4m3_to_f32(values.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bits(values[i]), bits(kE4m3Values[bytes[i]]));
  e5m2_to_f32(values.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bits(values[i]), bits(kE5m2Values[bytes[i]]));
}

TEST(NumberFormats, RoundingToOddKeepsWhatASecondRoundingNeeds) {
  // 1 + 2^-11 is a tie of f16; the least bit beyond it, far below a double's last place, decides.
  const ExactSum above = exact_sum(1 + 0x1p-11, 0x1p-80), below = exact_sum(1 + 0x1p-11, -0x1p-80);
  EXPECT_EQ(encode_number(kF16, above.high, Rounding::kNearestEven), 0x3c00u);  // the sticky bit decides here
  EXPECT_EQ(encode_number(kF16, round_to_odd(above), Rounding::kNearestEven), 0x3c01u);
  EXPECT_EQ(encode_number(kF16, round_to_odd(below), Rounding::kNearestEven), 0x3c00u);
  EXPECT_EQ(f32_to_f16(round_to_odd_f32(1 + 0x1p-11 + 0x1p-40)), 0x3c01);
  EXPECT_EQ(f32_to_f16(round_to_odd_f32(-1 - 0x1p-11 - 0x1p-40)), 0xbc01);
  EXPECT_EQ(round_to_odd_f32(1e300), std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isnan(round_to_odd_f32(NAN)));
  EXPECT_EQ(round_to_odd_f32(0.25), 0.25f);
}

}  // namespace
}  // namespace kernelwright::emulator
