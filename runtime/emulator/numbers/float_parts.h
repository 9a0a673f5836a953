/// Rules of PTX's floating-point arithmetic that several families share: flushing, saturating, the NaN that results
/// carry, and directed rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

/// Every f32 result that is NaN has these bits. f64 keeps payloads, as x86 does.
inline constexpr std::uint32_t kNanF32 = 0x7fffffff;
inline float one_nan(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits & 0x7fffffffu) > 0x7f800000u ? kNanF32 : bits);
}
inline double one_nan(double value) { return value; }

/// .ftz: a subnormal number becomes zero with its sign.
inline float flush(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}
template <bool kFlush>
float flush_if(float value) {
  if constexpr (kFlush) return flush(value);
  return value;
}
/// .sat: clamps to [0, 1]; NaN becomes +0.
template <class T>
T saturate_unit(T value) {
  return value > T{0} ? (value < T{1} ? value : T{1}) : T{0};
}

/// The modifiers of an arithmetic instruction, as Op::imm.
struct Modifiers {
  Rounding rounding = Rounding::kNearestEven;
  bool flush = false, saturate = false;
  std::uint64_t pack() const {
    return static_cast<std::uint64_t>(rounding) | (flush ? 8u : 0u) | (saturate ? 16u : 0u);
  }
  static Modifiers unpack(std::uint64_t imm) {
    return {static_cast<Rounding>(imm & 7), (imm & 8) != 0, (imm & 16) != 0};
  }
};
inline Rounding rounding_of(const Decoder& decoder) {
  return decoder.has("rz")   ? Rounding::kTowardZero
         : decoder.has("rm") ? Rounding::kDown
         : decoder.has("rp") ? Rounding::kUp
                             : Rounding::kNearestEven;
}
inline Modifiers modifiers_of(const Decoder& decoder) {
  return {rounding_of(decoder), decoder.has("ftz"), decoder.has("sat")};
}

/// The sign of a sum of two numbers that is exactly zero. It is negative if both numbers are negative, or if their
/// signs differ and rounding is down.
inline double zero_sum(double a, double b, Rounding rounding) {
  const bool negative = std::signbit(a) == std::signbit(b) ? std::signbit(a) : rounding == Rounding::kDown;
  return negative ? -0.0 : 0.0;
}
/// a * b + c of numbers with at most 24 mantissa bits, ready for one more rounding. (The product is exact.)
inline double fma_to_odd(double a, double b, double c, Rounding rounding) {
  const double product = a * b;
  const ExactSum sum = exact_sum(product, c);
  return sum.high == 0 ? zero_sum(product, c, rounding) : round_to_odd(sum);
}
inline double add_to_odd(double a, double b, Rounding rounding) {
  const ExactSum sum = exact_sum(a, b);
  return sum.high == 0 ? zero_sum(a, b, rounding) : round_to_odd(sum);
}
inline float round_f32(double value, Rounding rounding) {
  return rounding == Rounding::kNearestEven ? static_cast<float>(value)
                                            : std::bit_cast<float>(encode_number(kF32, value, rounding));
}

}  // namespace kernelwright::emulator
