// The table of cosines and sines against the formulas, with numbers of published configurations.
#include "kernelwright/generator/kv_write/rope_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "kernelwright/generator/error.h"
#include "support/expect_message.h"

namespace kernelwright {
namespace {

using testing::Each;
using testing::SizeIs;

constexpr double kPi = std::numbers::pi;

TEST(RopeTable, TurnsByThetaToThePair) {
  const std::vector<double> turns = rope_frequencies({.width = 8, .theta = 10000});
  ASSERT_THAT(turns, SizeIs(4));
  EXPECT_DOUBLE_EQ(turns[0], 1);
  EXPECT_DOUBLE_EQ(turns[1], 0.1);
  EXPECT_DOUBLE_EQ(turns[3], 0.001);
  EXPECT_DOUBLE_EQ(rope_frequencies({.width = 8, .factor = 8})[1], 0.0125);
}

TEST(RopeTable, HasCosinesThenSinesOfEachPosition) {
  const std::vector<float> table = rope_table({.width = 4, .theta = 100}, 3, 2);
  ASSERT_THAT(table, SizeIs(8));
  EXPECT_FLOAT_EQ(table[0], static_cast<float>(std::cos(3.0)));
  EXPECT_FLOAT_EQ(table[1], static_cast<float>(std::cos(0.3)));
  EXPECT_FLOAT_EQ(table[2], static_cast<float>(std::sin(3.0)));
  EXPECT_FLOAT_EQ(table[7], static_cast<float>(std::sin(0.4)));
}

TEST(RopeTable, StaysExactForPositionsBeyondAMillion) {
  // In f32 the angle of the first pair alone would be off by 1 / 16 of a radian here.
  constexpr std::int64_t kPosition = (std::int64_t{1} << 30) + 1;
  const std::vector<float> table = rope_table({.width = 2}, kPosition, 1);
  const long double angle = std::remainder(static_cast<long double>(kPosition), 2 * std::numbers::pi_v<long double>);
  EXPECT_NEAR(table[0], static_cast<double>(std::cos(angle)), 1e-7);
  EXPECT_NEAR(table[1], static_cast<double>(std::sin(angle)), 1e-7);
}

TEST(RopeTable, Llama3SlowsLongWavesAndBlendsBetween) {
  const RopeTable rope{
      .width = 128, .scaling = RopeScaling::kLlama3, .theta = 5e5, .factor = 8, .original_positions = 8192};
  const std::vector<double> turns = rope_frequencies(rope);
  bool blended = false;
  for (int pair = 0; pair < 64; ++pair) {
    const double plain = std::pow(5e5, -pair / 64.0), wave = 2 * kPi / plain;
    const double found = turns[static_cast<std::size_t>(pair)];
    if (wave < 8192 / 4.0) {
      EXPECT_DOUBLE_EQ(found, plain);
    } else if (wave > 8192) {
      EXPECT_DOUBLE_EQ(found, plain / 8);
    } else {
      const double smooth = (8192 / wave - 1) / 3;
      EXPECT_NEAR(found, (1 - smooth) * plain / 8 + smooth * plain, 1e-15);
      blended = true;
    }
  }
  EXPECT_TRUE(blended);
  EXPECT_EQ(rope_attention_factor(rope), 1);
}

TEST(RopeTable, YarnBlendsBetweenTheDimensionsOfTwoRotations) {
  RopeTable rope{.width = 64, .scaling = RopeScaling::kYarn, .theta = 1.5e5, .factor = 32, .original_positions = 4096};
  rope.truncate = false;  // gpt-oss
  const auto bound = [](double rotations) {
    return 64 * std::log(4096 / (rotations * 2 * kPi)) / (2 * std::log(1.5e5));
  };
  const double first = bound(32), last = bound(1);
  const std::vector<double> turns = rope_frequencies(rope);
  rope.truncate = true;
  const std::vector<double> truncated = rope_frequencies(rope);
  for (int pair = 0; pair < 32; ++pair) {
    const double plain = std::pow(1.5e5, -pair / 32.0);
    const auto blended = [&](double from, double to) {
      const double slow = std::min(std::max((pair - from) / (to - from), 0.0), 1.0);
      return plain / 32 * slow + plain * (1 - slow);
    };
    EXPECT_NEAR(turns[static_cast<std::size_t>(pair)], blended(first, last), 1e-15);
    EXPECT_NEAR(truncated[static_cast<std::size_t>(pair)], blended(std::floor(first), std::ceil(last)), 1e-15);
  }
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), 0.1 * std::log(32) + 1);
  rope.mscale = 1, rope.mscale_all = 1;  // DeepSeek-V3
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), 1);
  rope.attention_factor = 1.25;
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), 1.25);
  EXPECT_FLOAT_EQ(rope_table(rope, 0, 1)[0], 1.25f);
}

TEST(RopeTable, LongropeDividesEachPairByItsOwnFactor) {
  const RopeTable rope{
      .width = 4, .scaling = RopeScaling::kLongrope, .factor = 32, .original_positions = 4096, .factors = {1, 5}};
  EXPECT_DOUBLE_EQ(rope_frequencies(rope)[0], 1);
  EXPECT_DOUBLE_EQ(rope_frequencies(rope)[1], 0.01 / 5);
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), std::sqrt(1 + std::log(32) / std::log(4096)));
}

TEST(RopeTable, ProportionalLeavesLatePairsStanding) {
  const RopeTable rope{.width = 512, .scaling = RopeScaling::kProportional, .theta = 1e6, .share = 0.25};
  const std::vector<double> turns = rope_frequencies(rope);
  EXPECT_DOUBLE_EQ(turns[63], std::pow(1e6, -126.0 / 512));
  EXPECT_THAT(std::vector<double>(turns.begin() + 64, turns.end()), Each(0));
  const std::vector<float> table = rope_table(rope, 1000, 1);
  EXPECT_EQ(table[64], 1);
  EXPECT_EQ(table[256 + 64], 0);
}

TEST(RopeTable, NamesEveryNumberThatDoesNotFit) {
  EXPECT_THROW_MESSAGE(rope_table({.width = 7}, 0, 1), ConfigError, "/width: 7 is no even number in [2, 1024]");
  EXPECT_THROW_MESSAGE(
      rope_table({.width = 8, .scaling = RopeScaling::kLongrope, .original_positions = 4096, .factors = {1, 2}}, 0, 1),
      ConfigError, "/factors: has 2 numbers; longrope has one for each of 4 pairs");
  EXPECT_THROW_MESSAGE(rope_table({.width = 8, .theta = 0.5}, 0, 1), ConfigError,
                       "/theta: 0.5 does not fit; it is a finite number from 1 on");
  EXPECT_THROW_MESSAGE(rope_table({.width = 8}, 1, std::int64_t{1} << 31), ConfigError,
                       "/rows: 2147483648 rows from 1 on are no positions of 31 bits");
  EXPECT_THROW(rope_table({.width = 8, .scaling = RopeScaling::kYarn, .factor = std::nan("")}, 0, 1), ConfigError);
}

}  // namespace
}  // namespace kernelwright
