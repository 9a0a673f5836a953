#include "kernelwright/generator/checked.h"

#include <gtest/gtest.h>

#include <random>

#include "support/expect_message.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                       kMost = std::numeric_limits<std::int64_t>::max();

TEST(Checked, ANumberThatLeftItsRangeStaysOutside) {
  EXPECT_EQ((CheckedInt(3) * 5 + 2 - 1).or_most(), 16);
  const CheckedInt out = CheckedInt(kMost) + 1;
  EXPECT_FALSE(out.in_range());
  EXPECT_FALSE((out - 1).in_range()) << "although the wrapped number would be right again";
  EXPECT_FALSE((out * 0).in_range());
  EXPECT_EQ(out.or_most(), kMost);
  EXPECT_EQ(out.value_or(-7), -7);
  EXPECT_FALSE(out.at_most(kMost));
  EXPECT_FALSE((CheckedInt(kLeast) - 128).in_range());
  EXPECT_FALSE((CheckedInt(kLeast) * -1).in_range());
  EXPECT_TRUE(CheckedInt(kLeast).at_most(0));
  EXPECT_FALSE((CheckedSize(0) - 1).in_range());
  EXPECT_FALSE((CheckedSize(std::uint64_t{1} << 32) * (std::uint64_t{1} << 32)).in_range());
  CheckedSize sum = 1;
  sum += 2;
  sum *= 3;
  EXPECT_EQ(sum.or_most(), 9u);
}

TEST(Checked, AgreesWithNumbersOf128Bits) {
  std::mt19937_64 random(1);
  const auto draw = [&] { return static_cast<std::int64_t>(random() >> random() % 64) * (random() % 2 ? 1 : -1); };
  __extension__ using Wide = __int128;
  for (int round = 0; round < 100'000; ++round) {
    const std::int64_t a = draw(), b = draw(), c = draw();
    const Wide product = Wide{a} * b, sum = product + c;
    const auto fits = [](Wide value) { return value >= kLeast && value <= kMost; };
    const CheckedInt found = CheckedInt(a) * b + c;
    ASSERT_EQ(found.in_range(), fits(product) && fits(sum)) << a << " * " << b << " + " << c;
    if (found.in_range()) ASSERT_EQ(found.or_most(), static_cast<std::int64_t>(sum));
  }
}

TEST(Checked, SpansEndWhereAddressesDo) {
  EXPECT_TRUE(is_span(0, 0));
  EXPECT_TRUE(is_span(~std::uint64_t{0} - 16, 16));
  EXPECT_FALSE(is_span(~std::uint64_t{0} - 15, 16));
  EXPECT_TRUE(is_span(4096, kMostBytes));
  EXPECT_FALSE(is_span(0, kMostBytes + 1));
  EXPECT_THROW_MESSAGE(
      require_span(0, ~std::uint64_t{0} - 5), ConfigError,
      "/bytes: 18446744073709551610 bytes are more than any memory has; 72057594037927936 are the most");
  EXPECT_THROW_MESSAGE(require_span(~std::uint64_t{0} - 7, 16), ConfigError,
                       "/bytes: 16 bytes are more than follow that address; 64 bits hold no address behind them");
}

}  // namespace
}  // namespace kernelwright
