#include "kernelwright/runtime/emulator/machine/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "runtime/emulator/machine/refusal.h"

namespace kernelwright::emulator {
namespace {

using test::refusal;

using testing::HasSubstr;

TensorMapDescription small_map() {
  TensorMapDescription map;
  map.address = 0x1000;
  map.element = TensorElement::kBf16;
  map.rank = 2;
  map.dims[0] = 64, map.dims[1] = 8;
  map.strides_bytes[0] = 128;
  map.box[0] = 64, map.box[1] = 8;
  map.swizzle = Swizzle::k128B;
  return map;
}

TEST(TensorMap, ReadsBackWhatWasEncoded) {
  TensorMapDescription map = small_map();
  map.dims[1] = std::uint64_t{1} << 32;
  map.element_strides[1] = 2;
  const TensorMap encoded = encode_tensor_map(map);
  const TensorMapDescription read = decode_tensor_map(encoded.bytes);
  EXPECT_EQ(read.address, map.address);
  EXPECT_EQ(read.dims[1], map.dims[1]);
  EXPECT_EQ(read.strides_bytes[0], 128u);
  EXPECT_EQ(read.swizzle, Swizzle::k128B);
  EXPECT_EQ(read.rows(1), 4u);
  EXPECT_EQ(read.box_bytes(), 4u * 128);
}

TEST(TensorMap, NamesEverythingThatTheDriverWouldReject) {
  TensorMapDescription map = small_map();
  map.address = 8;
  map.strides_bytes[0] = 136;
  map.box[0] = 72;
  map.box[1] = 257;
  map.dims[1] = 0;
  const std::string text = refusal(map);
  EXPECT_THAT(text, HasSubstr("/tensor_map/address: 0x8 is not a multiple of 16"));
  EXPECT_THAT(text, HasSubstr("/tensor_map/strides_bytes/0: 136 is not a multiple of 16"));
  EXPECT_THAT(text, HasSubstr("72 elements of bf16 are 144 bytes, and swizzle 128B takes 128 at most"));
  EXPECT_THAT(text, HasSubstr("/tensor_map/box/1: 257 is outside [1, 256]"));
  EXPECT_THAT(text, HasSubstr("/tensor_map/dims/1: 0 is outside"));
  map = small_map();
  map.box[0] = 20;
  EXPECT_THAT(refusal(map), HasSubstr("40 bytes, which is not a multiple of 16"));
  map.rank = 6;
  EXPECT_THAT(refusal(map), HasSubstr("/tensor_map/rank: 6 is outside [1, 5]"));
  EXPECT_EQ(refusal(small_map()), "accepted");
}

TEST(TensorMap, RefusesBytesThatAreNone) {
  const TensorMap zeros = {};
  EXPECT_THROW(decode_tensor_map(zeros.bytes), Fault);
}

TEST(TensorMap, ReplacesFieldsAndChecksThemWhenUsed) {
  TensorMap map = encode_tensor_map(small_map());
  replace_tensor_map_field(map.bytes, TensorMapField::kAddress, 0, 0x2000);
  replace_tensor_map_field(map.bytes, TensorMapField::kGlobalDim, 1, 5);
  replace_tensor_map_field(map.bytes, TensorMapField::kGlobalStride, 0, 256);
  const TensorMapDescription read = decode_tensor_map(map.bytes);
  EXPECT_EQ(read.address, 0x2000u);
  EXPECT_EQ(read.dims[1], 5u);
  EXPECT_EQ(read.strides_bytes[0], 256u);
  replace_tensor_map_field(map.bytes, TensorMapField::kBoxDim, 0, 128);
  EXPECT_THROW(decode_tensor_map(map.bytes), Fault);
}

using Field = TensorMapField;
struct Replaced {
  Field field;
  std::uint32_t ordinal;
  std::uint64_t value;
};
/// Every field of small_map(), as tensormap.replace takes them.
const std::vector<Replaced> kSmallMap = {
    {Field::kAddress, 0, 0x1000},     {Field::kRank, 0, 1},          {Field::kBoxDim, 0, 64},
    {Field::kBoxDim, 1, 8},           {Field::kGlobalDim, 0, 64},    {Field::kGlobalDim, 1, 8},
    {Field::kGlobalStride, 0, 128},   {Field::kElementStride, 0, 1}, {Field::kElementStride, 1, 1},
    {Field::kElement, 0, 10},         {Field::kInterleave, 0, 0},    {Field::kSwizzle, 0, 3},
    {Field::kSwizzleAtomicity, 0, 0}, {Field::kFill, 0, 0},
};

TensorMap replaced_in_zeros(std::size_t without) {
  TensorMap map = {};
  for (std::size_t i = 0; i < kSmallMap.size(); ++i)
    if (i != without) replace_tensor_map_field(map.bytes, kSmallMap[i].field, kSmallMap[i].ordinal, kSmallMap[i].value);
  return map;
}

TEST(TensorMap, IsMadeOfZerosByReplacingEveryField) {
  const TensorMap made = replaced_in_zeros(kSmallMap.size());
  const TensorMapDescription read = decode_tensor_map(made.bytes), wanted = small_map();
  EXPECT_EQ(read.address, wanted.address);
  EXPECT_EQ(read.element, wanted.element);
  EXPECT_EQ(read.rank, wanted.rank);
  EXPECT_EQ(read.swizzle, wanted.swizzle);
  EXPECT_EQ(read.atom, wanted.atom);
  EXPECT_EQ(read.mode, wanted.mode);
  EXPECT_EQ(read.fill_nan, wanted.fill_nan);
  EXPECT_EQ(read.strides_bytes[0], wanted.strides_bytes[0]);
  for (int d = 0; d < 5; ++d) {
    EXPECT_EQ(read.dims[d], wanted.dims[d]);
    EXPECT_EQ(read.box[d], wanted.box[d]);
    EXPECT_EQ(read.element_strides[d], wanted.element_strides[d]);
  }
}

TEST(TensorMap, NamesAFieldThatNothingHasSetWhenItIsUsed) {
  const auto fault_without = [](std::size_t index) -> std::string {
    const TensorMap map = replaced_in_zeros(index);
    try {
      decode_tensor_map(map.bytes);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "accepted";
  };
  EXPECT_THAT(fault_without(0), HasSubstr("has a null address, which nothing has replaced"));
  EXPECT_THAT(fault_without(2), HasSubstr("/tensor_map/box/0: 0 is outside [1, 256]"));
  EXPECT_THAT(fault_without(3), HasSubstr("/tensor_map/box/1: 0 is outside [1, 256]"));
  EXPECT_THAT(fault_without(4), HasSubstr("/tensor_map/dims/0: 0 is outside"));
  EXPECT_THAT(fault_without(5), HasSubstr("/tensor_map/dims/1: 0 is outside"));
  EXPECT_THAT(fault_without(8), HasSubstr("/tensor_map/element_strides/1: 0 is outside [1, 8]"));
  // A field whose zero is valid stands for zero.
  EXPECT_EQ(fault_without(10), "accepted");
}

TEST(TensorMap, TakesANullAddressUntilItIsUsed) {
  TensorMapDescription map = small_map();
  map.address = 0;
  TensorMap encoded = encode_tensor_map(map);
  EXPECT_THROW(decode_tensor_map(encoded.bytes), Fault);
  replace_tensor_map_field(encoded.bytes, Field::kAddress, 0, 0x3000);
  EXPECT_EQ(decode_tensor_map(encoded.bytes).address, 0x3000u);
}

TEST(TensorMap, RefusesABoxThatNoSharedMemoryHolds) {
  TensorMapDescription map = small_map();
  map.rank = 5;
  for (int d = 1; d < 5; ++d) {
    map.dims[d] = 256, map.box[d] = 256;  // 2^32 rows
    map.strides_bytes[d - 1] = 128u << 8 * (d - 1);
  }
  const TensorMap encoded = encode_tensor_map(map);
  try {
    decode_tensor_map(encoded.bytes);
    FAIL() << "accepted";
  } catch (const Fault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("has a box of 549755813888 bytes, and no CTA has so much shared memory"));
  }
}

TEST(TensorMap, OfRandomFieldsIsRefusedOrSafe) {
  std::mt19937_64 random(3);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    TensorMap map = replaced_in_zeros(kSmallMap.size());
    for (int i = 0; i < 3; ++i) {
      const auto field = static_cast<Field>(random() % 11);
      const std::uint64_t value = random() >> random() % 64;
      replace_tensor_map_field(map.bytes, field, static_cast<std::uint32_t>(random() % 4), value);
    }
    if (round % 2 == 0) map.bytes[random() % 128] = static_cast<std::byte>(random());
    try {
      const TensorMapDescription read = decode_tensor_map(map.bytes);
      std::int32_t at[5];
      for (std::int32_t& coordinate : at) coordinate = static_cast<std::int32_t>(random() >> random() % 64);
      std::uint64_t rows = 0;
      visit_box_rows(read, at, [&](const BoxRow& row) {
        ++rows;
        ASSERT_LE(row.begin, row.end);
        ASSERT_LE(row.end, read.global_row_bytes());
      });
      EXPECT_EQ(rows, read.num_rows());
      ++taken;
    } catch (const Fault&) {
    }
  }
  EXPECT_GT(taken, 1000);
}

TEST(TensorMap, NamesWhatItDoesNotModel) {
  const auto fault_with = [](Field field, std::uint64_t value) -> std::string {
    TensorMap map = encode_tensor_map(small_map());
    replace_tensor_map_field(map.bytes, field, 0, value);
    try {
      decode_tensor_map(map.bytes);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "accepted";
  };
  EXPECT_THAT(fault_with(Field::kInterleave, 1), HasSubstr("interleave layout 1, which is not modelled"));
  EXPECT_THAT(fault_with(Field::kSwizzle, 4), HasSubstr("swizzle mode 4, which is not modelled"));
  EXPECT_THAT(fault_with(Field::kElement, 16), HasSubstr("element type 16, which is not modelled"));
  EXPECT_THAT(fault_with(Field::kElement, 14), HasSubstr("/tensor_map/dims/0: 64 is not a multiple of 128"));
  EXPECT_THAT(fault_with(Field::kRank, 255), HasSubstr("/tensor_map/rank: 256 is outside [1, 5]"));
  EXPECT_EQ(fault_with(Field::kSwizzleAtomicity, 3), "accepted");
}

TEST(TensorMap, RowsBehindTheLastAddressAreNowhere) {
  TensorMapDescription map = small_map();
  map.dims[1] = std::uint64_t{1} << 32;
  map.strides_bytes[0] = (std::uint64_t{1} << 40) - 16;  // the last rows are 2^72 bytes away
  const std::int32_t far[5] = {0, 0x7fffff00};
  visit_box_rows(map, far, [&](const BoxRow& row) { EXPECT_EQ(row.address, kNowhere); });
  map = small_map();
  map.address = ~std::uint64_t{0} - 15;  // the row itself passes the end
  const std::int32_t here[5] = {};
  visit_box_rows(map, here, [&](const BoxRow& row) { EXPECT_EQ(row.address, kNowhere); });
}

/// Element by element, from the words of the ISA.
TEST(TensorMap, CopiesBoxesLikeAnElementwiseLoop) {
  std::mt19937 random(1);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (int round = 0; round < 300; ++round) {
    TensorMapDescription map;
    map.element =
        std::vector{TensorElement::kU8, TensorElement::kBf16, TensorElement::kF32, TensorElement::kU64}[below(4)];
    const std::uint32_t size = bytes_of(map.element);
    map.rank = 1 + below(5);
    map.swizzle = static_cast<Swizzle>(below(4));
    const std::uint32_t span = map.swizzle == Swizzle::kNone ? 160 : 16u << static_cast<int>(map.swizzle);
    map.box[0] = 16 * static_cast<std::uint32_t>(1 + below(static_cast<int>(span / 16))) / size;
    std::uint64_t pitch = 0;
    for (int d = 0; d < map.rank; ++d) {
      map.dims[d] = static_cast<std::uint64_t>(1 + below(d == 0 ? 60 : 5));
      if (d > 0) map.box[d] = static_cast<std::uint32_t>(1 + below(3));
      if (d > 0 && below(4) == 0) map.element_strides[d] = 2;
      if (d > 0) map.strides_bytes[d - 1] = pitch;
      pitch = d == 0 ? (map.dims[0] * size + 15) / 16 * 16 : pitch * map.dims[d];
    }
    std::vector<std::byte> storage(pitch + 16), shared(32768, std::byte{0xee});
    for (std::byte& byte : storage) byte = static_cast<std::byte>(random());
    const auto aligned = (reinterpret_cast<std::uint64_t>(storage.data()) + 15) / 16 * 16;
    map.address = aligned;
    std::int32_t at[5] = {};
    for (int d = 0; d < map.rank; ++d) at[d] = below(20) - 10;
    const std::uint32_t offset = 128 * static_cast<std::uint32_t>(below(9));

    std::vector<std::byte> expected = shared;
    const std::uint32_t row_pitch = map.swizzle == Swizzle::kNone ? map.box[0] * size : span;  // narrow rows too
    for (std::uint32_t row = 0; row < map.num_rows(); ++row) {
      std::uint32_t rest = row;
      bool inside = true;
      std::uint64_t address = map.address;
      for (int d = 1; d < 5; ++d) {
        const std::int64_t index = at[d] + static_cast<std::int64_t>(rest % map.rows(d) * map.element_strides[d]);
        rest /= map.rows(d);
        inside = inside && index >= 0 && index < static_cast<std::int64_t>(map.dims[d]);
        if (d < map.rank) address += static_cast<std::uint64_t>(index) * map.strides_bytes[d - 1];
      }
      for (std::uint32_t x = 0; x < map.box[0]; ++x)
        for (std::uint32_t byte = 0; byte < size; ++byte) {
          const std::int64_t index = at[0] + static_cast<std::int64_t>(x);
          const bool there = inside && index >= 0 && index < static_cast<std::int64_t>(map.dims[0]);
          const std::uint32_t plain = offset + row * row_pitch + x * size + byte;
          const std::uint32_t bits = (16u << static_cast<int>(map.swizzle)) - 16;  // 0, 0x10, 0x30, 0x70
          expected[plain ^ (plain >> 3 & bits)] =
              there ? *reinterpret_cast<const std::byte*>(address + static_cast<std::uint64_t>(index) * size + byte)
                    : std::byte{0};
        }
    }
    load_box(map, at, shared.data(), offset);
    ASSERT_EQ(shared, expected) << "round " << round;

    // Stored where it came from, the box changes nothing but the padding of rows that end within 16 bytes.
    if (map.dims[0] * size % 16 != 0 || at[0] * static_cast<int>(size) % 16 != 0) continue;
    const std::vector<std::byte> before = storage;
    store_box(map, at, shared.data(), offset);
    ASSERT_EQ(storage, before) << "round " << round;
  }
}

TEST(TensorMap, FillsWithNanOfTheElementsWidth) {
  TensorMapDescription map = small_map();
  map.fill_nan = true;
  map.swizzle = Swizzle::kNone;
  std::vector<std::byte> shared(2048);
  load_box(map, {1000, 0, 0, 0, 0}, shared.data(), 0);
  EXPECT_EQ(shared[0], std::byte{0xff});
  EXPECT_EQ(shared[1], std::byte{0x7f});
  EXPECT_EQ(shared[1023], std::byte{0x7f});
  EXPECT_EQ(shared[1024], std::byte{0});
}

}  // namespace
}  // namespace kernelwright::emulator
