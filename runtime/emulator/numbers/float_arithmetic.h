/// f32 arithmetic that the plain, the packed and the mixed instructions share.
#pragma once

#include "kernelwright/runtime/emulator/numbers/float_parts.h"

namespace kernelwright::emulator {

// ---- nearest even -------------------------------------------------------------------------------------------------

template <bool kFtz>
inline float add(float a, float b) {
  return flush_if<kFtz>(one_nan(flush_if<kFtz>(a) + flush_if<kFtz>(b)));
}
template <bool kFtz>
inline float sub(float a, float b) {
  return flush_if<kFtz>(one_nan(flush_if<kFtz>(a) - flush_if<kFtz>(b)));
}
/// `value` is a product, a quotient or an fma. Returns `value`, or zero with its sign if `value` is too small to be
/// normal. `scaled` is the same result times 2^64, so it was rounded as a normal number. This also flushes a result
/// that only subnormal rounding would lift to the smallest normal number (measured on an H100).
inline float flush_product(float value, float scaled) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(flush(value));
  return std::bit_cast<float>(std::fabs(scaled) < 0x1p-62f ? bits & 0x80000000u : bits);
}
template <bool kFtz>
inline float mul(float a, float b) {
  if constexpr (!kFtz) return one_nan(a * b);
  a = flush(a);
  b = flush(b);
  return flush_product(one_nan(a * b), a * 0x1p64f * b);
}
template <bool kFtz>
inline float fma(float a, float b, float c) {
  if constexpr (!kFtz) return one_nan(__builtin_fmaf(a, b, c));
  a = flush(a);
  b = flush(b);
  c = flush(c);
  return flush_product(one_nan(__builtin_fmaf(a, b, c)), __builtin_fmaf(a * 0x1p64f, b, c * 0x1p64f));
}

// ---- the other rounding modes: a double that is rounded once more -------------------------------------------------

inline double add_rounded(float a, float b, float, Rounding rounding) { return add_to_odd(a, b, rounding); }
inline double sub_rounded(float a, float b, float, Rounding rounding) { return add_to_odd(a, -b, rounding); }
inline double mul_rounded(float a, float b, float, Rounding) { return double{a} * b; }
inline double fma_rounded(float a, float b, float c, Rounding rounding) { return fma_to_odd(a, b, c, rounding); }
inline float finish(double value, float, const Modifiers& modifiers) {
  const float rounded = one_nan(round_f32(value, modifiers.rounding));
  return modifiers.flush ? flush_product(rounded, round_f32(value * 0x1p64, modifiers.rounding)) : rounded;
}

/// min and max .f32 of three operands (sm_100 and later): ops_float_packed.cpp.
void decode_extremum_of_three(Decoder& decoder, Op& op);

}  // namespace kernelwright::emulator
