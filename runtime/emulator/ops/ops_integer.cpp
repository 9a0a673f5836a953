/// PTX ISA "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic Instructions".
///
/// Arithmetic uses unsigned numbers, which wrap. Signed instructions differ only where the sign matters.
#include <algorithm>
#include <bit>
#include <limits>

#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Signed = std::make_signed_t<T>;
template <class T>
inline constexpr int kBits = static_cast<int>(sizeof(T)) * 8;

/// Twice as wide, with the same signedness.
template <class T>
struct Twice;
template <>
struct Twice<U16> {
  using Type = U32;
};
template <>
struct Twice<S16> {
  using Type = S32;
};
template <>
struct Twice<U32> {
  using Type = U64;
};
template <>
struct Twice<S32> {
  using Type = S64;
};
template <>
struct Twice<U64> {
  __extension__ using Type = unsigned __int128;
};
template <>
struct Twice<S64> {
  __extension__ using Type = __int128;
};
template <class T>
using Wide = typename Twice<T>::Type;

template <class T>
T add(T a, T b) {
  return static_cast<T>(a + b);
}
template <class T>
T subtract(T a, T b) {
  return static_cast<T>(a - b);
}
template <class T>
T mul_low(T a, T b) {
  return static_cast<T>(U64{a} * b);
}
template <class T>
T mul_high(T a, T b) {
  return static_cast<T>((Wide<T>{a} * Wide<T>{b}) >> kBits<T>);
}
template <class T>
Wide<T> mul_wide(T a, T b) {
  return static_cast<Wide<T>>(Wide<T>{a} * Wide<T>{b});
}
template <class T>
T mad_low(T a, T b, T c) {
  return static_cast<T>(U64{a} * b + c);
}
template <class T>
T mad_high(T a, T b, T c) {
  return static_cast<T>(static_cast<Unsigned<T>>(mul_high(a, b)) + static_cast<Unsigned<T>>(c));
}
template <class T>
Wide<T> mad_wide(T a, T b, Wide<T> c) {
  using W = std::make_unsigned_t<Wide<T>>;
  return static_cast<Wide<T>>(static_cast<W>(mul_wide(a, b)) + static_cast<W>(c));
}

S32 saturate(S64 value) {
  return static_cast<S32>(std::clamp<S64>(value, std::numeric_limits<S32>::min(), std::numeric_limits<S32>::max()));
}
S32 add_saturated(S32 a, S32 b) { return saturate(S64{a} + b); }
S32 subtract_saturated(S32 a, S32 b) { return saturate(S64{a} - b); }
S32 mad_high_saturated(S32 a, S32 b, S32 c) { return saturate(S64{mul_high(a, b)} + c); }

// 24-bit factors, a product of 48 bits. Bits 24 to 31 of a factor are ignored.
U64 product24(U32 a, U32 b) { return U64{a & 0xffffffu} * (b & 0xffffffu); }
S64 product24(S32 a, S32 b) {
  const auto low24 = [](S32 x) { return static_cast<S32>(static_cast<U32>(x) << 8) >> 8; };
  return S64{low24(a)} * low24(b);
}
template <class T>
T mul24_low(T a, T b) {
  return static_cast<T>(product24(a, b));
}
template <class T>
T mul24_high(T a, T b) {
  return static_cast<T>(product24(a, b) >> 16);
}
template <class T>
T mad24_low(T a, T b, T c) {
  return static_cast<T>(static_cast<U32>(mul24_low(a, b)) + static_cast<U32>(c));
}
template <class T>
T mad24_high(T a, T b, T c) {
  return static_cast<T>(static_cast<U32>(mul24_high(a, b)) + static_cast<U32>(c));
}
S32 mad24_high_saturated(S32 a, S32 b, S32 c) { return saturate(S64{mul24_high(a, b)} + c); }

template <class T>
T abs_difference_sum(T a, T b, T c) {
  using U = Unsigned<T>;
  const U difference = a < b ? static_cast<U>(U(b) - U(a)) : static_cast<U>(U(a) - U(b));
  return static_cast<T>(static_cast<U>(U(c) + difference));
}
// For a zero divisor the ISA leaves the result unspecified; sm_80 to sm_90 give all ones and the dividend.
template <class T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T negate(T a) {
  return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
}
template <class T>
T absolute(T a) {
  return a < 0 ? negate(a) : a;
}
template <class T>
T minimum(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
  return a < b ? b : a;
}
template <class T>
T minimum_relu(T a, T b) {
  return maximum<T>(minimum(a, b), 0);
}
template <class T>
T maximum_relu(T a, T b) {
  return maximum<T>(maximum(a, b), 0);
}

/// Both halves of a register.
template <auto kHalf, class T>
U32 halves_of(U32 a, U32 b) {
  const T low = kHalf(static_cast<T>(a), static_cast<T>(b)),
          high = kHalf(static_cast<T>(a >> 16), static_cast<T>(b >> 16));
  return U32{static_cast<U16>(low)} | U32{static_cast<U16>(high)} << 16;
}
template <auto kHalf>
U32 halves(U32 a, U32 b) {
  return halves_of<kHalf, decltype(kHalf(0, 0))>(a, b);
}

template <class T>
U32 population(T a) {
  return static_cast<U32>(std::popcount(a));
}
template <class T>
U32 leading_zeros(T a) {
  return static_cast<U32>(std::countl_zero(a));
}
template <class T>
T reverse(T a) {
  T reversed = 0;
  for (int i = 0; i < kBits<T>; ++i) reversed = static_cast<T>(reversed << 1 | (a >> i & 1));
  return reversed;
}
/// The position of the highest bit that is no copy of the sign; ~0 if there is none.
template <class T>
U32 find_leading(T a) {
  const auto bits = static_cast<Unsigned<T>>(std::is_signed_v<T> && a < 0 ? ~a : a);
  return bits == 0 ? ~U32{0} : static_cast<U32>(kBits<T> - 1 - std::countl_zero(bits));
}
template <class T>
U32 find_leading_shift(T a) {
  const U32 found = find_leading(a);
  return found == ~U32{0} ? found : static_cast<U32>(kBits<T> - 1) - found;
}
/// The offset-th set bit from `base` on, upward or downward; `base` itself counts as the first.
U32 find_nth_set(U32 mask, U32 base, S32 offset) {
  if (offset == 0) return base < 32 && (mask >> base & 1) ? base : ~U32{0};
  S64 position = base;
  for (S64 left = offset > 0 ? S64{offset} : -S64{offset}; position >= 0 && position<32; position += offset> 0 ? 1 : -1)
    if ((mask >> position & 1) && --left == 0) return static_cast<U32>(position);
  return ~U32{0};
}

/// In the 32-bit forms, the instructions read the low byte of a position or length; in the 64-bit forms they read all
/// of it (measured on an H100).
template <class T>
int field_operand(U32 value) {
  return static_cast<int>(sizeof(T) == 8 ? std::min<U32>(value, 64) : value & 0xff);
}
template <class T>
T extract_field(T a, U32 position, U32 length) {
  using U = Unsigned<T>;
  const int at = field_operand<T>(position), bits = field_operand<T>(length);
  if (bits == 0) return 0;
  const U shifted = at < kBits<T> ? static_cast<U>(static_cast<U>(a) >> at) : U{0};
  const U field = bits >= kBits<T> ? ~U{0} : static_cast<U>((U{1} << bits) - 1);
  const int sign_at = std::min(at + bits - 1, kBits<T> - 1);
  const bool negative = std::is_signed_v<T> && (static_cast<U>(a) >> sign_at & 1);
  // Bits above the field, and bits of the field past a's end, are copies of the sign.
  const int kept = std::clamp(kBits<T> - at, 0, bits);
  const U real = kept >= kBits<T> ? ~U{0} : static_cast<U>((U{1} << kept) - 1);
  return static_cast<T>((shifted & field & real) | (negative ? static_cast<U>(~real) : U{0}));
}
template <class T>
T insert_field(T a, T b, U32 position, U32 length) {
  const int at = field_operand<T>(position), bits = field_operand<T>(length);
  if (bits == 0 || at >= kBits<T>) return b;
  const T field = bits >= kBits<T> ? ~T{0} : static_cast<T>((T{1} << bits) - 1);
  return static_cast<T>((b & ~static_cast<T>(field << at)) | static_cast<T>((a & field) << at));
}
template <bool kClamp>
U32 make_mask(U32 position, U32 width) {
  if (kClamp && position >= 32) return 0;
  const U32 at = position & 31, end = at + (width & 31);
  const U32 from = ~U32{0} << at;
  return end >= 32 || (kClamp && width >= 32) ? from : from & ~(~U32{0} << end);
}
template <class T, bool kClamp>
T extend_from(T a, U32 bits) {
  if (kClamp && bits >= 32) return a;
  const U32 width = bits & 31;
  if (width == 0) return 0;
  const U32 above = ~U32{0} << width;
  const bool negative = std::is_signed_v<T> && (static_cast<U32>(a) >> (width - 1) & 1);
  return static_cast<T>(negative ? static_cast<U32>(a) | above : static_cast<U32>(a) & ~above);
}

template <class A, class B>
U32 dot_bytes(U32 a, U32 b, U32 c) {
  for (int i = 0; i < 4; ++i) c += static_cast<U32>(S32{static_cast<A>(a >> 8 * i)} * S32{static_cast<B>(b >> 8 * i)});
  return c;
}
template <class A, class B, int kFirst>
U32 dot_halves(U32 a, U32 b, U32 c) {
  for (int i = 0; i < 2; ++i)
    c += static_cast<U32>(S32{static_cast<A>(a >> 16 * i)} * S32{static_cast<B>(b >> 8 * (kFirst + i))});
  return c;
}

// ---- with the carry flag CC.CF: one bit per lane of the warp ------------------------------------------------------

constexpr std::uint64_t kReadsCarry = 1, kWritesCarry = 2;

/// Calls `compute(lane, carry_in, carry_out)` for each lane.
template <class T, class Compute>
Step with_carry(Warp& warp, const Op& op, LaneMask lanes, Compute&& compute) {
  T* d = warp.lanes<T>(op.d);
  const LaneMask before = op.imm & kReadsCarry ? warp.carry : 0;
  LaneMask after = 0;
  for_each_lane(lanes, [&](int lane) {
    bool carry = false;
    const T value = compute(lane, static_cast<T>(before >> lane & 1), carry);
    d[lane] = value;
    after |= LaneMask{carry} << lane;
  });
  if (op.imm & kWritesCarry) warp.carry = (warp.carry & ~lanes) | after;
  return Step::kNext;
}
template <class T>
T add_carry(T a, T b, T in, bool& out) {
  const T sum = static_cast<T>(a + b), total = static_cast<T>(sum + in);
  out = sum < a || total < sum;
  return total;
}
template <class T>
struct AddCarry {
  static Step run(Warp& warp, const Op& op, LaneMask lanes) {
    const T *a = warp.lanes<T>(op.a), *b = warp.lanes<T>(op.b);
    return with_carry<T>(warp, op, lanes,
                         [=](int lane, T in, bool& out) { return add_carry(a[lane], b[lane], in, out); });
  }
};
template <class T>
struct SubtractBorrow {
  static Step run(Warp& warp, const Op& op, LaneMask lanes) {
    const T *a = warp.lanes<T>(op.a), *b = warp.lanes<T>(op.b);
    return with_carry<T>(warp, op, lanes, [=](int lane, T in, bool& out) {
      const T difference = static_cast<T>(a[lane] - b[lane]);
      out = a[lane] < b[lane] || difference < in;
      return static_cast<T>(difference - in);
    });
  }
};
/// `T` has the signedness of the factors.
template <class T, bool kHigh>
struct MadCarry {
  static Step run(Warp& warp, const Op& op, LaneMask lanes) {
    using U = Unsigned<T>;
    const T *a = warp.lanes<T>(op.a), *b = warp.lanes<T>(op.b);
    const U* c = warp.lanes<U>(op.c);
    return with_carry<U>(warp, op, lanes, [=](int lane, U in, bool& out) {
      const U product = kHigh ? static_cast<U>(mul_high(a[lane], b[lane]))
                              : mul_low(static_cast<U>(a[lane]), static_cast<U>(b[lane]));
      return add_carry(product, c[lane], in, out);
    });
  }
};
template <class T, template <class> class Run, std::uint64_t kCarry>
void carry2(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  op.d = result(decoder, 0, class_of<T>());
  op.a = decoder.source(1, class_of<T>());
  op.b = decoder.source(2, class_of<T>());
  op.imm = kCarry | (decoder.has("cc") ? kWritesCarry : 0);
  op.run = Run<T>::run;
}
template <class T, bool kHigh, std::uint64_t kCarry>
void carry3(Decoder& decoder, Op& op) {
  decoder.expect_operands(4, 4);
  op.d = result(decoder, 0, class_of<T>());
  op.a = decoder.source(1, class_of<T>());
  op.b = decoder.source(2, class_of<T>());
  op.c = decoder.source(3, class_of<T>());
  op.imm = kCarry | (decoder.has("cc") ? kWritesCarry : 0);
  op.run = MadCarry<T, kHigh>::run;
}

constexpr Form kForms[] = {
    {"add.(u16|s16)", lane_function<add<U16>>},
    {"add.(u32|s32)", lane_function<add<U32>>},
    {"add.(u64|s64)", lane_function<add<U64>>},
    {"add.sat.s32", lane_function<add_saturated>},
    {"add.(u16x2|s16x2)", lane_function<halves<add<U16>>>},
    {"sub.(u16|s16)", lane_function<subtract<U16>>},
    {"sub.(u32|s32)", lane_function<subtract<U32>>},
    {"sub.(u64|s64)", lane_function<subtract<U64>>},
    {"sub.sat.s32", lane_function<subtract_saturated>},

    {"mul.lo.(u16|s16)", lane_function<mul_low<U16>>},
    {"mul.lo.(u32|s32)", lane_function<mul_low<U32>>},
    {"mul.lo.(u64|s64)", lane_function<mul_low<U64>>},
    {"mul.hi.u16", lane_function<mul_high<U16>>},
    {"mul.hi.s16", lane_function<mul_high<S16>>},
    {"mul.hi.u32", lane_function<mul_high<U32>>},
    {"mul.hi.s32", lane_function<mul_high<S32>>},
    {"mul.hi.u64", lane_function<mul_high<U64>>},
    {"mul.hi.s64", lane_function<mul_high<S64>>},
    {"mul.wide.u16", lane_function<mul_wide<U16>>},
    {"mul.wide.s16", lane_function<mul_wide<S16>>},
    {"mul.wide.u32", lane_function<mul_wide<U32>>},
    {"mul.wide.s32", lane_function<mul_wide<S32>>},
    {"mad.lo.(u16|s16)", lane_function<mad_low<U16>>},
    {"mad.lo.(u32|s32)", lane_function<mad_low<U32>>},
    {"mad.lo.(u64|s64)", lane_function<mad_low<U64>>},
    {"mad.hi.u16", lane_function<mad_high<U16>>},
    {"mad.hi.s16", lane_function<mad_high<S16>>},
    {"mad.hi.u32", lane_function<mad_high<U32>>},
    {"mad.hi.s32", lane_function<mad_high<S32>>},
    {"mad.hi.u64", lane_function<mad_high<U64>>},
    {"mad.hi.s64", lane_function<mad_high<S64>>},
    {"mad.hi.sat.s32", lane_function<mad_high_saturated>},
    {"mad.wide.u16", lane_function<mad_wide<U16>>},
    {"mad.wide.s16", lane_function<mad_wide<S16>>},
    {"mad.wide.u32", lane_function<mad_wide<U32>>},
    {"mad.wide.s32", lane_function<mad_wide<S32>>},
    {"mul24.lo.u32", lane_function<mul24_low<U32>>},
    {"mul24.lo.s32", lane_function<mul24_low<S32>>},
    {"mul24.hi.u32", lane_function<mul24_high<U32>>},
    {"mul24.hi.s32", lane_function<mul24_high<S32>>},
    {"mad24.lo.u32", lane_function<mad24_low<U32>>},
    {"mad24.lo.s32", lane_function<mad24_low<S32>>},
    {"mad24.hi.u32", lane_function<mad24_high<U32>>},
    {"mad24.hi.s32", lane_function<mad24_high<S32>>},
    {"mad24.hi.sat.s32", lane_function<mad24_high_saturated>},

    {"sad.u16", lane_function<abs_difference_sum<U16>>},
    {"sad.s16", lane_function<abs_difference_sum<S16>>},
    {"sad.u32", lane_function<abs_difference_sum<U32>>},
    {"sad.s32", lane_function<abs_difference_sum<S32>>},
    {"sad.u64", lane_function<abs_difference_sum<U64>>},
    {"sad.s64", lane_function<abs_difference_sum<S64>>},
    {"div.u16", lane_function<divide<U16>>},
    {"div.s16", lane_function<divide<S16>>},
    {"div.u32", lane_function<divide<U32>>},
    {"div.s32", lane_function<divide<S32>>},
    {"div.u64", lane_function<divide<U64>>},
    {"div.s64", lane_function<divide<S64>>},
    {"rem.u16", lane_function<remainder<U16>>},
    {"rem.s16", lane_function<remainder<S16>>},
    {"rem.u32", lane_function<remainder<U32>>},
    {"rem.s32", lane_function<remainder<S32>>},
    {"rem.u64", lane_function<remainder<U64>>},
    {"rem.s64", lane_function<remainder<S64>>},
    {"abs.s16", lane_function<absolute<S16>>},
    {"abs.s32", lane_function<absolute<S32>>},
    {"abs.s64", lane_function<absolute<S64>>},
    {"neg.s16", lane_function<negate<S16>>},
    {"neg.s32", lane_function<negate<S32>>},
    {"neg.s64", lane_function<negate<S64>>},
    {"min.u16", lane_function<minimum<U16>>},
    {"min.s16", lane_function<minimum<S16>>},
    {"min.u32", lane_function<minimum<U32>>},
    {"min.s32", lane_function<minimum<S32>>},
    {"min.u64", lane_function<minimum<U64>>},
    {"min.s64", lane_function<minimum<S64>>},
    {"min.u16x2", lane_function<halves<minimum<U16>>>},
    {"min.s16x2", lane_function<halves<minimum<S16>>>},
    {"min.relu.s16x2", lane_function<halves<minimum_relu<S16>>>},
    {"min.relu.s32", lane_function<minimum_relu<S32>>},
    {"max.u16", lane_function<maximum<U16>>},
    {"max.s16", lane_function<maximum<S16>>},
    {"max.u32", lane_function<maximum<U32>>},
    {"max.s32", lane_function<maximum<S32>>},
    {"max.u64", lane_function<maximum<U64>>},
    {"max.s64", lane_function<maximum<S64>>},
    {"max.u16x2", lane_function<halves<maximum<U16>>>},
    {"max.s16x2", lane_function<halves<maximum<S16>>>},
    {"max.relu.s16x2", lane_function<halves<maximum_relu<S16>>>},
    {"max.relu.s32", lane_function<maximum_relu<S32>>},

    {"popc.b32", lane_function<population<U32>>},
    {"popc.b64", lane_function<population<U64>>},
    {"clz.b32", lane_function<leading_zeros<U32>>},
    {"clz.b64", lane_function<leading_zeros<U64>>},
    {"brev.b32", lane_function<reverse<U32>>},
    {"brev.b64", lane_function<reverse<U64>>},
    {"bfind.u32", lane_function<find_leading<U32>>},
    {"bfind.s32", lane_function<find_leading<S32>>},
    {"bfind.u64", lane_function<find_leading<U64>>},
    {"bfind.s64", lane_function<find_leading<S64>>},
    {"bfind.shiftamt.u32", lane_function<find_leading_shift<U32>>},
    {"bfind.shiftamt.s32", lane_function<find_leading_shift<S32>>},
    {"bfind.shiftamt.u64", lane_function<find_leading_shift<U64>>},
    {"bfind.shiftamt.s64", lane_function<find_leading_shift<S64>>},
    {"fns.b32", lane_function<find_nth_set>},
    {"bfe.u32", lane_function<extract_field<U32>>},
    {"bfe.s32", lane_function<extract_field<S32>>},
    {"bfe.u64", lane_function<extract_field<U64>>},
    {"bfe.s64", lane_function<extract_field<S64>>},
    {"bfi.b32", lane_function<insert_field<U32>>},
    {"bfi.b64", lane_function<insert_field<U64>>},
    {"bmsk.clamp.b32", lane_function<make_mask<true>>},
    {"bmsk.wrap.b32", lane_function<make_mask<false>>},
    {"szext.clamp.u32", lane_function<extend_from<U32, true>>},
    {"szext.clamp.s32", lane_function<extend_from<S32, true>>},
    {"szext.wrap.u32", lane_function<extend_from<U32, false>>},
    {"szext.wrap.s32", lane_function<extend_from<S32, false>>},

    {"dp4a.u32.u32", lane_function<dot_bytes<std::uint8_t, std::uint8_t>>},
    {"dp4a.u32.s32", lane_function<dot_bytes<std::uint8_t, std::int8_t>>},
    {"dp4a.s32.u32", lane_function<dot_bytes<std::int8_t, std::uint8_t>>},
    {"dp4a.s32.s32", lane_function<dot_bytes<std::int8_t, std::int8_t>>},
    {"dp2a.lo.u32.u32", lane_function<dot_halves<U16, std::uint8_t, 0>>},
    {"dp2a.lo.u32.s32", lane_function<dot_halves<U16, std::int8_t, 0>>},
    {"dp2a.lo.s32.u32", lane_function<dot_halves<S16, std::uint8_t, 0>>},
    {"dp2a.lo.s32.s32", lane_function<dot_halves<S16, std::int8_t, 0>>},
    {"dp2a.hi.u32.u32", lane_function<dot_halves<U16, std::uint8_t, 2>>},
    {"dp2a.hi.u32.s32", lane_function<dot_halves<U16, std::int8_t, 2>>},
    {"dp2a.hi.s32.u32", lane_function<dot_halves<S16, std::uint8_t, 2>>},
    {"dp2a.hi.s32.s32", lane_function<dot_halves<S16, std::int8_t, 2>>},

    {"add.(cc).(u32|s32)", carry2<U32, AddCarry, 0>},
    {"add.(cc).(u64|s64)", carry2<U64, AddCarry, 0>},
    {"addc.(cc)?.(u32|s32)", carry2<U32, AddCarry, kReadsCarry>},
    {"addc.(cc)?.(u64|s64)", carry2<U64, AddCarry, kReadsCarry>},
    {"sub.(cc).(u32|s32)", carry2<U32, SubtractBorrow, 0>},
    {"sub.(cc).(u64|s64)", carry2<U64, SubtractBorrow, 0>},
    {"subc.(cc)?.(u32|s32)", carry2<U32, SubtractBorrow, kReadsCarry>},
    {"subc.(cc)?.(u64|s64)", carry2<U64, SubtractBorrow, kReadsCarry>},
    {"mad.lo.(cc).(u32|s32)", carry3<U32, false, 0>},
    {"mad.lo.(cc).(u64|s64)", carry3<U64, false, 0>},
    {"mad.hi.(cc).u32", carry3<U32, true, 0>},
    {"mad.hi.(cc).s32", carry3<S32, true, 0>},
    {"mad.hi.(cc).u64", carry3<U64, true, 0>},
    {"mad.hi.(cc).s64", carry3<S64, true, 0>},
    {"madc.lo.(cc)?.(u32|s32)", carry3<U32, false, kReadsCarry>},
    {"madc.lo.(cc)?.(u64|s64)", carry3<U64, false, kReadsCarry>},
    {"madc.hi.(cc)?.u32", carry3<U32, true, kReadsCarry>},
    {"madc.hi.(cc)?.s32", carry3<S32, true, kReadsCarry>},
    {"madc.hi.(cc)?.u64", carry3<U64, true, kReadsCarry>},
    {"madc.hi.(cc)?.s64", carry3<S64, true, kReadsCarry>},
};

}  // namespace

std::span<const Form> integer_forms() { return kForms; }

}  // namespace kernelwright::emulator
