// The conversions compared with their definition: every code, every midpoint between two codes, and the edges of the
// range.
#include "kernelwright/verify/formats/float_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace kernelwright::float_formats_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  DType dtype;
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  float largest;
};

class FloatFormats : public testing::TestWithParam<Format> {
 protected:
  int codes() const { return 1 << (GetParam().exponent_bits + GetParam().mantissa_bits); }  // without the sign
  // IEEE 754's definition, written as a sum of powers of two.
  double defined(int code) const {
    const Format& format = GetParam();
    const int exponent = code >> format.mantissa_bits, bias = (1 << (format.exponent_bits - 1)) - 1;
    const double fraction = static_cast<double>(code & ((1 << format.mantissa_bits) - 1)) / (1 << format.mantissa_bits);
    return exponent ? std::pow(2.0, exponent - bias) * (1 + fraction) : std::pow(2.0, 1 - bias) * fraction;
  }
};

TEST_P(FloatFormats, DecodesEveryCodeByDefinition) {
  const Format& format = GetParam();
  const std::uint32_t sign = static_cast<std::uint32_t>(codes());
  for (int code = 0; code < codes(); ++code) {
    const float value = decode_float(format.dtype, static_cast<std::uint32_t>(code));
    const float negative = decode_float(format.dtype, static_cast<std::uint32_t>(code) | sign);
    if (defined(code) <= format.largest) {
      ASSERT_EQ(value, defined(code)) << code;
      ASSERT_EQ(negative, -defined(code)) << code;
      ASSERT_TRUE(std::signbit(negative));
    } else {
      const bool infinite = format.has_infinity && (code & ((1 << format.mantissa_bits) - 1)) == 0;
      ASSERT_EQ(std::isinf(value), infinite) << code;
      ASSERT_EQ(std::isnan(value), !infinite) << code;
    }
  }
}

TEST_P(FloatFormats, RoundsToTheNearestCodeAndTiesToEven) {
  const Format& format = GetParam();
  for (int code = 0; defined(code + 1) <= format.largest; ++code) {
    const double low = defined(code), high = defined(code + 1);
    const float middle = static_cast<float>((low + high) / 2);  // exact: one more bit than the format has
    ASSERT_EQ(middle, (low + high) / 2);
    for (const int sign : {0, 1}) {
      const float s = sign ? -1.f : 1.f;
      const auto bits = [&](int wanted) { return static_cast<std::uint32_t>(wanted | (sign ? codes() : 0)); };
      ASSERT_EQ(encode_float(format.dtype, s * static_cast<float>(low)), bits(code)) << code;
      ASSERT_EQ(encode_float(format.dtype, s * middle), bits(code + (code & 1))) << code;
      ASSERT_EQ(encode_float(format.dtype, s * std::nextafter(middle, 0.f)), bits(code)) << code;
      ASSERT_EQ(encode_float(format.dtype, s * std::nextafter(middle, kInfinity)), bits(code + 1)) << code;
    }
  }
}

TEST_P(FloatFormats, OverflowsAsPtxDoes) {
  const Format& format = GetParam();
  const bool saturates = bits_of(format.dtype) <= 8;
  EXPECT_EQ(round_to(format.dtype, format.largest), format.largest);
  EXPECT_EQ(round_to(format.dtype, kInfinity), saturates ? format.largest : kInfinity);
  EXPECT_EQ(round_to(format.dtype, -kInfinity), saturates ? -format.largest : -kInfinity);
  EXPECT_EQ(round_to(format.dtype, std::numeric_limits<float>::max()), saturates ? format.largest : kInfinity);
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    const float rounded = round_to(format.dtype, nan);
    EXPECT_TRUE(bits_of(format.dtype) == 4 ? rounded == format.largest : std::isnan(rounded)) << rounded;
  }
}

TEST_P(FloatFormats, StatesItsOwnLimits) {
  const Format& format = GetParam();
  const FloatFormat stated = float_format(format.dtype);
  EXPECT_EQ(stated.largest, format.largest);
  EXPECT_EQ(stated.unit_roundoff, std::ldexp(1.0, -format.mantissa_bits - 1));
  EXPECT_EQ(stated.half_smallest, defined(1) / 2);
}

TEST_P(FloatFormats, PoisonIsNanInEveryElement) {
  std::vector<std::byte> bytes(64);
  fill_with_nan(GetParam().dtype, bytes);
  const DType dtype = GetParam().dtype;
  std::vector<double> values(bytes.size() * 8 / static_cast<std::size_t>(bits_of(dtype)));
  decode_row(dtype, bytes.data(), values.size(), values.data());
  for (const double value : values) EXPECT_TRUE(bits_of(dtype) == 4 ? value == 6 : std::isnan(value)) << value;
}

INSTANTIATE_TEST_SUITE_P(All, FloatFormats,
                         testing::Values(Format{DType::kF16, 5, 10, true, 65504},
                                         Format{DType::kBf16, 8, 7, true, 0x1.fep127f},
                                         Format{DType::kE4m3, 4, 3, false, 448},
                                         Format{DType::kE5m2, 5, 2, true, 57344},
                                         Format{DType::kMxfp8, 4, 3, false, 448}, Format{DType::kMxfp4, 2, 1, false, 6},
                                         Format{DType::kNvfp4, 2, 1, false, 6}),
                         [](const auto& info) { return std::string(to_string(info.param.dtype)); });

TEST(FloatFormats, TheEightBitNanIsThatOfPtx) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(encode_float(DType::kE4m3, nan), 0x7fu);
  EXPECT_EQ(encode_float(DType::kE5m2, -nan), 0x7fu);
}

TEST(FloatFormats, Tf32IsAnF32WithoutItsLow13Bits) {
  const float value = 1 + 0x1p-10f + 0x1p-11f, nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(encode_float(DType::kTf32, value), encode_float(DType::kF32, value)) << "memory keeps all of it";
  EXPECT_EQ(round_to(DType::kTf32, value), 1 + 0x1p-10f);
  EXPECT_EQ(round_to(DType::kTf32, -value), -1 - 0x1p-10f);
  EXPECT_TRUE(std::isnan(round_to(DType::kTf32, nan)));
  const FloatFormat stated = float_format(DType::kTf32);
  EXPECT_EQ(round_to(DType::kTf32, std::numeric_limits<float>::max()), stated.largest);
  EXPECT_LT((value - round_to(DType::kTf32, value)) / value, stated.unit_roundoff);
  const auto smallest = static_cast<float>(stated.half_smallest);
  EXPECT_EQ(round_to(DType::kTf32, smallest), smallest);
  EXPECT_EQ(round_to(DType::kTf32, std::nextafter(smallest, 0.f)), 0);
  std::vector<std::byte> bytes(8);
  fill_with_nan(DType::kTf32, bytes);
  double pair[2];
  decode_row(DType::kTf32, bytes.data(), 2, pair);
  EXPECT_TRUE(std::isnan(pair[0]) && std::isnan(pair[1]));
}

TEST(FloatFormats, FourBitElementsLieTwoToAByte) {
  const std::vector<float> values{0.5, -6, 3};
  std::vector<std::byte> bytes(2, std::byte{0xff});
  EXPECT_EQ(bytes_of(DType::kNvfp4, 3), 2u);
  encode_row(DType::kNvfp4, values, bytes.data());
  EXPECT_EQ(bytes[0], std::byte{0xf1});
  EXPECT_EQ(bytes[1], std::byte{0x05});
  std::vector<double> back(3);
  decode_row(DType::kNvfp4, bytes.data(), 3, back.data());
  EXPECT_TRUE(std::equal(values.begin(), values.end(), back.begin()));
}

TEST(FloatFormats, RowsComeBack) {
  const std::vector<float> values{0, 1, -2.5, 448, -0.015625};
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2, DType::kF32, DType::kTf32}) {
    std::vector<std::byte> bytes(values.size() * bytes_of(dtype));
    encode_row(dtype, values, bytes.data());
    std::vector<double> back(values.size());
    decode_row(dtype, bytes.data(), back.size(), back.data());
    EXPECT_TRUE(std::equal(values.begin(), values.end(), back.begin())) << to_string(dtype);
  }
}

}  // namespace
}  // namespace kernelwright::float_formats_test
