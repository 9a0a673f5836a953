// Quantisers of the block-scaled formats compared with their definition: in exact arithmetic, at every edge, and back
// again.
#include "kernelwright/verify/formats/block_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "contract/block_scales.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Block {
  int scale_byte;
  std::vector<double> elements;
  bool operator==(const Block&) const = default;
};

class BlockFormats : public testing::TestWithParam<DType> {
 protected:
  DType format() const { return GetParam(); }
  bool is_mx() const { return format() != DType::kNvfp4; }
  std::size_t length() const { return static_cast<std::size_t>(scale_vector(format())); }
  double largest() const { return float_format(format()).largest; }

  Block quantize(std::vector<float> values, float tensor_scale = 1) const {
    values.resize(length());
    std::vector<std::byte> bytes(bytes_of(format(), length()), std::byte{0xaa});
    Block block{quantize_block(format(), values, bytes.data(), tensor_scale), {}};
    block.elements.resize(length());
    decode_row(format(), bytes.data(), length(), block.elements.data());
    return block;
  }
  /// The standard's rule: the nearest of all elements, and of two equally near ones the even code.
  double nearest(double value) const {
    const int codes = format() == DType::kMxfp8 ? 0x7f : 8;
    double best = 0;
    for (int code = 1; code < codes; ++code) {
      const double element = decode_float(format(), static_cast<std::uint32_t>(code));
      const double error = std::fabs(std::fabs(value) - element), least = std::fabs(std::fabs(value) - best);
      if (error < least || (error == least && code % 2 == 0)) best = element;
    }
    return std::copysign(best, value);
  }
  void expect_as_defined(const std::vector<float>& values) const {
    const Block block = quantize(values);
    double absmax = 0;
    for (const float value : values) absmax = std::max(absmax, std::fabs(static_cast<double>(value)));
    const double scale = decode_scale(format(), static_cast<std::uint8_t>(block.scale_byte));
    if (is_mx()) {
      const int emax = format() == DType::kMxfp8 ? 8 : 2;
      ASSERT_EQ(scale, std::exp2(std::max(std::floor(std::log2(absmax)) - emax, -127.0)));
    } else {
      ASSERT_LT(block.scale_byte, 0x7f) << "a sign, or NaN";
      for (int other = 0; other < 0x7f; ++other) {  // no scale is nearer, and no even one is equally near
        const double value = decode_float(DType::kE4m3, static_cast<std::uint32_t>(other));
        const double error = std::fabs(scale * 6 - absmax), others = std::fabs(value * 6 - absmax);
        ASSERT_LE(error, others);
        ASSERT_TRUE(error < others || other == block.scale_byte || block.scale_byte % 2 == 0);
      }
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(block.elements[i], scale == 0 ? 0 : nearest(values[i] / scale)) << values[i] << " by " << scale;
  }
};

TEST_P(BlockFormats, ScalesThatAreRoundedUpLetNoElementSaturate) {
  if (!is_mx()) return;
  Random random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const int exponent = static_cast<int>(random.below(250)) - 126;
    const auto magnitude = std::ldexp(static_cast<float>(random.uniform(1, 2)), exponent);
    const int byte = made_scale_byte(format(), magnitude, true);
    const double scale = decode_scale(format(), static_cast<std::uint8_t>(byte));
    ASSERT_LE(magnitude, largest() * scale);
    ASSERT_TRUE(byte == 0 || magnitude > largest() * scale / 2) << magnitude;
  }
  const auto end = static_cast<float>(largest());
  EXPECT_EQ(made_scale_byte(format(), end, true), 127);
  EXPECT_EQ(made_scale_byte(format(), std::nextafter(end, kInfinity), true), 128);
  EXPECT_EQ(made_scale_byte(format(), std::nextafter(end, kInfinity), false), 127);
  EXPECT_EQ(made_scale_byte(format(), 0, true), 0);
}

TEST_P(BlockFormats, QuantiseRandomBlocksAsDefined) {
  Random random(1);
  for (int trial = 0; trial < 400; ++trial) {
    const float size = std::ldexp(1.f, static_cast<int>(random.below(is_mx() ? 240 : 30)) - (is_mx() ? 140 : 18));
    std::vector<float> values(length());
    for (std::size_t i = 0; i < values.size(); i += 2) random.normal_pair(values[i], values[i + 1]);
    for (float& value : values) value *= size;
    expect_as_defined(values);
  }
}

TEST_P(BlockFormats, RoundTiesToEven) {
  for (const float absmax : {1.f, 6.f, 448.f, 0x1.8p-3f, 7.999f, 0x1p-9f, 0x1.8p-120f}) {
    const Block block = quantize({absmax});
    const float scale = decode_scale(format(), static_cast<std::uint8_t>(block.scale_byte));
    if (scale == 0) continue;
    const int codes = format() == DType::kMxfp8 ? 0x7e : 7;
    for (int code = 0; code < codes; ++code) {
      const float low = decode_float(format(), static_cast<std::uint32_t>(code));
      const float middle = scale * (low + decode_float(format(), static_cast<std::uint32_t>(code + 1))) / 2;
      if (middle > absmax) break;
      expect_as_defined({absmax, middle, -middle, std::nextafter(middle, 0.f), -std::nextafter(middle, kInfinity)});
    }
  }
}

TEST_P(BlockFormats, TakeEveryScale) {
  for (int byte = 1; byte < nan_scale(format()); ++byte) {
    const float scale = decode_scale(format(), static_cast<std::uint8_t>(byte));
    EXPECT_EQ(encode_scale(format(), scale), byte);
    const float absmax = scale * static_cast<float>(largest());
    if (!std::isfinite(absmax)) continue;
    const Block block = quantize({-absmax, scale});
    EXPECT_EQ(block.scale_byte, byte);
    EXPECT_EQ(block.elements[0], -largest());
    EXPECT_EQ(block.elements[1], 1);
  }
}

TEST_P(BlockFormats, SaturateWhatLiesPastTheirEnd) {
  const Block block = is_mx() ? quantize({1.999f, -1.999f}) : quantize({std::numeric_limits<float>::max(), -3000});
  EXPECT_EQ(block.scale_byte, is_mx() ? 127 - (format() == DType::kMxfp8 ? 8 : 2) : 0x7e);
  EXPECT_EQ(block.elements[0], largest());
  EXPECT_EQ(block.elements[1], -largest());
}

TEST_P(BlockFormats, OfZerosHaveTheLeastScale) {
  const Block block = quantize({});
  EXPECT_EQ(block.scale_byte, 0);
  EXPECT_EQ(block.elements, std::vector<double>(length(), 0));
  EXPECT_EQ(std::signbit(quantize({-0.f}).elements[0]), is_mx());
}

TEST_P(BlockFormats, OfTheSmallestValuesAreNotNan) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(quantize({tiny, -tiny}).scale_byte, 0);
  expect_as_defined({tiny, -tiny});
  expect_as_defined({0x1p-126f, 0x1.8p-128f, 0x1p-133f});
  expect_as_defined({0x1.8p-8f});  // absmax / 6 is half of the smallest ue4m3 and goes to 0
  expect_as_defined({0x1.802p-8f, 0x1p-9f});
}

TEST_P(BlockFormats, OfAnythingNotFiniteAreNan) {
  for (const float value : {kNan, -kNan, kInfinity, -kInfinity}) {
    const Block block = quantize({1, value, 3});
    EXPECT_EQ(block.scale_byte, nan_scale(format()));
    EXPECT_TRUE(std::isnan(decode_scale(format(), static_cast<std::uint8_t>(block.scale_byte))));
    EXPECT_EQ(block.elements, std::vector<double>(length(), 0));
  }
}

TEST_P(BlockFormats, DivideByTheTensorsScaleFirst) {
  EXPECT_EQ(quantize({3, -1.5, 100}, 0.375f), quantize({8, -4, 100 / 0.375f}));
  EXPECT_EQ(quantize({1}, 0).scale_byte, nan_scale(format()));
}

INSTANTIATE_TEST_SUITE_P(All, BlockFormats, testing::Values(DType::kMxfp8, DType::kMxfp4, DType::kNvfp4),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(BlockFormats, DecodeTheScalesOfTheStandards) {
  EXPECT_EQ(decode_scale(DType::kMxfp4, 127), 1);
  EXPECT_EQ(decode_scale(DType::kMxfp8, 0), 0x1p-127f);
  EXPECT_EQ(decode_scale(DType::kMxfp8, 254), 0x1p127f);
  EXPECT_EQ(decode_scale(DType::kNvfp4, 0x38), 1);
  EXPECT_EQ(decode_scale(DType::kNvfp4, 0x7e), 448);
  EXPECT_EQ(decode_scale(DType::kNvfp4, 0xb8), 1) << "bit 7 has no meaning";
}

TEST(BlockScaleAtoms, HaveEachScaleAtAByteOfItsOwn) {
  const int k = 32 * 6, vector = 32, rows = 200, atoms = contract::scale_atoms_of_row(k, vector);
  EXPECT_EQ(atoms, 2);
  EXPECT_EQ(contract::block_scale_bytes(rows, k, vector), 2 * 2 * 512);
  std::vector<bool> taken(2 * 2 * 512);
  for (int row = 0; row < 256; ++row)
    for (int scale = 0; scale < 8; ++scale) {
      const auto offset = static_cast<std::size_t>(contract::block_scale_offset(atoms, row, scale));
      ASSERT_LT(offset, taken.size());
      EXPECT_FALSE(taken[offset]);
      taken[offset] = true;
    }
  EXPECT_EQ(contract::block_scale_offset(atoms, 0, 3), 3);
  EXPECT_EQ(contract::block_scale_offset(atoms, 1, 0), 16);
  EXPECT_EQ(contract::block_scale_offset(atoms, 33, 1), 16 + 4 + 1);
  EXPECT_EQ(contract::block_scale_offset(atoms, 127, 4), 512 + 31 * 16 + 12);
  EXPECT_EQ(contract::block_scale_offset(atoms, 128, 0), 1024);
  EXPECT_EQ(contract::block_scale_bytes(1, 32, 16), 512);
  EXPECT_EQ(contract::block_scale_bytes(129, 80, 16), 2 * 2 * 512);
}

}  // namespace
}  // namespace kernelwright
