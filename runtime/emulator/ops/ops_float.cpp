/// PTX ISA "Floating Point Instructions", for f32 and f64.
///
/// The instructions in which kernels spend their time (round to nearest, no .sat) are functions of one lane, which
/// vectorise. The other rounding modes and .sat take one slower path per operation. Approximations (.approx, .full) are
/// computed to within about an ulp of the true value. This is closer than the ISA's bounds, but not bit for bit the
/// hardware's result.
#include <algorithm>

#include "kernelwright/runtime/emulator/numbers/float_arithmetic.h"
#include "kernelwright/runtime/emulator/numbers/float_parts.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

// ---- nearest even -------------------------------------------------------------------------------------------------

template <bool kFtz>
float div(float a, float b) {
  if constexpr (!kFtz) return one_nan(a / b);
  a = flush(a);
  b = flush(b);
  return flush_product(one_nan(a / b), a * 0x1p64f / b);
}
template <bool kFtz>
float reciprocal(float a) {
  return div<kFtz>(1.0f, a);
}
template <bool kFtz>
float square_root(float a) {
  return one_nan(__builtin_sqrtf(flush_if<kFtz>(a)));
}

double add_f64(double a, double b) { return a + b; }
double sub_f64(double a, double b) { return a - b; }
double mul_f64(double a, double b) { return a * b; }
double div_f64(double a, double b) { return a / b; }
double fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
double reciprocal_f64(double a) { return 1.0 / a; }
double square_root_f64(double a) { return __builtin_sqrt(a); }

// ---- the other rounding modes -------------------------------------------------------------------------------------

/// `near`, the rounded value, moved by one step if it lies on the wrong side of the exact value. `error` has the sign
/// of exact - near.
double directed(double near, int error, Rounding rounding) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (rounding == Rounding::kTowardZero && ((near > 0 && error < 0) || (near < 0 && error > 0)))
    return std::nextafter(near, 0.0);
  if (rounding == Rounding::kDown && error < 0) return std::nextafter(near, -infinity);
  if (rounding == Rounding::kUp && error > 0) return std::nextafter(near, infinity);
  return near;
}

#ifdef __SIZEOF_FLOAT128__
__extension__ using Quad = __float128;  // 113 bits: the product of two doubles is exact
#else
using Quad = long double;
#endif
static_assert(sizeof(Quad) == 16, "directed rounding of f64 needs a format with 106 bits of mantissa or more");

int sign_of(Quad value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }
/// The sign of a + b - near. `near` is within a step of a + b.
int sum_error(Quad a, Quad b, double near) {
  const Quad high = a + b, b_part = high - a, a_part = high - b_part;
  const Quad low = (a - a_part) + (b - b_part);
  const int coarse = sign_of(high - Quad{near});
  return coarse != 0 ? coarse : sign_of(low);
}

// For f32: a double that is rounded once more.
using emulator::add_rounded;
using emulator::finish;
using emulator::fma_rounded;
using emulator::mul_rounded;
using emulator::sub_rounded;
double div_rounded(float a, float b, float, Rounding) {
  const double quotient = double{a} / b;
  if (!std::isfinite(quotient) || std::isinf(b)) return quotient;
  const double rest = std::fma(-quotient, double{b}, double{a});
  return round_to_odd({quotient, b < 0 ? -rest : rest});
}
double reciprocal_rounded(float a, float, float, Rounding rounding) { return div_rounded(1.0f, a, 0, rounding); }
double square_root_rounded(float a, float, float, Rounding) {
  const double root = std::sqrt(double{a});
  return std::isfinite(root) ? round_to_odd({root, std::fma(-root, root, double{a})}) : root;
}
double fma_rounded(double a, double b, double c, Rounding rounding) {
  const double near = std::fma(a, b, c);
  if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return near;
  const Quad product = Quad{a} * Quad{b};
  const int error = sum_error(product, Quad{c}, near);
  if (near == 0 && error == 0) return zero_sum(std::signbit(a) != std::signbit(b) ? -0.0 : 0.0, c, rounding);
  return directed(near, error, rounding);
}
double add_rounded(double a, double b, double, Rounding rounding) { return fma_rounded(a, 1.0, b, rounding); }
double sub_rounded(double a, double b, double, Rounding rounding) { return fma_rounded(a, 1.0, -b, rounding); }
double mul_rounded(double a, double b, double, Rounding rounding) {
  const double near = a * b;
  if (!std::isfinite(a) || !std::isfinite(b)) return near;
  return directed(near, sign_of(Quad{a} * Quad{b} - Quad{near}), rounding);
}
double div_rounded(double a, double b, double, Rounding rounding) {
  const double near = a / b;
  if (!std::isfinite(a) || !std::isfinite(b) || b == 0) return near;
  const int rest = sign_of(Quad{a} - Quad{near} * Quad{b});
  return directed(near, b < 0 ? -rest : rest, rounding);
}
double reciprocal_rounded(double a, double, double, Rounding rounding) { return div_rounded(1.0, a, 0, rounding); }
double square_root_rounded(double a, double, double, Rounding rounding) {
  const double near = std::sqrt(a);
  if (!std::isfinite(near)) return near;
  return directed(near, sign_of(Quad{a} - Quad{near} * Quad{near}), rounding);
}

double finish(double value, double, const Modifiers&) { return value; }

template <class T, double (*kCompute)(T, T, T, Rounding), int kSources>
struct Rounded {
  static Step run(Warp& warp, const Op& op, LaneMask lanes) {
    const Modifiers modifiers = Modifiers::unpack(op.imm);
    const auto flushed = [&](T value) {
      if constexpr (sizeof(T) == 4) return modifiers.flush ? flush(value) : value;
      return value;
    };
    const T *a = warp.lanes<T>(op.a), *b = warp.lanes<T>(op.b), *c = warp.lanes<T>(op.c);
    T* d = warp.lanes<T>(op.d);
    for_each_lane(lanes, [&](int lane) {
      const double value = kCompute(flushed(a[lane]), flushed(b[lane]), flushed(c[lane]), modifiers.rounding);
      const T result = finish(value, T{}, modifiers);
      d[lane] = modifiers.saturate ? saturate_unit(result) : result;
    });
    return Step::kNext;
  }
  static void decode(Decoder& decoder, Op& op) {
    decoder.expect_operands(1 + kSources, 1 + kSources);
    op.d = result(decoder, 0, class_of<T>());
    op.a = op.b = op.c = decoder.source(1, class_of<T>());
    if (kSources > 1) op.b = decoder.source(2, class_of<T>());
    if (kSources > 2) op.c = decoder.source(3, class_of<T>());
    op.imm = modifiers_of(decoder).pack();
    op.run = run;
  }
};
constexpr auto kAdd = Rounded<float, add_rounded, 2>::decode;
constexpr auto kSub = Rounded<float, sub_rounded, 2>::decode;
constexpr auto kMul = Rounded<float, mul_rounded, 2>::decode;
constexpr auto kDiv = Rounded<float, div_rounded, 2>::decode;
constexpr auto kFma = Rounded<float, fma_rounded, 3>::decode;
constexpr auto kReciprocal = Rounded<float, reciprocal_rounded, 1>::decode;
constexpr auto kSquareRoot = Rounded<float, square_root_rounded, 1>::decode;
constexpr auto kAdd64 = Rounded<double, add_rounded, 2>::decode;
constexpr auto kSub64 = Rounded<double, sub_rounded, 2>::decode;
constexpr auto kMul64 = Rounded<double, mul_rounded, 2>::decode;
constexpr auto kDiv64 = Rounded<double, div_rounded, 2>::decode;
constexpr auto kFma64 = Rounded<double, fma_rounded, 3>::decode;
constexpr auto kReciprocal64 = Rounded<double, reciprocal_rounded, 1>::decode;
constexpr auto kSquareRoot64 = Rounded<double, square_root_rounded, 1>::decode;

// ---- minimum, maximum, signs --------------------------------------------------------------------------------------

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using Type = U32;
};
template <>
struct BitsOf<double> {
  using Type = U64;
};
template <class T>
using Bits = typename BitsOf<T>::Type;
template <class T>
Bits<T> bits_of(T value) {
  return std::bit_cast<Bits<T>>(value);
}
template <class T>
inline constexpr Bits<T> kSignBit = Bits<T>{1} << (sizeof(T) * 8 - 1);

/// -0 is less than +0. If one operand is NaN, the result is the other operand, or NaN with kNan.
template <class T, bool kMax, bool kNan>
T extremum(T a, T b) {
  const T zeros = std::bit_cast<T>(kMax ? bits_of(a) & bits_of(b) : bits_of(a) | bits_of(b));  // for two equal numbers
  const T less = kMax ? b : a, greater = kMax ? a : b;
  const T ordered = a < b ? less : b < a ? greater : zeros;
  const T of_nan = kNan ? std::numeric_limits<T>::quiet_NaN() : (a != a ? b : a);
  return one_nan(a != a || b != b ? of_nan : ordered);
}
template <bool kMax, bool kNan, bool kFtz>
float extremum_f32(float a, float b) {
  return extremum<float, kMax, kNan>(flush_if<kFtz>(a), flush_if<kFtz>(b));
}
/// Minimum or maximum of the magnitudes, with the product's sign.
template <bool kMax, bool kNan, bool kFtz>
float extremum_xorsign(float a, float b) {
  const U32 sign = (bits_of(a) ^ bits_of(b)) & kSignBit<float>;
  const float value = extremum_f32<kMax, kNan, kFtz>(std::fabs(a), std::fabs(b));
  return value != value ? value : std::bit_cast<float>(bits_of(value) | sign);
}
template <class T>
T absolute(T a) {
  return std::bit_cast<T>(bits_of(a) & ~kSignBit<T>);
}
template <class T>
T negate(T a) {
  return std::bit_cast<T>(bits_of(a) ^ kSignBit<T>);
}
float absolute_ftz(float a) { return absolute(flush(one_nan(a))); }
float negate_ftz(float a) { return one_nan(negate(flush(a))); }
template <class T>
T copy_sign(T a, T b) {
  return std::bit_cast<T>((bits_of(b) & ~kSignBit<T>) | (bits_of(a) & kSignBit<T>));
}

// ---- approximations -----------------------------------------------------------------------------------------------

/// 2^x: 2^n times a polynomial in the remainder, in double, so that only the last rounding counts.
template <bool kFtz>
float exp2_approx(float x) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, in the low bits
  constexpr double kLn2 = 0.693147180559945309417;
  const double value = std::min(std::max(double{flush_if<kFtz>(x)}, -160.0), 130.0);
  const double shifted = value + kMagic, t = (value - (shifted - kMagic)) * kLn2;
  const double polynomial =
      1.0 +
      t * (1.0 + t * (1.0 / 2 + t * (1.0 / 6 + t * (1.0 / 24 + t * (1.0 / 120 +
                                                                    t * (1.0 / 720 + t * (1.0 / 5040 + t / 40320)))))));
  const double scale = std::bit_cast<double>((std::bit_cast<U64>(shifted) + 1023) << 52);
  const float power = flush_if<kFtz>(static_cast<float>(polynomial * scale));
  return x != x ? std::bit_cast<float>(kNanF32) : power;
}
template <bool kFtz>
float log2_approx(float x) {
  return flush_if<kFtz>(one_nan(std::log2(flush_if<kFtz>(x))));
}
template <bool kFtz>
float sin_approx(float x) {
  return flush_if<kFtz>(one_nan(std::sin(flush_if<kFtz>(x))));
}
template <bool kFtz>
float cos_approx(float x) {
  return flush_if<kFtz>(one_nan(std::cos(flush_if<kFtz>(x))));
}
float tanh_approx(float x) { return one_nan(std::tanh(x)); }
template <bool kFtz>
float rsqrt_approx(float x) {
  return flush_if<kFtz>(one_nan(static_cast<float>(1.0 / __builtin_sqrt(double{flush_if<kFtz>(x)}))));
}
double rsqrt_approx_f64(double x) { return 1.0 / std::sqrt(x); }
/// div.approx is a * (1 / b); 1 / b underflows for large b.
template <bool kFtz>
float div_approx(float a, float b) {
  const float magnitude = std::fabs(b);
  const float quotient = div<kFtz>(a, b);
  const float sign = std::bit_cast<float>((bits_of(a) ^ bits_of(b)) & kSignBit<float>);
  const bool large = magnitude > 0x1p126f && magnitude < std::numeric_limits<float>::infinity();
  return large ? one_nan(a * sign) : quotient;
}
// The .ftz forms of f64 read and write the upper half of a double; the lower half is zero.
double upper_half(double x) { return std::bit_cast<double>(std::bit_cast<U64>(x) & 0xffffffff00000000u); }
double flush_f64(double x) {
  const U64 bits = std::bit_cast<U64>(x);
  return std::bit_cast<double>((bits & 0x7ff0000000000000u) == 0 ? bits & kSignBit<double> : bits);
}
double reciprocal_approx_f64(double x) { return flush_f64(upper_half(1.0 / flush_f64(upper_half(x)))); }
double rsqrt_approx_ftz_f64(double x) { return flush_f64(upper_half(1.0 / std::sqrt(flush_f64(upper_half(x))))); }

// ---- testp --------------------------------------------------------------------------------------------------------

template <class T>
bool is_finite(T x) {
  return std::isfinite(x);
}
template <class T>
bool is_infinite(T x) {
  return std::isinf(x);
}
template <class T>
bool is_number(T x) {
  return !std::isnan(x);
}
template <class T>
bool is_nan(T x) {
  return std::isnan(x);
}
template <class T>
bool is_normal(T x) {
  return std::isfinite(x) && std::fpclassify(x) != FP_SUBNORMAL;  // zero counts as normal: the H100 says so
}
template <class T>
bool is_subnormal(T x) {
  return std::fpclassify(x) == FP_SUBNORMAL;
}

template <class T, bool (*kTest)(T)>
Step run_test(Warp& warp, const Op& op, LaneMask lanes) {
  LaneMask passed = 0;
  for_each_lane(lanes, [&](int lane) { passed |= LaneMask{kTest(warp.lanes<T>(op.a)[lane])} << lane; });
  warp.set_predicate(op.d, passed, lanes);
  return Step::kNext;
}
template <class T, bool (*kTest)(T)>
void test(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = result(decoder, 0, RegisterClass::kPredicate);
  op.a = decoder.source(1, class_of<T>());
  op.run = run_test<T, kTest>;
}

/// From sm_100 on, a minimum or maximum may have a third source.
template <void (*kOfTwo)(Decoder&, Op&)>
void two_or_three(Decoder& decoder, Op& op) {
  decoder.num_operands() == 4 ? decode_extremum_of_three(decoder, op) : kOfTwo(decoder, op);
}

constexpr Form kForms[] = {
    {"add.(rn)?.f32", lane_function<add<false>>},
    {"add.(rn)?.ftz.f32", lane_function<add<true>>},
    {"add.(rn|rz|rm|rp)?.(ftz)?.(sat)?.f32", kAdd},
    {"add.(rn)?.f64", lane_function<add_f64>},
    {"add.(rz|rm|rp).f64", kAdd64},
    {"sub.(rn)?.f32", lane_function<sub<false>>},
    {"sub.(rn)?.ftz.f32", lane_function<sub<true>>},
    {"sub.(rn|rz|rm|rp)?.(ftz)?.(sat)?.f32", kSub},
    {"sub.(rn)?.f64", lane_function<sub_f64>},
    {"sub.(rz|rm|rp).f64", kSub64},
    {"mul.(rn)?.f32", lane_function<mul<false>>},
    {"mul.(rn)?.ftz.f32", lane_function<mul<true>>},
    {"mul.(rn|rz|rm|rp)?.(ftz)?.(sat)?.f32", kMul},
    {"mul.(rn)?.f64", lane_function<mul_f64>},
    {"mul.(rz|rm|rp).f64", kMul64},
    {"(fma|mad).rn.f32", lane_function<fma<false>>},
    {"(fma|mad).rn.ftz.f32", lane_function<fma<true>>},
    {"(fma|mad).(rn|rz|rm|rp).(ftz)?.(sat)?.f32", kFma},
    {"(fma|mad).rn.f64", lane_function<fma_f64>},
    {"(fma|mad).(rz|rm|rp).f64", kFma64},
    {"div.rn.f32", lane_function<div<false>>},
    {"div.rn.ftz.f32", lane_function<div<true>>},
    {"div.(rz|rm|rp).(ftz)?.f32", kDiv},
    {"div.approx.f32", lane_function<div_approx<false>>},
    {"div.approx.ftz.f32", lane_function<div_approx<true>>},
    {"div.full.f32", lane_function<div<false>>},
    {"div.full.ftz.f32", lane_function<div<true>>},
    {"div.rn.f64", lane_function<div_f64>},
    {"div.(rz|rm|rp).f64", kDiv64},
    {"rcp.(approx|rn).f32", lane_function<reciprocal<false>>},
    {"rcp.(approx|rn).ftz.f32", lane_function<reciprocal<true>>},
    {"rcp.(rz|rm|rp).(ftz)?.f32", kReciprocal},
    {"rcp.rn.f64", lane_function<reciprocal_f64>},
    {"rcp.(rz|rm|rp).f64", kReciprocal64},
    {"rcp.approx.ftz.f64", lane_function<reciprocal_approx_f64>},
    {"sqrt.(approx|rn).f32", lane_function<square_root<false>>},
    {"sqrt.(approx|rn).ftz.f32", lane_function<square_root<true>>},
    {"sqrt.(rz|rm|rp).(ftz)?.f32", kSquareRoot},
    {"sqrt.rn.f64", lane_function<square_root_f64>},
    {"sqrt.(rz|rm|rp).f64", kSquareRoot64},
    {"rsqrt.approx.f32", lane_function<rsqrt_approx<false>>},
    {"rsqrt.approx.ftz.f32", lane_function<rsqrt_approx<true>>},
    {"rsqrt.approx.f64", lane_function<rsqrt_approx_f64>},
    {"rsqrt.approx.ftz.f64", lane_function<rsqrt_approx_ftz_f64>},
    {"ex2.approx.f32", lane_function<exp2_approx<false>>},
    {"ex2.approx.ftz.f32", lane_function<exp2_approx<true>>},
    {"lg2.approx.f32", lane_function<log2_approx<false>>},
    {"lg2.approx.ftz.f32", lane_function<log2_approx<true>>},
    {"sin.approx.f32", lane_function<sin_approx<false>>},
    {"sin.approx.ftz.f32", lane_function<sin_approx<true>>},
    {"cos.approx.f32", lane_function<cos_approx<false>>},
    {"cos.approx.ftz.f32", lane_function<cos_approx<true>>},
    {"tanh.approx.f32", lane_function<tanh_approx>},

    {"min.f32", two_or_three<lane_function<extremum_f32<false, false, false>>>},
    {"min.ftz.f32", two_or_three<lane_function<extremum_f32<false, false, true>>>},
    {"min.NaN.f32", two_or_three<lane_function<extremum_f32<false, true, false>>>},
    {"min.ftz.NaN.f32", two_or_three<lane_function<extremum_f32<false, true, true>>>},
    {"min.xorsign.abs.f32", lane_function<extremum_xorsign<false, false, false>>},
    {"min.ftz.xorsign.abs.f32", lane_function<extremum_xorsign<false, false, true>>},
    {"min.NaN.xorsign.abs.f32", lane_function<extremum_xorsign<false, true, false>>},
    {"min.ftz.NaN.xorsign.abs.f32", lane_function<extremum_xorsign<false, true, true>>},
    {"min.f64", lane_function<extremum<double, false, false>>},
    {"max.f32", two_or_three<lane_function<extremum_f32<true, false, false>>>},
    {"max.ftz.f32", two_or_three<lane_function<extremum_f32<true, false, true>>>},
    {"max.NaN.f32", two_or_three<lane_function<extremum_f32<true, true, false>>>},
    {"max.ftz.NaN.f32", two_or_three<lane_function<extremum_f32<true, true, true>>>},
    {"max.xorsign.abs.f32", lane_function<extremum_xorsign<true, false, false>>},
    {"max.ftz.xorsign.abs.f32", lane_function<extremum_xorsign<true, false, true>>},
    {"max.NaN.xorsign.abs.f32", lane_function<extremum_xorsign<true, true, false>>},
    {"max.ftz.NaN.xorsign.abs.f32", lane_function<extremum_xorsign<true, true, true>>},
    {"max.f64", lane_function<extremum<double, true, false>>},
    {"abs.f32", lane_function<absolute<float>>},
    {"abs.ftz.f32", lane_function<absolute_ftz>},
    {"abs.f64", lane_function<absolute<double>>},
    {"neg.f32", lane_function<negate<float>>},
    {"neg.ftz.f32", lane_function<negate_ftz>},
    {"neg.f64", lane_function<negate<double>>},
    {"copysign.f32", lane_function<copy_sign<float>>},
    {"copysign.f64", lane_function<copy_sign<double>>},

    {"testp.finite.f32", test<float, is_finite>},
    {"testp.infinite.f32", test<float, is_infinite>},
    {"testp.number.f32", test<float, is_number>},
    {"testp.notanumber.f32", test<float, is_nan>},
    {"testp.normal.f32", test<float, is_normal>},
    {"testp.subnormal.f32", test<float, is_subnormal>},
    {"testp.finite.f64", test<double, is_finite>},
    {"testp.infinite.f64", test<double, is_infinite>},
    {"testp.number.f64", test<double, is_number>},
    {"testp.notanumber.f64", test<double, is_nan>},
    {"testp.normal.f64", test<double, is_normal>},
    {"testp.subnormal.f64", test<double, is_subnormal>},
};

}  // namespace

std::span<const Form> float_forms() { return kForms; }

}  // namespace kernelwright::emulator
