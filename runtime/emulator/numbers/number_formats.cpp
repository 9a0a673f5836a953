#include "kernelwright/runtime/emulator/numbers/number_formats.h"

#include <algorithm>

#include "kernelwright/runtime/emulator/numbers/target_clones.h"

namespace kernelwright::emulator {

std::uint32_t encode_number(const NumberFormat& format, double value, Rounding rounding, bool saturate) {
  if (std::isnan(value)) return format.nan_code;
  const bool negative = std::signbit(value);
  const std::uint32_t sign = negative ? 1u << (format.exponent_bits + format.mantissa_bits) : 0;
  const std::uint32_t infinity = format.has_infinity && !saturate ? format.max_code + 1 : format.max_code;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;

  const int lowest = 1 - format.bias;
  const int exponent = std::max(std::ilogb(magnitude), lowest);
  // The magnitude in steps of the last place. This is exact: it scales by a power of two, and no double here is near
  // the ends of its range.
  const double steps = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const double whole = std::floor(steps), rest = steps - whole;
  bool up = false;
  switch (rounding) {
    case Rounding::kNearestEven: up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0); break;
    case Rounding::kNearestAway: up = rest >= 0.5; break;
    case Rounding::kTowardZero: break;
    case Rounding::kDown: up = negative && rest > 0; break;
    case Rounding::kUp: up = !negative && rest > 0; break;
  }
  const bool to_infinity = rounding == Rounding::kNearestEven || rounding == Rounding::kNearestAway ||
                           (rounding == Rounding::kDown && negative) || (rounding == Rounding::kUp && !negative);
  const std::uint64_t binade = static_cast<std::uint64_t>(exponent - lowest) << format.mantissa_bits;
  const std::uint64_t code = binade + static_cast<std::uint64_t>(whole) + (up ? 1 : 0);  // a carry enters the exponent
  if (code > format.max_code) return sign | (to_infinity ? infinity : format.max_code);
  return sign | static_cast<std::uint32_t>(code);
}

std::uint8_t f32_to_ue8m0(float value, bool up, bool saturate) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0xff;
  std::uint32_t code = magnitude >> 23;
  // Below 2^-126 the next power is 2^-127, code 0. This holds for all smaller numbers above zero.
  if (up && magnitude < 0x7f800000u && (magnitude & 0x7fffffu) != 0 && magnitude > 0x00400000u) ++code;
  return static_cast<std::uint8_t>(saturate && code == 0xff ? 0xfe : code);
}

KERNELWRIGHT_TARGET_CLONES_FLATTEN void f16_to_f32(float* __restrict to, const std::uint16_t* __restrict from,
                                                   std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = f16_to_f32(from[i]);
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN void bf16_to_f32(float* __restrict to, const std::uint16_t* __restrict from,
                                                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = bf16_to_f32(from[i]);
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN void f32_to_f16(std::uint16_t* __restrict to, const float* __restrict from,
                                                   std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = f32_to_f16(from[i]);
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN void f32_to_bf16(std::uint16_t* __restrict to, const float* __restrict from,
                                                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = f32_to_bf16(from[i]);
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN void e4m3_to_f32(float* __restrict to, const std::uint8_t* __restrict from,
                                                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = kE4m3Values[from[i]];
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN void e5m2_to_f32(float* __restrict to, const std::uint8_t* __restrict from,
                                                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = kE5m2Values[from[i]];
}

}  // namespace kernelwright::emulator
