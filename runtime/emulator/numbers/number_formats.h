/// The number formats that PTX knows besides float and double, as bit patterns, and the conversions between them.
///
/// Every format here fits into a double without rounding, so a conversion is exact until its one rounding at the end.
/// The fast functions (round to nearest even, f16 and bf16) have no branches, so loops over them vectorise.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace kernelwright::emulator {

/// .rn, .rz, .rm, .rp, .rna. The decode tables have the first four in this order.
enum class Rounding : std::uint8_t { kNearestEven, kTowardZero, kDown, kUp, kNearestAway };

/// A sign, an exponent and a mantissa with gradual underflow: the shape of every format except ue8m0.
struct NumberFormat {
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;
  std::uint32_t max_code = 0;  // the largest finite number
  bool has_infinity = false;   // coded as max_code + 1
  std::uint32_t nan_code = 0;  // what conversions give for NaN; max_code where the format has no NaN
  bool has_nan = false;
};
inline constexpr NumberFormat kF32{8, 23, 127, 0x7f7fffff, true, 0x7fffffff, true};
inline constexpr NumberFormat kTf32{8, 10, 127, 0x3fbff, true, 0x3ffff, true};  // 19 bits, not 32
inline constexpr NumberFormat kBf16{8, 7, 127, 0x7f7f, true, 0x7fff, true};
inline constexpr NumberFormat kF16{5, 10, 15, 0x7bff, true, 0x7fff, true};
inline constexpr NumberFormat kE5m2{5, 2, 15, 0x7b, true, 0x7f, true};
inline constexpr NumberFormat kE4m3{4, 3, 7, 0x7e, false, 0x7f, true};
inline constexpr NumberFormat kE3m2{3, 2, 3, 0x1f, false, 0x1f, false};
inline constexpr NumberFormat kE2m3{2, 3, 1, 0x1f, false, 0x1f, false};
inline constexpr NumberFormat kE2m1{2, 1, 1, 0x7, false, 0x7, false};

/// The code of `value`, rounded once. A value that is too large becomes infinity or, as the rounding asks, the largest
/// finite number. If `saturate` is set or the format has no infinity, it is always the largest finite number. NaN gives
/// nan_code, unsigned.
std::uint32_t encode_number(const NumberFormat& format, double value, Rounding rounding, bool saturate = false);

constexpr double decode_number(const NumberFormat& format, std::uint32_t code) {
  const int magnitude_bits = format.exponent_bits + format.mantissa_bits;
  const bool negative = (code >> magnitude_bits & 1) != 0;
  const std::uint32_t magnitude = code & ((1u << magnitude_bits) - 1);
  double value = 0;
  if (magnitude > format.max_code) {
    value = format.has_infinity && magnitude == format.max_code + 1 ? std::numeric_limits<double>::infinity()
                                                                    : std::numeric_limits<double>::quiet_NaN();
  } else {
    const std::uint32_t exponent = magnitude >> format.mantissa_bits;
    const std::uint32_t hidden = exponent == 0 ? 0 : 1u << format.mantissa_bits;
    const std::uint32_t mantissa = (magnitude & ((1u << format.mantissa_bits) - 1)) | hidden;
    const int scale = (exponent == 0 ? 1 : static_cast<int>(exponent)) - format.bias - format.mantissa_bits;
    value = mantissa * std::bit_cast<double>(static_cast<std::uint64_t>(scale + 1023) << 52);
  }
  return negative ? -value : value;
}

namespace detail {
template <int kBits>
constexpr std::array<float, 1 << kBits> decode_all(const NumberFormat& format) {
  std::array<float, 1 << kBits> values{};
  for (std::uint32_t code = 0; code < values.size(); ++code)
    values[code] = static_cast<float>(decode_number(format, code));
  return values;
}
}  // namespace detail

/// Values by code.
inline constexpr std::array<float, 256> kE4m3Values = detail::decode_all<8>(kE4m3);
inline constexpr std::array<float, 256> kE5m2Values = detail::decode_all<8>(kE5m2);
inline constexpr std::array<float, 64> kE3m2Values = detail::decode_all<6>(kE3m2);
inline constexpr std::array<float, 64> kE2m3Values = detail::decode_all<6>(kE2m3);
inline constexpr std::array<float, 16> kE2m1Values = detail::decode_all<4>(kE2m1);

/// A power of two, 2^(code - 127); 0xff is NaN. Zero has no code.
inline float ue8m0_to_f32(std::uint8_t code) {
  const std::uint32_t bits = code == 0xff ? 0x7fffffffu : code == 0 ? 0x00400000u : std::uint32_t{code} << 23;
  return std::bit_cast<float>(bits);
}
/// The power of two next to the magnitude of `value`: above it if `up`, else below it. Infinity becomes the largest
/// power if `saturate`, else NaN.
std::uint8_t f32_to_ue8m0(float value, bool up, bool saturate);

/// NaN stays NaN with its payload.
inline float f16_to_f32(std::uint16_t code) {
  constexpr std::uint32_t kExponent = 0x0f800000;  // f16's exponent field, where f32's mantissa puts it
  const std::uint32_t magnitude = (code & 0x7fffu) << 13, exponent = magnitude & kExponent;
  const std::uint32_t normal = magnitude + (112u << 23) + (exponent == kExponent ? 112u << 23 : 0u);
  // Computes (2^-14 + mantissa) - 2^-14: the subtraction normalises.
  const float subnormal = std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
  const std::uint32_t bits = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  return std::bit_cast<float>(bits | (code & 0x8000u) << 16);
}
inline float bf16_to_f32(std::uint16_t code) { return std::bit_cast<float>(std::uint32_t{code} << 16); }

/// Round to nearest even. NaN becomes 0x7fff.
inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  // The last place of 0.5 is f16's smallest step, so the addition rounds.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  std::uint32_t code = magnitude < 0x38800000u ? subnormal : normal;
  code = magnitude >= 0x47800000u ? 0x7c00u : code;
  code |= sign;
  return static_cast<std::uint16_t>(magnitude > 0x7f800000u ? 0x7fffu : code);
}
inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}
/// Rounds to nearest, ties away from zero; the 13 low bits of the result are zero. A NaN loses these bits too. If its
/// whole payload is in these bits, the result is no NaN any more: the H100 does the same.
inline std::uint32_t f32_to_tf32_away(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return ((bits & 0x7f800000u) == 0x7f800000u ? bits : bits + 0x1000u) & ~0x1fffu;
}

/// Converts whole arrays, at the speed of the machine's vectors. `to` and `from` do not overlap.
void f16_to_f32(float* to, const std::uint16_t* from, std::size_t count);
void bf16_to_f32(float* to, const std::uint16_t* from, std::size_t count);
void f32_to_f16(std::uint16_t* to, const float* from, std::size_t count);
void f32_to_bf16(std::uint16_t* to, const float* from, std::size_t count);
void e4m3_to_f32(float* to, const std::uint8_t* from, std::size_t count);
void e5m2_to_f32(float* to, const std::uint8_t* from, std::size_t count);

/// A sum that a double cannot hold: `high` is the nearest double, `low` the rest (at least the sign of `low` is right).
struct ExactSum {
  double high = 0, low = 0;
};
inline ExactSum exact_sum(double a, double b) {
  const double high = a + b, b_part = high - a, a_part = high - b_part;
  return {high, (a - a_part) + (b - b_part)};
}
/// The sum as a double whose last bit is set if the double is inexact. Rounding this double once more, to any format
/// with at most 51 mantissa bits and in any mode, gives the rounded exact sum.
inline double round_to_odd(ExactSum sum) {
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum.high);
  const bool finite = (bits >> 52 & 0x7ff) != 0x7ff;
  if (finite && sum.low != 0 && (bits & 1) == 0) bits += (sum.low > 0) == (sum.high > 0) ? 1 : ~std::uint64_t{0};
  return std::bit_cast<double>(bits);
}
/// The same for a double that becomes a float.
inline float round_to_odd_f32(double value) {
  const float near = static_cast<float>(value);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(near);
  const bool inexact = static_cast<double>(near) != value && value == value;
  const bool below = std::fabs(static_cast<double>(near)) < std::fabs(value);
  bits += inexact && (bits & 1) == 0 ? (below ? 1u : ~0u) : 0u;
  return std::bit_cast<float>(bits);
}

}  // namespace kernelwright::emulator
