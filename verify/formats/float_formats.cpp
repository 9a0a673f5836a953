// Conversions by integer arithmetic on the bits of an f32. One routine serves f16 and all narrower formats.
#include "kernelwright/verify/formats/float_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace kernelwright {
namespace {

/// A format narrower than f32 in exponent and mantissa. `past_largest` is the code after the largest finite value:
/// infinity, if the format has one.
struct Narrow {
  int exponent_bits, mantissa_bits;
  std::uint32_t past_largest, nan;
  bool saturates;
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
};
constexpr Narrow kF16Format{5, 10, 0x7c00, 0x7e00, false};
constexpr Narrow kE4m3Format{4, 3, 0x7f, 0x7f, true};  // no infinity: 0x7e is 448, 0x7f is NaN
constexpr Narrow kE5m2Format{5, 2, 0x7c, 0x7f, true};
constexpr Narrow kE2m1Format{2, 1, 8, 7, true};  // every code is a number; NaN becomes the largest, 6
constexpr std::uint32_t kTf32Bits = 0xffffe000;  // of an f32: sign, 8 exponent bits, 10 mantissa bits

// value / 2^shift to the nearest integer, ties to even.
inline std::uint32_t shift_right_even(std::uint32_t value, int shift) {
  if (shift > 31) return 0;
  const std::uint32_t kept = value >> shift, rest = value & ((1u << shift) - 1), half = 1u << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)));
}

/// Inline, so that a loop over values of one format has its numbers as constants.
inline __attribute__((always_inline)) std::uint32_t encode_narrow(const Narrow& format, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffff;
  const std::uint32_t sign = bits >> 31 ? format.sign() : 0;
  // In the 8-bit formats, PTX writes one NaN, without a sign.
  if (magnitude > 0x7f800000) return format.nan | (format.saturates ? 0 : sign);
  const int exponent = static_cast<int>(magnitude >> 23) - 127, lowest = 1 - format.bias();
  std::uint32_t code;
  if (exponent >= lowest) {  // a carry out of the mantissa rightly raises the exponent
    code = shift_right_even(magnitude - (static_cast<std::uint32_t>(127 - format.bias()) << 23),
                            23 - format.mantissa_bits);
  } else {  // the significand counts units of the smallest value; an f32 subnormal is far below half a unit
    code = shift_right_even((magnitude & 0x7fffff) | 0x800000, 23 - format.mantissa_bits + lowest - exponent);
  }
  if (code >= format.past_largest) code = format.saturates ? format.past_largest - 1 : format.past_largest;
  return sign | code;
}

float decode_narrow(const Narrow& format, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (format.sign() - 1);
  const float sign = bits & format.sign() ? -1.f : 1.f;
  if (magnitude >= format.past_largest) {
    const bool infinite = magnitude == format.past_largest && format.past_largest != format.nan;
    return infinite ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << format.mantissa_bits) - 1));
  const int significand = exponent ? mantissa | 1 << format.mantissa_bits : mantissa;
  return sign *
         std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - format.bias() - format.mantissa_bits);
}

std::uint32_t encode_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;  // still a NaN if only lost bits were set
  return shift_right_even(bits, 16);
}

std::vector<float> make_table(const Narrow& format) {
  std::vector<float> table(2 * format.sign());
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) table[bits] = decode_narrow(format, bits);
  return table;
}

const float* table_of(DType dtype) {
  static const std::vector<float> f16 = make_table(kF16Format), e4m3 = make_table(kE4m3Format),
                                  e5m2 = make_table(kE5m2Format), e2m1 = make_table(kE2m1Format);
  switch (dtype) {
    case DType::kF16: return f16.data();
    case DType::kE5m2: return e5m2.data();
    case DType::kMxfp4:
    case DType::kNvfp4: return e2m1.data();
    default: return e4m3.data();
  }
}

template <class Bits, class Decode>
void decode_each(const std::byte* from, std::size_t count, double* to, Decode decode) {
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    to[i] = decode(bits);
  }
}

template <class Bits, class Encode>
void encode_each(std::span<const float> values, std::byte* to, Encode encode) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<Bits>(encode(values[i]));  // the host is little-endian, as the formats are
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace

std::uint32_t encode_float(DType dtype, float value) {
  switch (dtype) {
    case DType::kF16: return encode_narrow(kF16Format, value);
    case DType::kBf16: return encode_bf16(value);
    case DType::kE4m3:
    case DType::kMxfp8: return encode_narrow(kE4m3Format, value);
    case DType::kE5m2: return encode_narrow(kE5m2Format, value);
    case DType::kMxfp4:
    case DType::kNvfp4: return encode_narrow(kE2m1Format, value);
    default: return std::bit_cast<std::uint32_t>(value);
  }
}

float decode_float(DType dtype, std::uint32_t bits) {
  switch (dtype) {
    case DType::kF16:
    case DType::kE4m3:
    case DType::kE5m2:
    case DType::kMxfp8:
    case DType::kMxfp4:
    case DType::kNvfp4: return table_of(dtype)[bits];
    case DType::kBf16: return std::bit_cast<float>(bits << 16);
    case DType::kTf32: return std::bit_cast<float>(bits & kTf32Bits);
    default: return std::bit_cast<float>(bits);
  }
}

float round_to(DType dtype, float value) { return decode_float(dtype, encode_float(dtype, value)); }

std::size_t bytes_of(DType dtype) { return static_cast<std::size_t>(bits_of(dtype)) / 8; }
std::size_t bytes_of(DType dtype, std::size_t count) {
  return (count * static_cast<std::size_t>(bits_of(dtype)) + 7) / 8;
}

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {0x1p-11, 0x1p-25, 65504};
    case DType::kBf16: return {0x1p-8, 0x1p-134, 0x1.fep127};
    case DType::kE4m3:
    case DType::kMxfp8: return {0x1p-4, 0x1p-10, 448};
    case DType::kE5m2: return {0x1p-3, 0x1p-17, 57344};
    case DType::kMxfp4:
    case DType::kNvfp4: return {0x1p-2, 0x1p-2, 6};
    case DType::kTf32: return {0x1p-10, 0x1p-136, 0x1.ffcp127};  // truncated: twice the error of rounding
    default: return {0x1p-24, 0x1p-150, std::numeric_limits<float>::max()};
  }
}

void decode_row(DType dtype, const std::byte* from, std::size_t count, double* to) {
  switch (dtype) {
    case DType::kBf16:
      return decode_each<std::uint16_t>(from, count, to,
                                        [](std::uint32_t bits) { return std::bit_cast<float>(bits << 16); });
    case DType::kF16: {
      const float* table = table_of(dtype);
      return decode_each<std::uint16_t>(from, count, to, [table](std::uint16_t bits) { return table[bits]; });
    }
    case DType::kE4m3:
    case DType::kE5m2:
    case DType::kMxfp8: {
      const float* table = table_of(dtype);
      return decode_each<std::uint8_t>(from, count, to, [table](std::uint8_t bits) { return table[bits]; });
    }
    case DType::kMxfp4:
    case DType::kNvfp4: {
      const float* table = table_of(dtype);
      for (std::size_t i = 0; i < count; ++i) to[i] = table[std::to_integer<unsigned>(from[i / 2]) >> i % 2 * 4 & 15];
      return;
    }
    case DType::kTf32:
      return decode_each<std::uint32_t>(from, count, to,
                                        [](std::uint32_t bits) { return std::bit_cast<float>(bits & kTf32Bits); });
    default: return decode_each<float>(from, count, to, [](float value) { return value; });
  }
}

void encode_row(DType dtype, std::span<const float> values, std::byte* to) {
  if (bits_of(dtype) == 4) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto code = static_cast<std::byte>(encode_float(dtype, values[i]));
      to[i / 2] = i % 2 ? to[i / 2] | code << 4 : code;
    }
    return;
  }
  switch (dtype) {
    case DType::kBf16: return encode_each<std::uint16_t>(values, to, encode_bf16);
    case DType::kF16:
      return encode_each<std::uint16_t>(values, to, [](float value) { return encode_narrow(kF16Format, value); });
    case DType::kE4m3:
    case DType::kMxfp8:
      return encode_each<std::uint8_t>(values, to, [](float value) { return encode_narrow(kE4m3Format, value); });
    case DType::kE5m2:
      return encode_each<std::uint8_t>(values, to, [](float value) { return encode_narrow(kE5m2Format, value); });
    default: return encode_each<std::uint32_t>(values, to, std::bit_cast<std::uint32_t, float>);  // tf32 and f32
  }
}

void fill_with_nan(DType dtype, std::span<std::byte> bytes) {
  // All bits except the sign are set. That is a NaN in each format that has one, also for a reader that starts at a
  // wrong byte.
  const auto pattern_of = [](unsigned low, unsigned high) {
    return std::array{std::byte(low), std::byte(high), std::byte(low), std::byte(high)};
  };
  const std::array<std::byte, 4> pattern = bits_of(dtype) == 4   ? pattern_of(0x77, 0x77)
                                           : bits_of(dtype) == 8 ? pattern_of(0x7f, 0xff)
                                                                 : pattern_of(0xff, 0x7f);
  std::size_t done = std::min(bytes.size(), pattern.size());
  std::copy_n(pattern.begin(), done, bytes.begin());
  for (; done < bytes.size(); done += std::min(done, bytes.size() - done))  // each copy doubles the filled part
    std::memcpy(bytes.data() + done, bytes.data(), std::min(done, bytes.size() - done));
}

}  // namespace kernelwright
