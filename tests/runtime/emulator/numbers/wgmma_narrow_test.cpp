// Sums of fp8 products as Hopper's tensor cores take them. The recorded files wgmma/rounding_f32_e4m3 and _e5m2 hold
// the same arithmetic to an H100.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernelwright/runtime/emulator/numbers/wgmma_block.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kDepth = 32, kColumns = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

/// One instruction of fp8 operands, 64 x 8 x 32. Everything that a test does not set is zero.
struct Product {
  std::vector<float> a = std::vector<float>(kWgmmaRows * kDepth), b = std::vector<float>(kColumns * kDepth),
                     d = std::vector<float>(kWgmmaRows * kColumns);
  bool accumulate = true;

  static std::uint32_t place(std::uint32_t row, std::uint32_t column) {
    const std::uint32_t reg = row % 16 / 8 * 2 + column % 2, lane = row % 8 * 4 + column / 2;
    return (row / 16 * (kColumns / 2) + reg) * 32 + lane;
  }
  float& at(std::uint32_t row, std::uint32_t column) { return d[place(row, column)]; }

  void run() {
    std::vector<float> panel_a(a.size() * 4), panel_b(b.size()), powers_a(panel_a.size()), powers_b(b.size());
    make_a_panel(a.data(), kDepth, false, false, panel_a.data());
    make_b_panel(b.data(), kColumns, kDepth, false, panel_b.data());
    make_powers(panel_a.data(), panel_a.size(), powers_a.data());
    make_powers(panel_b.data(), panel_b.size(), powers_b.data());
    std::vector<float*> registers;
    for (std::size_t i = 0; i < d.size(); i += 32) registers.push_back(d.data() + i);
    multiply_fragments({registers.data(), panel_a.data(), panel_b.data(), kColumns, kDepth, accumulate, powers_a.data(),
                        powers_b.data()});
  }
};

/// `before` plus products, all in row 0 and column 0.
float sum_of(float before, const std::vector<std::pair<float, float>>& factors) {
  Product product;
  product.at(0, 0) = before;
  for (std::size_t k = 0; k < factors.size(); ++k) product.a[k] = factors[k].first, product.b[k] = factors[k].second;
  product.run();
  for (std::size_t i = 1; i < product.d.size(); ++i) EXPECT_EQ(product.d[i], 0) << i;
  return product.at(0, 0);
}

TEST(WgmmaNarrow, TruncatesAddendsTowardsZeroAt13BitsBelowTheLargest) {
  EXPECT_EQ(sum_of(0, {{1, 1}, {1.75f, 0x1p-13f}}), 1 + 0x1p-13f);
  EXPECT_EQ(sum_of(0, {{1, 1}, {1.75f, -0x1p-13f}}), 1 - 0x1p-13f);
  EXPECT_EQ(sum_of(0, {{1, 1}, {1.75f, 0x1p-14f}, {1.75f, 0x1p-14f}}), 1);
  EXPECT_EQ(sum_of(1, {{1.75f, 0x1p-13f}, {-1.75f, 0x1p-14f}}), 1 + 0x1p-13f);
}

TEST(WgmmaNarrow, AlignsByThePowersOfFactors) {
  // 1.5 * 1.5 is above 2, and its power is 1.
  EXPECT_EQ(sum_of(0, {{1.5f, 1.5f}, {-0.5f, 0.5f}, {0x1p-6f, 0x1p-7f}}), 2 + 0x1p-13f - 0x1p-13f);
  EXPECT_EQ(sum_of(0, {{1.5f, 1.5f}, {-1.5f, 1.5f}, {0x1p-6f, 0x1p-7f}}), 0x1p-13f);
  EXPECT_EQ(sum_of(0, {{2, 1}, {-2, 1}, {0x1p-6f, 0x1p-7f}}), 0);
}

TEST(WgmmaNarrow, TruncatesTheSumTo13BitsBehindItsLeadingOne) {
  std::vector<std::pair<float, float>> factors(kDepth, {1, 1});
  factors[0] = {1 + 0x1p-9f, 1};
  EXPECT_EQ(sum_of(0, factors), 32) << "32 + 2^-9";
  factors[0] = {1 + 0x1p-8f, 1};
  EXPECT_EQ(sum_of(0, factors), 32 + 0x1p-8f);
  EXPECT_EQ(sum_of(-63, factors), -31 + 0x1p-8f);
}

TEST(WgmmaNarrow, LosesSmallProductsBesideALargeSum) {
  const std::vector<std::pair<float, float>> ones(kDepth, {1, 1});
  EXPECT_EQ(sum_of(0x1p13f, ones), 0x1p13f + 32);
  EXPECT_EQ(sum_of(0x1p14f, ones), 0x1p14f);
  EXPECT_EQ(sum_of(-0x1p14f, ones), -0x1p14f);
}

TEST(WgmmaNarrow, KeepsASumWithoutProducts) {
  for (const float before : {1.0f, -1.5f, 0x1p-120f, 0x1.8p-130f, 0x1.fffp127f, kInfinity, -kInfinity})
    EXPECT_EQ(sum_of(before, {{0, 448}}), before);
  EXPECT_EQ(sum_of(1 + 0x1p-13f + 0x1p-14f, {}), 1 + 0x1p-13f);
  EXPECT_FALSE(std::signbit(sum_of(-0.0f, {})));
  EXPECT_EQ(sum_of(0x1p-120f, {{0x1p-16f, 0x1p-16f}}), 0x1p-32f) << "the smallest product of e5m2";
}

TEST(WgmmaNarrow, KeepsNanAndInfinityInTheirElements) {
  Product product;
  std::fill(product.a.begin(), product.a.end(), 1.0f);
  std::fill(product.b.begin(), product.b.end(), 1.0f);
  std::fill(product.d.begin(), product.d.end(), 0x1p14f);
  product.a[3 * kDepth + 5] = kNan;
  product.a[9 * kDepth + 31] = kInfinity;
  product.b[4 * kDepth + 30] = -kInfinity;
  product.b[6 * kDepth + 31] = 0;
  product.at(20, 1) = kNan, product.at(21, 1) = -kInfinity, product.at(22, 4) = kInfinity;
  product.run();
  for (std::uint32_t row = 0; row < kWgmmaRows; ++row)
    for (std::uint32_t column = 0; column < kColumns; ++column) {
      float expected = 0x1p14f;
      if (column == 4) expected = -kInfinity;
      if (row == 9) expected = kInfinity;
      if (row == 21 && column == 1) expected = -kInfinity;
      const bool nan = row == 3 || (row == 20 && column == 1) || (row == 22 && column == 4) ||
                       (row == 9 && (column == 4 || column == 6));
      const float got = product.at(row, column);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got), nan ? 0x7fffffffu : std::bit_cast<std::uint32_t>(expected))
          << row << " " << column;
    }
}

/// The same in whole numbers of steps.
float whole_steps(float before, const float* a, const float* b) {
  int top = before == 0 ? -1000 : std::ilogb(before);
  bool exists = false;
  for (std::uint32_t k = 0; k < kDepth; ++k)
    if (a[k] * b[k] != 0) top = std::max(top, std::ilogb(a[k]) + std::ilogb(b[k])), exists = true;
  if (!exists && before == 0) return 0;
  const auto steps = [&](double addend) { return static_cast<std::int64_t>(std::ldexp(addend, 13 - top)); };
  std::int64_t sum = steps(before);
  for (std::uint32_t k = 0; k < kDepth; ++k) sum += steps(static_cast<double>(a[k]) * b[k]);
  if (sum == 0) return 0;
  const int dropped = std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::abs(sum)))) - 14);
  const std::int64_t kept = std::abs(sum) >> dropped << dropped;
  return static_cast<float>(std::ldexp(static_cast<double>(sum < 0 ? -kept : kept), top - 13));
}

TEST(WgmmaNarrow, AgreesWithWholeNumbersOfStepsInAnyOrderOfK) {
  std::mt19937 random(1);
  const auto number = [&](int low, int high) {  // four bits, and some zeros
    const int power = low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    return random() % 16 == 0
               ? 0
               : std::ldexp(static_cast<float>(random() % 2 ? 8 + random() % 8 : -8.f - random() % 8), power - 3);
  };
  for (int round = 0; round < 50; ++round) {
    Product product;
    product.accumulate = round % 4 != 0;
    const int spread = round % 10;
    for (auto* values : {&product.a, &product.b})
      for (float& value : *values) value = number(-spread, spread);
    for (float& value : product.d) value = number(-20, 20) * (1 + static_cast<float>(random() % 1024) / 1024);
    Product shuffled = product;
    std::vector<std::uint32_t> order(kDepth);
    for (std::uint32_t k = 0; k < kDepth; ++k) order[k] = k;
    std::shuffle(order.begin(), order.end(), random);
    for (std::uint32_t i = 0; i < kWgmmaRows * kDepth; ++i)
      shuffled.a[i] = product.a[i / kDepth * kDepth + order[i % kDepth]];
    for (std::uint32_t i = 0; i < kColumns * kDepth; ++i)
      shuffled.b[i] = product.b[i / kDepth * kDepth + order[i % kDepth]];
    const std::vector<float> before = product.d;
    product.run();
    shuffled.run();
    EXPECT_EQ(product.d, shuffled.d);
    for (std::uint32_t row = 0; row < kWgmmaRows; ++row)
      for (std::uint32_t column = 0; column < kColumns; ++column)
        ASSERT_EQ(product.at(row, column), whole_steps(product.accumulate ? before[Product::place(row, column)] : 0,
                                                       &product.a[row * kDepth], &product.b[column * kDepth]))
            << round << " " << row << " " << column;
  }
}

}  // namespace
}  // namespace kernelwright::emulator
