/// PTX ISA "Half Precision Floating-Point Instructions": f16, bf16 and pairs of them.
///
/// A number is widened to float (exact), computed with, and rounded once. A sum in float is exact enough for one
/// rounding. A product or an fma goes through a double whose last bit says whether it is inexact (round_to_odd).
#include <type_traits>

#include "kernelwright/runtime/emulator/numbers/float_parts.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;

struct F16 {
  static constexpr U16 kNan = 0x7fff, kInfinity = 0x7c00;
  static float widen(U16 code) { return f16_to_f32(code); }
  static U16 round(float value) { return f32_to_f16(value); }
  static float product(float a, float b) { return a * b; }  // exact
};
struct Bf16 {
  static constexpr U16 kNan = 0x7fff, kInfinity = 0x7f80;
  static float widen(U16 code) { return bf16_to_f32(code); }
  static U16 round(float value) { return f32_to_bf16(value); }
  static float product(float a, float b) { return round_to_odd_f32(double{a} * b); }  // a float product may underflow
};

template <class F>
bool is_nan(U16 code) {
  return (code & 0x7fff) > F::kInfinity;
}
/// Subnormal numbers become zeros with their sign.
template <class F>
U16 flush_half(U16 code) {
  constexpr U16 kSmallestNormal = (F::kInfinity & (0u - F::kInfinity)) & 0x7fff;  // the exponent's lowest bit
  return (code & 0x7fff) < kSmallestNormal ? code & 0x8000 : code;
}

enum Flags : unsigned { kPlain = 0, kFlush = 1, kSaturate = 2, kRelu = 4 };

template <class F>
U16 finish(U16 code, unsigned flags) {
  if (flags & kFlush) code = flush_half<F>(code);
  if (flags & kSaturate) {
    constexpr U16 kOne = F::kInfinity == 0x7c00 ? 0x3c00 : 0x3f80;
    code = is_nan<F>(code) || (code & 0x8000) ? 0 : code > kOne ? kOne : code;
  }
  if ((flags & kRelu) && !is_nan<F>(code) && (code & 0x8000)) code = 0;
  return code;
}

template <class F, unsigned kFlags>
float read(U16 code) {
  return F::widen(kFlags & kFlush ? flush_half<F>(code) : code);
}
template <class F, unsigned kFlags>
U16 add(U16 a, U16 b) {
  return finish<F>(F::round(read<F, kFlags>(a) + read<F, kFlags>(b)), kFlags);
}
template <class F, unsigned kFlags>
U16 sub(U16 a, U16 b) {
  return finish<F>(F::round(read<F, kFlags>(a) - read<F, kFlags>(b)), kFlags);
}
/// A product or an fma, not yet rounded. A result is too small to be normal if it is so when rounded as a normal
/// number. This also flushes a result that only subnormal rounding would lift to the smallest normal number (measured
/// on an H100).
template <class F, unsigned kFlags>
U16 finish_product(float exact) {
  const U16 code = F::round(exact);
  const bool tiny = (kFlags & kFlush) != 0 && std::fabs(F::widen(F::round(exact * 0x1p10f))) < 0x1p-4f;  // f16's 2^-14
  return finish<F>(tiny ? code & 0x8000 : code, kFlags);
}
template <class F, unsigned kFlags>
U16 mul(U16 a, U16 b) {
  return finish_product<F, kFlags>(F::product(read<F, kFlags>(a), read<F, kFlags>(b)));
}
template <class F, unsigned kFlags>
U16 fma(U16 a, U16 b, U16 c) {
  const double product = double{read<F, kFlags>(a)} * read<F, kFlags>(b), addend = read<F, kFlags>(c);
  const ExactSum sum = exact_sum(product, addend);
  return finish_product<F, kFlags>(round_to_odd_f32(round_to_odd(sum)));
}

/// A product of the NaN 0x7ff7, of either sign, gives zero. It is the only NaN that does so on an H100.
template <class F, unsigned kFlags>
U16 fma_oob(U16 a, U16 b, U16 c) {
  constexpr U16 kOutside = 0x7ff7;
  return (a & 0x7fff) == kOutside || (b & 0x7fff) == kOutside ? 0 : fma<F, kFlags>(a, b, c);
}

template <class F, bool kMax, bool kNan>
U16 extremum(U16 a, U16 b) {
  if (is_nan<F>(a) || is_nan<F>(b)) {
    if (kNan || (is_nan<F>(a) && is_nan<F>(b))) return F::kNan;
    return is_nan<F>(a) ? b : a;
  }
  // As integers in the order of the numbers, -0 below +0.
  const auto key = [](U16 code) { return code & 0x8000 ? -1 - (code & 0x7fff) : int{code}; };
  return (key(a) < key(b)) != kMax ? a : b;
}
template <class F, bool kMax, bool kNan>
U16 extremum_ftz(U16 a, U16 b) {
  return extremum<F, kMax, kNan>(flush_half<F>(a), flush_half<F>(b));
}
template <class F, bool kMax, bool kNan, bool kFtz>
U16 extremum_xorsign(U16 a, U16 b) {
  const U16 sign = (a ^ b) & 0x8000;
  const U16 x = a & 0x7fff, y = b & 0x7fff;
  const U16 code = kFtz ? extremum_ftz<F, kMax, kNan>(x, y) : extremum<F, kMax, kNan>(x, y);
  return is_nan<F>(code) ? code : code | sign;
}
template <class F, bool kFtz>
U16 absolute(U16 a) {
  if (is_nan<F>(a)) return F::kNan;
  return (kFtz ? flush_half<F>(a) : a) & 0x7fff;
}
template <class F, bool kFtz>
U16 negate(U16 a) {
  if (is_nan<F>(a)) return F::kNan;
  return (kFtz ? flush_half<F>(a) : a) ^ 0x8000;
}
template <class F, bool kFtz>
U16 exp2_approx(U16 a) {
  const U16 code = F::round(std::exp2(F::widen(kFtz ? flush_half<F>(a) : a)));
  return kFtz ? flush_half<F>(code) : code;
}
template <class F>
U16 tanh_approx(U16 a) {
  return F::round(std::tanh(F::widen(a)));
}

/// The same for the two halves of 32 bits.
template <auto kHalf>
U32 pair1(U32 a) {
  return U32{kHalf(static_cast<U16>(a))} | U32{kHalf(static_cast<U16>(a >> 16))} << 16;
}
template <auto kHalf>
U32 pair2(U32 a, U32 b) {
  return U32{kHalf(static_cast<U16>(a), static_cast<U16>(b))} |
         U32{kHalf(static_cast<U16>(a >> 16), static_cast<U16>(b >> 16))} << 16;
}
template <auto kHalf>
U32 pair3(U32 a, U32 b, U32 c) {
  return U32{kHalf(static_cast<U16>(a), static_cast<U16>(b), static_cast<U16>(c))} |
         U32{kHalf(static_cast<U16>(a >> 16), static_cast<U16>(b >> 16), static_cast<U16>(c >> 16))} << 16;
}

constexpr unsigned kFlushSaturate = kFlush | kSaturate, kFlushRelu = kFlush | kRelu;

constexpr Form kForms[] = {
    {"add.(rn)?.f16", lane_function<add<F16, kPlain>>},
    {"add.(rn)?.ftz.f16", rare_lane_function<add<F16, kFlush>>},
    {"add.(rn)?.sat.f16", rare_lane_function<add<F16, kSaturate>>},
    {"add.(rn)?.ftz.sat.f16", rare_lane_function<add<F16, kFlushSaturate>>},
    {"add.(rn)?.f16x2", lane_function<pair2<add<F16, kPlain>>>},
    {"add.(rn)?.ftz.f16x2", rare_lane_function<pair2<add<F16, kFlush>>>},
    {"add.(rn)?.sat.f16x2", rare_lane_function<pair2<add<F16, kSaturate>>>},
    {"add.(rn)?.ftz.sat.f16x2", rare_lane_function<pair2<add<F16, kFlushSaturate>>>},
    {"add.(rn)?.bf16", lane_function<add<Bf16, kPlain>>},
    {"add.(rn)?.bf16x2", lane_function<pair2<add<Bf16, kPlain>>>},
    {"sub.(rn)?.f16", lane_function<sub<F16, kPlain>>},
    {"sub.(rn)?.ftz.f16", rare_lane_function<sub<F16, kFlush>>},
    {"sub.(rn)?.sat.f16", rare_lane_function<sub<F16, kSaturate>>},
    {"sub.(rn)?.ftz.sat.f16", rare_lane_function<sub<F16, kFlushSaturate>>},
    {"sub.(rn)?.f16x2", lane_function<pair2<sub<F16, kPlain>>>},
    {"sub.(rn)?.ftz.f16x2", rare_lane_function<pair2<sub<F16, kFlush>>>},
    {"sub.(rn)?.sat.f16x2", rare_lane_function<pair2<sub<F16, kSaturate>>>},
    {"sub.(rn)?.ftz.sat.f16x2", rare_lane_function<pair2<sub<F16, kFlushSaturate>>>},
    {"sub.(rn)?.bf16", lane_function<sub<Bf16, kPlain>>},
    {"sub.(rn)?.bf16x2", lane_function<pair2<sub<Bf16, kPlain>>>},
    {"mul.(rn)?.f16", lane_function<mul<F16, kPlain>>},
    {"mul.(rn)?.ftz.f16", rare_lane_function<mul<F16, kFlush>>},
    {"mul.(rn)?.sat.f16", rare_lane_function<mul<F16, kSaturate>>},
    {"mul.(rn)?.ftz.sat.f16", rare_lane_function<mul<F16, kFlushSaturate>>},
    {"mul.(rn)?.f16x2", lane_function<pair2<mul<F16, kPlain>>>},
    {"mul.(rn)?.ftz.f16x2", rare_lane_function<pair2<mul<F16, kFlush>>>},
    {"mul.(rn)?.sat.f16x2", rare_lane_function<pair2<mul<F16, kSaturate>>>},
    {"mul.(rn)?.ftz.sat.f16x2", rare_lane_function<pair2<mul<F16, kFlushSaturate>>>},
    {"mul.(rn)?.bf16", lane_function<mul<Bf16, kPlain>>},
    {"mul.(rn)?.bf16x2", lane_function<pair2<mul<Bf16, kPlain>>>},
    {"fma.rn.f16", lane_function<fma<F16, kPlain>>},
    {"fma.rn.ftz.f16", rare_lane_function<fma<F16, kFlush>>},
    {"fma.rn.sat.f16", rare_lane_function<fma<F16, kSaturate>>},
    {"fma.rn.ftz.sat.f16", rare_lane_function<fma<F16, kFlushSaturate>>},
    {"fma.rn.relu.f16", rare_lane_function<fma<F16, kRelu>>},
    {"fma.rn.ftz.relu.f16", rare_lane_function<fma<F16, kFlushRelu>>},
    {"fma.rn.f16x2", lane_function<pair3<fma<F16, kPlain>>>},
    {"fma.rn.ftz.f16x2", rare_lane_function<pair3<fma<F16, kFlush>>>},
    {"fma.rn.sat.f16x2", rare_lane_function<pair3<fma<F16, kSaturate>>>},
    {"fma.rn.ftz.sat.f16x2", rare_lane_function<pair3<fma<F16, kFlushSaturate>>>},
    {"fma.rn.relu.f16x2", rare_lane_function<pair3<fma<F16, kRelu>>>},
    {"fma.rn.ftz.relu.f16x2", rare_lane_function<pair3<fma<F16, kFlushRelu>>>},
    {"fma.rn.bf16", lane_function<fma<Bf16, kPlain>>},
    {"fma.rn.relu.bf16", rare_lane_function<fma<Bf16, kRelu>>},
    {"fma.rn.bf16x2", lane_function<pair3<fma<Bf16, kPlain>>>},
    {"fma.rn.relu.bf16x2", rare_lane_function<pair3<fma<Bf16, kRelu>>>},
    {"fma.rn.oob.f16", rare_lane_function<fma_oob<F16, kPlain>>},
    {"fma.rn.oob.relu.f16", rare_lane_function<fma_oob<F16, kRelu>>},
    {"fma.rn.oob.f16x2", rare_lane_function<pair3<fma_oob<F16, kPlain>>>},
    {"fma.rn.oob.relu.f16x2", rare_lane_function<pair3<fma_oob<F16, kRelu>>>},
    {"fma.rn.oob.bf16", rare_lane_function<fma_oob<Bf16, kPlain>>},
    {"fma.rn.oob.relu.bf16", rare_lane_function<fma_oob<Bf16, kRelu>>},
    {"fma.rn.oob.bf16x2", rare_lane_function<pair3<fma_oob<Bf16, kPlain>>>},
    {"fma.rn.oob.relu.bf16x2", rare_lane_function<pair3<fma_oob<Bf16, kRelu>>>},

    {"min.f16", lane_function<extremum<F16, false, false>>},
    {"min.ftz.f16", rare_lane_function<extremum_ftz<F16, false, false>>},
    {"min.NaN.f16", rare_lane_function<extremum<F16, false, true>>},
    {"min.ftz.NaN.f16", rare_lane_function<extremum_ftz<F16, false, true>>},
    {"min.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, false, false, false>>},
    {"min.NaN.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, false, true, false>>},
    {"min.ftz.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, false, false, true>>},
    {"min.ftz.NaN.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, false, true, true>>},
    {"min.f16x2", lane_function<pair2<extremum<F16, false, false>>>},
    {"min.ftz.f16x2", rare_lane_function<pair2<extremum_ftz<F16, false, false>>>},
    {"min.NaN.f16x2", rare_lane_function<pair2<extremum<F16, false, true>>>},
    {"min.ftz.NaN.f16x2", rare_lane_function<pair2<extremum_ftz<F16, false, true>>>},
    {"min.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, false, false, false>>>},
    {"min.NaN.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, false, true, false>>>},
    {"min.ftz.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, false, false, true>>>},
    {"min.ftz.NaN.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, false, true, true>>>},
    {"min.bf16", lane_function<extremum<Bf16, false, false>>},
    {"min.NaN.bf16", rare_lane_function<extremum<Bf16, false, true>>},
    {"min.xorsign.abs.bf16", rare_lane_function<extremum_xorsign<Bf16, false, false, false>>},
    {"min.NaN.xorsign.abs.bf16", rare_lane_function<extremum_xorsign<Bf16, false, true, false>>},
    {"min.bf16x2", lane_function<pair2<extremum<Bf16, false, false>>>},
    {"min.NaN.bf16x2", rare_lane_function<pair2<extremum<Bf16, false, true>>>},
    {"min.xorsign.abs.bf16x2", rare_lane_function<pair2<extremum_xorsign<Bf16, false, false, false>>>},
    {"min.NaN.xorsign.abs.bf16x2", rare_lane_function<pair2<extremum_xorsign<Bf16, false, true, false>>>},
    {"max.f16", lane_function<extremum<F16, true, false>>},
    {"max.ftz.f16", rare_lane_function<extremum_ftz<F16, true, false>>},
    {"max.NaN.f16", rare_lane_function<extremum<F16, true, true>>},
    {"max.ftz.NaN.f16", rare_lane_function<extremum_ftz<F16, true, true>>},
    {"max.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, true, false, false>>},
    {"max.NaN.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, true, true, false>>},
    {"max.ftz.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, true, false, true>>},
    {"max.ftz.NaN.xorsign.abs.f16", rare_lane_function<extremum_xorsign<F16, true, true, true>>},
    {"max.f16x2", lane_function<pair2<extremum<F16, true, false>>>},
    {"max.ftz.f16x2", rare_lane_function<pair2<extremum_ftz<F16, true, false>>>},
    {"max.NaN.f16x2", rare_lane_function<pair2<extremum<F16, true, true>>>},
    {"max.ftz.NaN.f16x2", rare_lane_function<pair2<extremum_ftz<F16, true, true>>>},
    {"max.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, true, false, false>>>},
    {"max.NaN.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, true, true, false>>>},
    {"max.ftz.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, true, false, true>>>},
    {"max.ftz.NaN.xorsign.abs.f16x2", rare_lane_function<pair2<extremum_xorsign<F16, true, true, true>>>},
    {"max.bf16", lane_function<extremum<Bf16, true, false>>},
    {"max.NaN.bf16", rare_lane_function<extremum<Bf16, true, true>>},
    {"max.xorsign.abs.bf16", rare_lane_function<extremum_xorsign<Bf16, true, false, false>>},
    {"max.NaN.xorsign.abs.bf16", rare_lane_function<extremum_xorsign<Bf16, true, true, false>>},
    {"max.bf16x2", lane_function<pair2<extremum<Bf16, true, false>>>},
    {"max.NaN.bf16x2", rare_lane_function<pair2<extremum<Bf16, true, true>>>},
    {"max.xorsign.abs.bf16x2", rare_lane_function<pair2<extremum_xorsign<Bf16, true, false, false>>>},
    {"max.NaN.xorsign.abs.bf16x2", rare_lane_function<pair2<extremum_xorsign<Bf16, true, true, false>>>},

    {"abs.f16", lane_function<absolute<F16, false>>},
    {"abs.ftz.f16", rare_lane_function<absolute<F16, true>>},
    {"abs.f16x2", lane_function<pair1<absolute<F16, false>>>},
    {"abs.ftz.f16x2", rare_lane_function<pair1<absolute<F16, true>>>},
    {"abs.bf16", lane_function<absolute<Bf16, false>>},
    {"abs.bf16x2", lane_function<pair1<absolute<Bf16, false>>>},
    {"neg.f16", lane_function<negate<F16, false>>},
    {"neg.ftz.f16", rare_lane_function<negate<F16, true>>},
    {"neg.f16x2", lane_function<pair1<negate<F16, false>>>},
    {"neg.ftz.f16x2", rare_lane_function<pair1<negate<F16, true>>>},
    {"neg.bf16", lane_function<negate<Bf16, false>>},
    {"neg.bf16x2", lane_function<pair1<negate<Bf16, false>>>},
    {"ex2.approx.f16", rare_lane_function<exp2_approx<F16, false>>},
    {"ex2.approx.f16x2", rare_lane_function<pair1<exp2_approx<F16, false>>>},
    {"ex2.approx.ftz.bf16", rare_lane_function<exp2_approx<Bf16, true>>},
    {"ex2.approx.ftz.bf16x2", rare_lane_function<pair1<exp2_approx<Bf16, true>>>},
    {"tanh.approx.f16", rare_lane_function<tanh_approx<F16>>},
    {"tanh.approx.f16x2", rare_lane_function<pair1<tanh_approx<F16>>>},
    {"tanh.approx.bf16", rare_lane_function<tanh_approx<Bf16>>},
    {"tanh.approx.bf16x2", rare_lane_function<pair1<tanh_approx<Bf16>>>},
};

}  // namespace

std::span<const Form> half_forms() { return kForms; }

}  // namespace kernelwright::emulator
