/// Layouts of boxes, against loops that place one element at a time from the words of the ISA and of the driver's page
/// of cuTensorMapEncodeTiled.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "runtime/emulator/machine/refusal.h"

namespace kernelwright::emulator::tensor_box_test {
namespace {

using test::refusal;

/// Memory of random bytes, aligned to 32.
struct Storage {
  explicit Storage(std::size_t size) : bytes(size + 32) {
    std::mt19937 random(static_cast<unsigned>(size));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    address = (reinterpret_cast<std::uint64_t>(bytes.data()) + 31) / 32 * 32;
  }
  const std::byte* at(std::uint64_t offset) const { return reinterpret_cast<const std::byte*>(address + offset); }
  std::vector<std::byte> bytes;
  std::uint64_t address = 0;
};

/// Where a byte of a box goes under a swizzle of 128 bytes. Chunks of `chunk` bytes change places by the number of
/// their row of 128 bytes.
std::uint32_t swizzled(std::uint32_t plain, SwizzleAtom atom) {
  const std::uint32_t row = plain / 128, chunk = atom == SwizzleAtom::k16B ? 16 : atom == SwizzleAtom::k64B ? 64 : 32;
  const std::uint32_t chunks = 128 / chunk, at = plain % 128 / chunk;
  std::uint32_t within = plain % chunk;
  if (atom == SwizzleAtom::k32BFlip8B && row % 2 == 1) within = (within + 8) % 16 + within / 16 * 16;
  return row * 128 + (at ^ (row % chunks)) * chunk + within;
}

TEST(TensorBox, SwizzlesChunksOfEveryAtom) {
  for (const SwizzleAtom atom : {SwizzleAtom::k16B, SwizzleAtom::k32B, SwizzleAtom::k32BFlip8B, SwizzleAtom::k64B})
    for (const std::uint32_t row_bytes : {128u, 64u, 16u})
      for (const std::uint32_t offset : {0u, 128u, 640u}) {
        const Storage tensor(128 * 9);
        TensorMapDescription map;
        map.address = tensor.address;
        map.element = TensorElement::kU8;
        map.dims[0] = 128, map.dims[1] = 9;
        map.strides_bytes[0] = 128;
        map.box[0] = row_bytes, map.box[1] = 9;
        map.swizzle = Swizzle::k128B;
        map.atom = atom;
        map = decode_tensor_map(encode_tensor_map(map).bytes);
        std::vector<std::byte> shared(2048, std::byte{0xee}), expected = shared;
        for (std::uint32_t row = 0; row < 9; ++row)
          for (std::uint32_t x = 0; x < row_bytes; ++x)
            expected[swizzled(offset + row * 128 + x, atom)] = *tensor.at(row * 128 + x);
        load_box(map, {}, shared.data(), offset);
        ASSERT_EQ(shared, expected) << static_cast<int>(atom) << " " << row_bytes << " " << offset;
        const Storage before = tensor;
        load_box(map, {}, shared.data(), offset);
        std::memset(reinterpret_cast<void*>(tensor.address), 0, 128 * 9);
        store_box(map, {}, shared.data(), offset);
        for (std::uint32_t row = 0; row < 9; ++row)
          ASSERT_EQ(std::memcmp(tensor.at(row * 128),
                                before.bytes.data() + (tensor.at(row * 128) - tensor.bytes.data()), row_bytes),
                    0);
      }
}

/// `bits` bits of element i from `bytes`, elements one after another.
std::uint32_t element(const std::byte* bytes, std::uint64_t i, std::uint32_t bits) {
  std::uint32_t value = 0;
  for (std::uint32_t bit = 0; bit < bits; ++bit) {
    const std::uint64_t at = i * bits + bit;
    value |= (static_cast<std::uint32_t>(bytes[at / 8]) >> (at % 8) & 1) << bit;
  }
  return value;
}

struct Packed {
  TensorElement type;
  std::uint32_t bits, group_bytes;  // of 16 elements in shared memory
  Swizzle swizzle;
  SwizzleAtom atom = SwizzleAtom::k16B;
};

TEST(TensorBox, SpreadsElementsOfFourAndSixBits) {
  constexpr std::uint32_t kRows = 5, kWidth = 256, kBox = 128;
  for (const Packed& packed :
       {Packed{TensorElement::kB4x16, 4, 8, Swizzle::kNone}, Packed{TensorElement::kB4x16, 4, 8, Swizzle::k64B},
        Packed{TensorElement::kB4x16P64, 4, 16, Swizzle::kNone},
        Packed{TensorElement::kB4x16P64, 4, 16, Swizzle::k128B},
        Packed{TensorElement::kB4x16P64, 4, 16, Swizzle::k128B, SwizzleAtom::k32B},
        Packed{TensorElement::kB6x16P32, 6, 16, Swizzle::kNone},
        Packed{TensorElement::kB6x16P32, 6, 16, Swizzle::k128B},
        Packed{TensorElement::kB6x16P32, 6, 16, Swizzle::k128B, SwizzleAtom::k32B}}) {
    const std::uint32_t pitch = kWidth * packed.bits / 8;
    const Storage tensor(pitch * kRows);
    TensorMapDescription map;
    map.address = tensor.address;
    map.element = packed.type;
    map.dims[0] = kWidth, map.dims[1] = kRows;
    map.strides_bytes[0] = pitch;
    map.box[0] = kBox, map.box[1] = 4;
    map.swizzle = packed.swizzle;
    map.atom = packed.atom;
    map = decode_tensor_map(encode_tensor_map(map).bytes);
    const std::uint32_t row_bytes = kBox / 16 * packed.group_bytes;
    ASSERT_EQ(map.box_bytes(), 4 * row_bytes);
    std::vector<std::byte> shared(4096, std::byte{0xee});
    std::vector<bool> written(shared.size());
    load_box(map, {128, 2}, shared.data(), 256);  // the last row is outside
    for (std::uint32_t row = 0; row < 4; ++row)
      for (std::uint32_t group = 0; group < kBox / 16; ++group) {
        std::byte unit[16] = {};
        for (std::uint32_t byte = 0; byte < 2 * packed.bits; ++byte) {
          const std::uint32_t plain = 256 + row * row_bytes + group * packed.group_bytes + byte;
          const std::uint32_t place = packed.swizzle == Swizzle::k128B  ? swizzled(plain, packed.atom)
                                      : packed.swizzle == Swizzle::k64B ? plain ^ (plain >> 3 & 0x30)
                                                                        : plain;
          unit[byte] = shared[place];
          written[place] = true;
        }
        for (std::uint32_t i = 0; i < 16; ++i) {
          const std::uint32_t expected =
              row + 2 < kRows ? element(tensor.at((row + 2) * pitch), 128 + group * 16 + i, packed.bits) : 0;
          ASSERT_EQ(element(unit, i, packed.bits), expected) << row << " " << group << " " << i;
        }
      }
    for (std::size_t i = 0; i < shared.size(); ++i)  // the padding, and all else
      if (!written[i]) ASSERT_EQ(shared[i], std::byte{0xee});
    const std::vector<std::byte> before = tensor.bytes;
    std::memset(reinterpret_cast<void*>(tensor.address + 2 * pitch + pitch / 2), 0, pitch / 2);
    store_box(map, {128, 2}, shared.data(), 256);
    ASSERT_EQ(tensor.bytes, before);
  }
}

/// An im2col tensor of C, W, H, N, and the pixels that a convolution reads: output position by output position.
TEST(TensorBox, TakesThePixelsOfAConvolution) {
  constexpr int kC = 24, kW = 7, kH = 5, kN = 3, kChannels = 16;
  const Storage tensor(kC * kW * kH * kN * 2);
  std::mt19937 random(7);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (int round = 0; round < 200; ++round) {
    const int filter[2] = {1 + below(3), 1 + below(3)}, padding[2] = {below(2), below(2)},
              stride[2] = {1 + below(2), 1 + below(2)}, size[2] = {kW, kH};
    TensorMapDescription map;
    map.address = tensor.address;
    map.element = TensorElement::kF16;
    map.mode = TensorMapMode::kIm2col;
    map.rank = 4;
    map.dims[0] = kC, map.dims[1] = kW, map.dims[2] = kH, map.dims[3] = kN;
    map.strides_bytes[0] = kC * 2, map.strides_bytes[1] = kC * kW * 2, map.strides_bytes[2] = kC * kW * kH * 2;
    map.box[0] = kChannels;
    map.box[1] = static_cast<std::uint32_t>(1 + below(40));
    map.swizzle = Swizzle::k32B;
    int outputs[2];  // along W and H
    for (int d = 0; d < 2; ++d) {
      map.element_strides[d + 1] = static_cast<std::uint32_t>(stride[d]);
      map.corners[d].lower = static_cast<std::int16_t>(-padding[d]);
      map.corners[d].upper = static_cast<std::int16_t>(padding[d] - (filter[d] - 1));
      outputs[d] = (size[d] + 2 * padding[d] - filter[d]) / stride[d] + 1;
    }
    map = decode_tensor_map(encode_tensor_map(map).bytes);
    const int first = below(outputs[0] * outputs[1] * kN), channel = 8 * below(4);
    Im2colOffsets offsets;
    for (int d = 0; d < 2; ++d) offsets.of[d] = static_cast<std::uint16_t>(below(filter[d]));
    const auto position = [&](int linear, int(&at)[3]) {
      at[0] = linear % outputs[0] * stride[0] - padding[0];
      at[1] = linear / outputs[0] % outputs[1] * stride[1] - padding[1];
      at[2] = linear / outputs[0] / outputs[1];
    };
    std::vector<std::byte> shared(2048, std::byte{0xee}), expected = shared;
    for (std::uint32_t pixel = 0; pixel < map.box[1]; ++pixel) {
      int at[3];
      position(first + static_cast<int>(pixel), at);
      const int w = at[0] + offsets.of[0], h = at[1] + offsets.of[1];
      for (int c = 0; c < kChannels; ++c)
        for (int byte = 0; byte < 2; ++byte) {
          const std::uint32_t plain = pixel * 32 + static_cast<std::uint32_t>(c * 2 + byte);
          const bool there = w >= 0 && w < kW && h >= 0 && h < kH && at[2] < kN && channel + c < kC;
          const int index = ((at[2] * kH + h) * kW + w) * kC + channel + c;
          expected[plain ^ (plain >> 3 & 0x10)] =
              there ? *tensor.at(static_cast<std::uint64_t>(index * 2 + byte)) : std::byte{0};
        }
    }
    int begin[3];
    position(first, begin);
    load_box(map, {channel, begin[0], begin[1], begin[2]}, shared.data(), 0, offsets);
    ASSERT_EQ(shared, expected) << "round " << round;
  }
}

TEST(TensorBox, StoresAnIm2colBoxWhereItCameFrom) {
  const Storage tensor(16 * 6 * 4 * 2);
  TensorMapDescription map;
  map.address = tensor.address;
  map.element = TensorElement::kU16;
  map.mode = TensorMapMode::kIm2col;
  map.rank = 3;
  map.dims[0] = 16, map.dims[1] = 6, map.dims[2] = 4;
  map.strides_bytes[0] = 32, map.strides_bytes[1] = 192;
  map.box[0] = 16, map.box[1] = 24;
  map = decode_tensor_map(encode_tensor_map(map).bytes);
  const std::vector<std::byte> before = tensor.bytes;
  std::vector<std::byte> shared(1024);
  load_box(map, {0, 2, 1}, shared.data(), 0);  // the last pixels are behind the last image
  std::memset(reinterpret_cast<void*>(tensor.address + 192 + 64), 0, 192 * 3 - 64);
  store_box(map, {0, 2, 1}, shared.data(), 0);
  EXPECT_EQ(tensor.bytes, before);
}

TEST(TensorBox, ConvertsFloatsAsItLoadsThem) {
  struct Case {
    std::uint32_t from, tf32;
  };
  // One, ties to even, a carry into the exponent, a subnormal number, its negative, infinity, NaN.
  constexpr Case kCases[] = {{0x3f800000, 0x3f800000}, {0x3f801000, 0x3f800000}, {0x3f803000, 0x3f804000},
                             {0x3f801001, 0x3f802000}, {0x3fffffff, 0x40000000}, {0x00012345, 0x00012000},
                             {0x80012345, 0x80012000}, {0xff800000, 0xff800000}, {0xff800001, 0x7fffe000}};
  alignas(16) std::uint32_t tensor[16] = {};
  for (int i = 0; i < 9; ++i) tensor[i] = kCases[i].from;
  for (const bool swizzled : {false, true})
    for (const std::uint32_t box : {8u, 16u}) {
      TensorMapDescription map;
      map.address = reinterpret_cast<std::uint64_t>(tensor);
      map.rank = 1;
      map.dims[0] = 9;
      map.box[0] = box;
      map.swizzle = swizzled ? Swizzle::k128B : Swizzle::kNone;
      const auto loaded = [&](TensorElement element) {
        map.element = element;
        alignas(128) std::byte shared[128] = {};
        load_box(decode_tensor_map(encode_tensor_map(map).bytes), {}, shared, 0);
        std::vector<std::uint32_t> numbers(box);
        std::memcpy(numbers.data(), shared, box * 4);
        return numbers;
      };
      const auto ftz = loaded(TensorElement::kF32Ftz), tf32 = loaded(TensorElement::kTf32),
                 both = loaded(TensorElement::kTf32Ftz), plain = loaded(TensorElement::kF32);
      for (std::uint32_t i = 0; i < box; ++i) {
        const Case expected = i < 9 ? kCases[i] : Case{};
        EXPECT_EQ(plain[i], expected.from);
        EXPECT_EQ(ftz[i], expected.from) << i;
        EXPECT_EQ(tf32[i], expected.tf32) << i;
        EXPECT_EQ(both[i], expected.tf32) << i;
      }
    }
}

TEST(TensorBox, RefusesFormatsThatDoNotGoTogether) {
  TensorMapDescription map;
  map.element = TensorElement::kB6x16P32;
  map.address = 16;
  map.dims[0] = 130, map.dims[1] = 4;
  map.strides_bytes[0] = 112;
  map.box[0] = 64;
  map.swizzle = Swizzle::k64B;
  const std::string text = refusal(map);
  for (const char* part :
       {"b6x16_p32 does not go with this swizzle", "0x10 is not a multiple of 32", "130 is not a multiple of 128",
        "64 is not 128, as b6x16_p32 has it", "112 is not a multiple of 32"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  map = {};
  map.element = TensorElement::kU8;
  map.dims[0] = 64, map.dims[1] = 4;
  map.strides_bytes[0] = 64;
  map.box[0] = 64;
  map.swizzle = Swizzle::k64B;
  map.atom = SwizzleAtom::k32B;
  EXPECT_NE(refusal(map).find("has atoms of 16 bytes alone"), std::string::npos);
  map.atom = SwizzleAtom::k16B;
  map.mode = TensorMapMode::kIm2col;
  EXPECT_NE(refusal(map).find("an im2col map has 3 to 5 dimensions"), std::string::npos);
  map.rank = 4;
  map.dims[2] = map.dims[3] = 4;
  map.strides_bytes[1] = map.strides_bytes[2] = 256;
  map.box[1] = 1024;
  EXPECT_EQ(refusal(map), "accepted");
  map.mode = TensorMapMode::kIm2colW;
  map.swizzle = Swizzle::k32B;
  map.box[0] = 32;
  EXPECT_NE(refusal(map).find("an im2col::w map has swizzle 64B, or 128B"), std::string::npos);
  map.swizzle = Swizzle::k64B;
  map.corners[0].lower = -129;
  EXPECT_EQ(refusal(map), "accepted");
  map.mode = TensorMapMode::kIm2col;
  map.corners[1].upper = -4;
  EXPECT_NE(refusal(map).find("-129 and 0 are not both in [-128, 127]"), std::string::npos);
  EXPECT_NE(refusal(map).find("there is no pixel between them"), std::string::npos);
}

}  // namespace
}  // namespace kernelwright::emulator::tensor_box_test
