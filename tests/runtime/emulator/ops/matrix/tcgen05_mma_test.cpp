// tcgen05.mma compared with the model: every kind, shape, layout and swizzle. Also compared with itself where two ways
// must agree.
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_mma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/tcgen05_block.h"
#include "runtime/emulator/ops/matrix/tcgen05_model.h"

namespace kernelwright::emulator {
namespace {

using namespace test;
using testing::HasSubstr;

constexpr MmaSwizzle kSwizzles[] = {MmaSwizzle::kNone, MmaSwizzle::k32B, MmaSwizzle::k64B, MmaSwizzle::k128B};

/// Runs the case and compares all of D with the model.
std::string run(const MmaCase& c) {
  MmaRun made(c);
  made.perform();
  return mismatch(made);
}
std::vector<std::uint32_t> bits(const MmaCase& c) {
  MmaRun made(c);
  made.perform();
  return made.cells();
}

struct Type {
  MmaKind kind;
  MmaElement element;
};
constexpr Type kTypes[] = {{MmaKind::kF16, MmaElement::kF16},     {MmaKind::kF16, MmaElement::kBf16},
                           {MmaKind::kTf32, MmaElement::kTf32},   {MmaKind::kF8f6f4, MmaElement::kE4m3},
                           {MmaKind::kF8f6f4, MmaElement::kE5m2}, {MmaKind::kF8f6f4, MmaElement::kE2m3},
                           {MmaKind::kF8f6f4, MmaElement::kE3m2}, {MmaKind::kF8f6f4, MmaElement::kE2m1},
                           {MmaKind::kI8, MmaElement::kU8},       {MmaKind::kI8, MmaElement::kS8}};
MmaCase of_type(const Type& type) {
  return {.kind = type.kind,
          .a = type.element,
          .b = type.element,
          .d = type.kind == MmaKind::kI8 ? MmaOutput::kS32 : MmaOutput::kF32};
}

struct Shape {
  std::uint32_t m, n;
  int cta_group;
  bool weight_stationary;
};
constexpr Shape kShapes[] = {{64, 8, 1, false},    {64, 24, 1, false},   {64, 256, 1, false}, {128, 16, 1, false},
                             {128, 208, 1, false}, {128, 256, 1, false}, {128, 32, 2, false}, {128, 256, 2, false},
                             {256, 32, 2, false},  {256, 224, 2, false}, {32, 64, 1, true},   {32, 256, 1, true},
                             {64, 64, 1, true},    {64, 128, 1, true},   {128, 64, 1, true},  {128, 8, 1, false},
                             {128, 24, 1, false}};

TEST(Tcgen05Mma, MultipliesEveryTypeInEveryLayout) {
  for (const Type& type : kTypes)
    for (const Shape& shape : kShapes) {
      MmaCase c = of_type(type);
      c.m = shape.m;
      c.n = shape.n;
      c.cta_group = shape.cta_group;
      c.weight_stationary = shape.weight_stationary;
      EXPECT_EQ(run(c), "") << static_cast<int>(type.element) << " " << shape.m << " " << shape.n << " "
                            << shape.cta_group << shape.weight_stationary;
      c.a_tensor = true;
      EXPECT_EQ(run(c), "") << "A in tensor memory " << static_cast<int>(type.element) << " " << shape.m << " "
                            << shape.n << " " << shape.cta_group << shape.weight_stationary;
    }
}

TEST(Tcgen05Mma, StaysWithinTheRoundingOfItsSumsForAnyNumbers) {
  for (const Type& type : kTypes) {
    MmaCase c = of_type(type);
    c.whole_numbers = false;
    c.seed = 7;
    EXPECT_EQ(run(c), "") << static_cast<int>(type.element);
    c.accumulate = false;
    EXPECT_EQ(run(c), "") << static_cast<int>(type.element);
  }
}

TEST(Tcgen05Mma, MixesTypesOf8And6And4Bits) {
  constexpr MmaElement kElements[] = {MmaElement::kE4m3, MmaElement::kE5m2, MmaElement::kE2m3, MmaElement::kE3m2,
                                      MmaElement::kE2m1};
  for (const MmaElement a : kElements)
    for (const MmaElement b : kElements) {
      MmaCase c{.kind = MmaKind::kF8f6f4, .a = a, .b = b, .n = 32, .whole_numbers = false};
      EXPECT_EQ(run(c), "") << static_cast<int>(a) << " " << static_cast<int>(b);
      c.a_tensor = true;
      EXPECT_EQ(run(c), "") << static_cast<int>(a) << " " << static_cast<int>(b);
    }
}

TEST(Tcgen05Mma, ReadsEverySwizzleInBothMajorDimensions) {
  for (const Type& type : kTypes)
    for (const bool a_mn : {false, true})
      for (const bool b_mn : {false, true})
        for (const MmaSwizzle swizzle : kSwizzles) {
          MmaCase c = of_type(type);
          const bool wide = type.kind == MmaKind::kTf32;  // transposed: only with atoms of 32 bytes
          c.n = 64;
          c.a_mn_major = a_mn;
          c.b_mn_major = b_mn;
          c.a_swizzle = a_mn && wide ? MmaSwizzle::k128BAtom32B : swizzle;
          c.b_swizzle = b_mn && wide ? MmaSwizzle::k128BAtom32B : swizzle;
          EXPECT_EQ(run(c), "") << static_cast<int>(type.element) << a_mn << b_mn << static_cast<int>(swizzle);
        }
}

TEST(Tcgen05Mma, GivesTheSameBitsHoweverItsOperandsLie) {
  for (const Type& type : kTypes) {
    MmaCase c = of_type(type);
    c.n = 64;
    c.whole_numbers = false;
    const std::vector<std::uint32_t> expected = bits(c);
    for (const MmaSwizzle swizzle : {MmaSwizzle::kNone, MmaSwizzle::k32B, MmaSwizzle::k64B, MmaSwizzle::k128BAtom32B}) {
      c.a_swizzle = c.b_swizzle = swizzle;
      EXPECT_EQ(bits(c), expected) << static_cast<int>(type.element) << " " << static_cast<int>(swizzle);
    }
    c.a_swizzle = c.b_swizzle = MmaSwizzle::k128B;
    c.base_offset = 3;
    EXPECT_EQ(bits(c), expected) << static_cast<int>(type.element) << " with a base offset";
    c.base_offset = 0;
    c.a_tensor = true;
    EXPECT_EQ(bits(c), expected) << static_cast<int>(type.element) << " with A in tensor memory";
    c.weight_stationary = true;
    EXPECT_EQ(bits(c), expected) << static_cast<int>(type.element) << " weight stationary";
  }
}

TEST(Tcgen05Mma, GivesAPairWhatTwoCtasWouldGet) {
  for (const bool a_tensor : {false, true})
    for (const std::uint32_t rows : {64u, 128u}) {
      const MmaCase pair{.kind = MmaKind::kF16,
                         .a = MmaElement::kBf16,
                         .b = MmaElement::kBf16,
                         .m = 2 * rows,
                         .n = 96,
                         .cta_group = 2,
                         .a_tensor = a_tensor,
                         .whole_numbers = false,
                         .seed = 11};
      MmaRun both(pair);
      both.perform();
      std::vector<std::uint32_t> one_by_one;
      for (std::uint32_t half = 0; half < 2; ++half) {
        MmaCase alone = pair;
        alone.m = rows;
        alone.cta_group = 1;
        MmaNumbers numbers = both;  // its rows of A and D, and all of B
        const auto keep = [&](std::vector<std::uint32_t>& all, std::uint32_t width) {
          const auto begin = all.begin() + half * rows * width;
          all = std::vector<std::uint32_t>(begin, begin + rows * width);
        };
        keep(numbers.a, both.k);
        keep(numbers.d, pair.n);
        MmaRun single(alone, numbers);
        single.perform();
        const std::vector<std::uint32_t> cells = single.cells();
        one_by_one.insert(one_by_one.end(), cells.begin(), cells.end());
      }
      EXPECT_EQ(both.cells(), one_by_one) << a_tensor << rows;
    }
}

TEST(Tcgen05Mma, PutsSixtyFourRowsIntoEitherHalfOfEachLaneQuarter) {
  for (const std::uint32_t first : {0u, 16u})
    for (const bool a_tensor : {false, true})
      EXPECT_EQ(run({.m = 64, .n = 40, .a_tensor = a_tensor, .first_lane = first}), "") << first << a_tensor;
}

TEST(Tcgen05Mma, NegatesAndScalesAndRoundsToHalves) {
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const MmaOutput d : {MmaOutput::kF32, MmaOutput::kF16}) {
        EXPECT_EQ(run({.d = d, .negate_a = a, .negate_b = b}), "") << a << b;
        EXPECT_EQ(run({.d = d, .negate_a = a, .negate_b = b, .accumulate = false, .whole_numbers = false}), "");
      }
  for (const int scale : {1, 5, 15})
    for (const MmaOutput d : {MmaOutput::kF32, MmaOutput::kF16}) {
      EXPECT_EQ(run({.d = d, .scale_d = scale, .whole_numbers = false}), "") << scale;
      EXPECT_EQ(run({.d = d, .accumulate = false, .scale_d = scale}), "") << scale;
    }
}

TEST(Tcgen05Mma, LeavesTheLanesAloneThatAreDisabled) {
  for (const int group : {1, 2}) {
    MmaCase c{.m = 128u * static_cast<std::uint32_t>(group), .n = 32, .cta_group = group, .accumulate = false};
    c.disabled = {0x00000001, 0xffffffff, 0, 0x80000000, 0xaaaaaaaa, 0, 1, 0};
    MmaRun made(c);
    made.perform();
    const std::vector<std::uint32_t> cells = made.cells();
    for (std::uint32_t row = 0; row < c.m; ++row)
      for (std::uint32_t n = 0; n < c.n; ++n) {
        const bool off = c.disabled[row / 32] >> (row % 32) & 1;
        ASSERT_EQ(made.value(cells[row * c.n + n]), off ? made.before(row, n) : made.expected(row, n))
            << row << " " << n;
      }
  }
}

TEST(Tcgen05Mma, SaturatesIntegersOrWrapsThemAround) {
  for (const bool saturate : {false, true}) {
    const MmaCase c{.kind = MmaKind::kI8,
                    .a = MmaElement::kS8,
                    .b = MmaElement::kS8,
                    .d = MmaOutput::kS32,
                    .n = 16,
                    .saturate = saturate};
    MmaNumbers numbers = draw_numbers(c);
    for (std::size_t i = 0; i < numbers.d.size(); ++i)
      numbers.d[i] = static_cast<std::uint32_t>(i / c.n % 2 ? 0x7ffffffe : -0x7ffffffe);
    MmaRun made(c, numbers);
    made.perform();
    const std::vector<std::uint32_t> cells = made.cells();
    bool beyond = false;
    for (std::uint32_t row = 0; row < c.m; ++row)
      for (std::uint32_t n = 0; n < c.n; ++n) {
        double sum = made.expected(row, n);
        beyond |= sum > 0x7fffffff;
        if (!saturate) sum = static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::int64_t>(sum)));
        ASSERT_EQ(made.value(cells[row * c.n + n]), sum);
      }
    EXPECT_TRUE(saturate || beyond);
  }
}

TEST(Tcgen05Mma, WritesTheOneNaNOfTensorCores) {
  MmaRun made({.n = 8 * 2, .accumulate = true});
  *tensor_memory(*made.cluster->ctas[0]).row(5, MmaRun::kD + 3) = 0xffc12345;
  made.perform();
  EXPECT_EQ(made.cell(5, 3), 0x7fffffffu);
  EXPECT_NE(made.cell(5, 2), 0x7fffffffu);
}

// ---- block scaling ------------------------------------------------------------------------------------------------

MmaCase scaled(MmaKind kind, MmaElement element, int block, MmaScale scale = MmaScale::kUe8m0) {
  return {.kind = kind, .a = element, .b = element, .scale_block = block, .scale = scale};
}

TEST(Tcgen05Mma, ScalesBlocksOfEveryKind) {
  const MmaCase cases[] = {scaled(MmaKind::kMxf8f6f4, MmaElement::kE4m3, 32),
                           scaled(MmaKind::kMxf8f6f4, MmaElement::kE2m1, 32),
                           scaled(MmaKind::kMxf4, MmaElement::kE2m1, 32),
                           scaled(MmaKind::kMxf4nvf4, MmaElement::kE2m1, 32),
                           scaled(MmaKind::kMxf4nvf4, MmaElement::kE2m1, 16),
                           scaled(MmaKind::kMxf4nvf4, MmaElement::kE2m1, 16, MmaScale::kUe4m3)};
  for (MmaCase c : cases)
    for (const auto& [m, n, group] : {std::tuple{128u, 8u, 1}, std::tuple{128u, 200u, 1}, std::tuple{128u, 256u, 1},
                                      std::tuple{256u, 48u, 2}, std::tuple{256u, 256u, 2}, std::tuple{128u, 64u, 2}})
      for (const bool a_tensor : {false, true}) {
        c.m = m;
        c.n = n;
        c.cta_group = group;
        c.a_tensor = a_tensor;
        c.whole_numbers = !c.whole_numbers;
        EXPECT_EQ(run(c), "") << static_cast<int>(c.kind) << " " << c.scale_block << " " << m << " " << n << " "
                              << group;
      }
}

TEST(Tcgen05Mma, TakesTheScalesThatTheirIdsName) {
  for (std::uint32_t id = 0; id < 4; ++id) {
    MmaCase c = scaled(MmaKind::kMxf8f6f4, MmaElement::kE5m2, 32);
    c.scale_a_id = id;
    c.scale_b_id = 3 - id;
    c.n = 136;
    EXPECT_EQ(run(c), "") << id;
  }
  for (const std::uint32_t id : {0u, 2u}) {
    MmaCase c = scaled(MmaKind::kMxf4, MmaElement::kE2m1, 32);
    c.scale_a_id = id;
    c.scale_b_id = 2 - id;
    EXPECT_EQ(run(c), "") << id;
  }
}

TEST(Tcgen05Mma, NegatesWithScales) {
  MmaCase c = scaled(MmaKind::kMxf4nvf4, MmaElement::kE2m1, 16, MmaScale::kUe4m3);
  c.negate_a = true;
  EXPECT_EQ(run(c), "");
}

TEST(Tcgen05Mma, ReadsTransposedOperandsWithScales) {
  for (const MmaSwizzle swizzle : kSwizzles) {
    MmaCase c = scaled(MmaKind::kMxf8f6f4, MmaElement::kE4m3, 32);
    c.a_swizzle = c.b_swizzle = swizzle;
    c.a_mn_major = c.b_mn_major = true;
    EXPECT_EQ(run(c), "");
  }
}

TEST(Tcgen05Mma, SurvivesScalesWhoseProductIsBeyondFloat) {
  MmaCase c = scaled(MmaKind::kMxf8f6f4, MmaElement::kE4m3, 32);
  c.accumulate = false;
  MmaNumbers numbers = draw_numbers(c);
  std::fill(numbers.scale_a.begin(), numbers.scale_a.end(), std::uint8_t{254});  // 2^127
  std::fill(numbers.scale_b.begin(), numbers.scale_b.end(), std::uint8_t{0});    // 2^-127
  MmaRun made(c, numbers);
  made.perform();
  EXPECT_EQ(mismatch(made), "");
}

TEST(Tcgen05Mma, FaultsWhenTheScalesDifferBetweenLaneQuarters) {
  MmaRun made(scaled(MmaKind::kMxf8f6f4, MmaElement::kE4m3, 32));
  *tensor_memory(*made.cluster->ctas[0]).row(64 + 7, MmaRun::kScaleB + 1) ^= 1;
  try {
    made.perform();
    ADD_FAILURE() << "accepted";
  } catch (const Fault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("the scale factors of B differ between the lane quarters: column 39"));
  }
}

TEST(Tcgen05Mma, MultipliesNinetySixDeepOnSm103) {
  for (const int block : {16, 32})
    for (const std::uint32_t id : {0u, 1u, 2u, 3u}) {
      if (block == 16 && id % 2) continue;
      for (const std::uint32_t n : {64u, 256u}) {
        MmaCase c = scaled(MmaKind::kMxf4nvf4, MmaElement::kE2m1, block);
        c.m = 256;
        c.n = n;
        c.cta_group = 2;
        c.k96 = true;
        c.scale_a_id = c.scale_b_id = id;
        EXPECT_EQ(run(c), "") << block << " " << id << " " << n;
      }
    }
}

// ---- places -------------------------------------------------------------------------------------------------------

std::string refusal(const MmaCase& c, const std::function<void(MmaRun&)>& change) {
  MmaRun made(c);
  change(made);
  try {
    made.perform();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "accepted";
}

TEST(Tcgen05Mma, RefusesPlacesByName) {
  EXPECT_THAT(refusal({}, [](MmaRun& r) { r.mma.d.lane = 16; }), HasSubstr("D begins at lane 16"));
  EXPECT_THAT(refusal({.m = 64}, [](MmaRun& r) { r.mma.d.lane = 32; }), HasSubstr("begins at lane 0 or 16"));
  EXPECT_THAT(refusal({.m = 64, .a_tensor = true}, [](MmaRun& r) { r.mma.d.lane = 16; }),
              HasSubstr("A begins at lane 0 and D at lane 16"));
  EXPECT_THAT(refusal({}, [](MmaRun& r) { r.mma.d.column = 480; }), HasSubstr("tensor memory has 128 and 512"));
  EXPECT_THAT(refusal({}, [](MmaRun& r) { tensor_memory(*r.cluster->ctas[0]).deallocate(0, 512, 1); }),
              HasSubstr("are not allocated"));
  EXPECT_THAT(refusal({}, [](MmaRun& r) { r.mma.b_shared.start = 95 * 1024; }), HasSubstr("outside the CTA's"));
  EXPECT_THAT(refusal(scaled(MmaKind::kMxf4, MmaElement::kE2m1, 32), [](MmaRun& r) { r.mma.scale_a.lane = 32; }),
              HasSubstr("the scales of A begin at lane 32"));
}

// ---- the multiplication -------------------------------------------------------------------------------------------

TEST(Tcgen05Block, MultipliesAnyRowsAndColumns) {
  std::mt19937 random(1);
  for (const std::uint32_t rows : {1u, 4u, 7u, 128u})
    for (const std::uint32_t columns : {8u, 24u, 64u, 104u, 256u})
      for (const std::uint32_t depth : {8u, 16u, 96u}) {
        std::vector<float> a(rows * depth), b(columns * depth), b_panel(depth * columns), d(rows * columns);
        for (auto* values : {&a, &b, &d})
          for (float& value : *values) value = static_cast<float>(random() % 15) - 7;
        std::vector<float> expected;
        for (std::uint32_t row = 0; row < rows; ++row)
          for (std::uint32_t n = 0; n < columns; ++n) {
            float sum = d[row * columns + n];
            for (std::uint32_t k = 0; k < depth; ++k) sum += a[row * depth + k] * b[n * depth + k];
            expected.push_back(sum);
          }
        transpose_panel(b.data(), columns, depth, b_panel.data(), columns);
        std::vector<float*> d_rows;
        std::vector<const float*> a_rows;
        for (std::uint32_t row = 0; row < rows; ++row) {
          d_rows.push_back(d.data() + row * columns);
          a_rows.push_back(a.data() + row * depth);
        }
        multiply_rows({d_rows.data(), a_rows.data(), rows, b_panel.data(), columns, columns, depth, true});
        ASSERT_EQ(d, expected) << rows << " " << columns << " " << depth;
      }
}

}  // namespace
}  // namespace kernelwright::emulator
