/// PTX ISA "cvt" to and from packed and narrow formats: f16x2, bf16x2, tf32, e4m3x2, e5m2x2, e3m2x2, e2m3x2, e2m1x2,
/// ue8m0x2; and "cvt.pack".
///
/// In a pair, operand a is the upper half and operand b the lower half. The 4- and 6-bit formats, and ue8m0, exist from
/// sm_100a on.
#include <algorithm>

#include "kernelwright/runtime/emulator/numbers/float_parts.h"
#include "kernelwright/runtime/emulator/ops/convert_forms.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S32 = std::int32_t;

U32 pack_f16(float a, float b) { return U32{f32_to_f16(a)} << 16 | f32_to_f16(b); }
U32 pack_bf16(float a, float b) { return U32{f32_to_bf16(a)} << 16 | f32_to_bf16(b); }

constexpr U64 kRelu = 8, kFinite = 16;  // the low three bits are the rounding
constexpr U64 kOfBf16 = 32;             // the pair is of bf16, not of f16

/// The code of `value`, converted as the modifiers in `imm` say.
U32 encode(const NumberFormat& format, float value, U64 imm) {
  const U32 code = encode_number(format, value, static_cast<Rounding>(imm & 7), (imm & kFinite) != 0);
  const bool negative = (code >> (format.exponent_bits + format.mantissa_bits)) != 0;
  return negative && (imm & kRelu) ? 0 : code;
}
U64 modifiers(const Decoder& decoder) {
  const Rounding rounding = decoder.has("rna") ? Rounding::kNearestAway : rounding_of(decoder);
  return static_cast<U64>(rounding) | (decoder.has("relu") ? kRelu : 0) | (decoder.has("satfinite") ? kFinite : 0);
}

/// Two floats to two codes, kBits apart, in a register of type D.
template <class D, const NumberFormat& kFormat, int kBits>
Step run_pack(Warp& warp, const Op& op, LaneMask lanes) {
  const float *a = warp.lanes<float>(op.a), *b = warp.lanes<float>(op.b);
  D* d = warp.lanes<D>(op.d);
  for_each_lane(lanes, [&](int lane) {
    d[lane] = static_cast<D>(encode(kFormat, a[lane], op.imm) << kBits | encode(kFormat, b[lane], op.imm));
  });
  return Step::kNext;
}
template <class D, const NumberFormat& kFormat, int kBits>
void pack(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  op.d = result(decoder, 0, class_of<D>());
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.imm = modifiers(decoder);
  op.run = run_pack<D, kFormat, kBits>;
}

/// A pair of f16 or bf16 to two codes, eight bits apart.
template <const NumberFormat& kFormat>
Step run_pack_f16(Warp& warp, const Op& op, LaneMask lanes) {
  const U32* a = warp.lanes<U32>(op.a);
  U16* d = warp.lanes<U16>(op.d);
  for_each_lane(lanes, [&](int lane) {
    const auto widened = [&](U32 bits) {
      return (op.imm & kOfBf16) != 0 ? bf16_to_f32(static_cast<U16>(bits)) : f16_to_f32(static_cast<U16>(bits));
    };
    const float high = widened(a[lane] >> 16), low = widened(a[lane]);
    d[lane] = static_cast<U16>(encode(kFormat, high, op.imm) << 8 | encode(kFormat, low, op.imm));
  });
  return Step::kNext;
}
template <const NumberFormat& kFormat>
void pack_from_f16(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = result(decoder, 0, RegisterClass::k16);
  op.a = decoder.source(1, RegisterClass::k32);
  op.imm = modifiers(decoder);
  op.run = run_pack_f16<kFormat>;
}
template <const NumberFormat& kFormat>
void pack_from_bf16(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  pack_from_f16<kFormat>(decoder, op);
  op.imm |= kOfBf16;
}

/// Two codes, kBits apart, to a pair of f16 or bf16, which can hold all their values. Bits of a code beyond its format
/// are ignored.
template <const auto& kValues, int kBits>
Step run_unpack(Warp& warp, const Op& op, LaneMask lanes) {
  constexpr U32 kMask = static_cast<U32>(kValues.size()) - 1;
  const U16* a = warp.lanes<U16>(op.a);
  U32* d = warp.lanes<U32>(op.d);
  for_each_lane(lanes, [&](int lane) {
    const auto half = [&](U32 code) {
      const float value = kValues[code & kMask];
      const U16 bits = (op.imm & kOfBf16) != 0 ? f32_to_bf16(value) : f32_to_f16(value);
      return U32{(op.imm & kRelu) && (bits & 0x8000) ? U16{0} : bits};
    };
    d[lane] = half(U32{a[lane]} >> kBits) << 16 | half(a[lane]);
  });
  return Step::kNext;
}
template <const auto& kValues, int kBits>
void unpack(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = result(decoder, 0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k16);
  op.imm = modifiers(decoder);
  op.run = run_unpack<kValues, kBits>;
}
template <const auto& kValues, int kBits>
void unpack_to_bf16(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  unpack<kValues, kBits>(decoder, op);
  op.imm |= kOfBf16;
}

// ---- stochastic rounding ------------------------------------------------------------------------------------------

/// Adds `random` to the magnitude and truncates. The kBits bits of `random` begin right below the result's last place.
template <const NumberFormat& kFormat, int kBits>
U32 encode_stochastic(float value, U32 random, U64 imm) {
  if (value != value) return kFormat.nan_code;
  const U32 bits = std::bit_cast<U32>(value), magnitude = bits & 0x7fffffffu;
  const U32 sign = bits >> 31 << (kFormat.exponent_bits + kFormat.mantissa_bits);
  if (sign != 0 && (imm & kRelu)) return 0;
  const U32 infinity = imm & kFinite ? kFormat.max_code : kFormat.max_code + 1;
  if (magnitude == 0x7f800000u) return sign | infinity;
  constexpr int kDropped = 23 - kFormat.mantissa_bits, kLowest = 127 + 1 - kFormat.bias;
  const int exponent = std::max(static_cast<int>(magnitude >> 23), 1);
  const U64 significand = (magnitude & 0x7fffffu) | (magnitude >> 23 != 0 ? 0x800000u : 0u);
  // Below the smallest normal number, the last place does not move. Bits far below it count only through the carry.
  const int shift = kDropped + std::max(kLowest - exponent, 0);
  if (shift > 60) return sign;
  const U64 rounded = (significand + (U64{random & ((1u << kBits) - 1)} << (shift - kBits))) >> shift;
  const int binade = std::max(exponent - kLowest, 0);
  const U64 code = (static_cast<U64>(binade) << kFormat.mantissa_bits) + rounded;
  return sign | static_cast<U32>(std::min<U64>(code, infinity));
}
/// a uses the random bits from bit 16 on, b those from bit 0 on.
template <const NumberFormat& kFormat, int kBits>
Step run_stochastic(Warp& warp, const Op& op, LaneMask lanes) {
  const float *a = warp.lanes<float>(op.a), *b = warp.lanes<float>(op.b);
  const U32* random = warp.lanes<U32>(op.c);
  U32* d = warp.lanes<U32>(op.d);
  for_each_lane(lanes, [&](int lane) {
    const U32 high = encode_stochastic<kFormat, kBits>(a[lane], random[lane] >> 16, op.imm);
    d[lane] = high << 16 | encode_stochastic<kFormat, kBits>(b[lane], random[lane], op.imm);
  });
  return Step::kNext;
}
template <const NumberFormat& kFormat, int kBits>
void stochastic(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(4, 4);
  op.d = result(decoder, 0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.c = decoder.source(3, RegisterClass::k32);
  op.imm = modifiers(decoder);
  op.run = run_stochastic<kFormat, kBits>;
}
void refuse_stochastic(Decoder& decoder, Op&) {
  decoder.refuse("stochastic rounding to four 8-, 6- or 4-bit numbers is not modelled");
}

// ---- tf32 ---------------------------------------------------------------------------------------------------------

Step run_tf32(Warp& warp, const Op& op, LaneMask lanes) {
  const float* a = warp.lanes<float>(op.a);
  U32* d = warp.lanes<U32>(op.d);
  for_each_lane(lanes, [&](int lane) { d[lane] = encode(kTf32, a[lane], op.imm) << 13; });
  return Step::kNext;
}
/// What the H100 does when it rounds ties away, also for NaN: see f32_to_tf32_away(). Saturation moves a result whose
/// exponent bits are all set one step back.
Step run_tf32_away(Warp& warp, const Op& op, LaneMask lanes) {
  const float* a = warp.lanes<float>(op.a);
  U32* d = warp.lanes<U32>(op.d);
  for_each_lane(lanes, [&](int lane) {
    const U32 code = f32_to_tf32_away(a[lane]);
    d[lane] = (op.imm & kFinite) && (code & 0x7f800000u) == 0x7f800000u ? code - 0x2000u : code;
  });
  return Step::kNext;
}
void tf32(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = result(decoder, 0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k32);
  op.imm = modifiers(decoder);
  op.run = decoder.has("rna") ? run_tf32_away : run_tf32;
}

// ---- ue8m0 --------------------------------------------------------------------------------------------------------

U32 scale_pair(float a, float b, U64 imm) {
  const bool up = static_cast<Rounding>(imm & 7) == Rounding::kUp, finite = (imm & kFinite) != 0;
  return U32{f32_to_ue8m0(a, up, finite)} << 8 | f32_to_ue8m0(b, up, finite);
}
Step run_scales(Warp& warp, const Op& op, LaneMask lanes) {
  const float *a = warp.lanes<float>(op.a), *b = warp.lanes<float>(op.b);
  for_each_lane(
      lanes, [&](int lane) { warp.lanes<U16>(op.d)[lane] = static_cast<U16>(scale_pair(a[lane], b[lane], op.imm)); });
  return Step::kNext;
}
void scales(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  op.d = result(decoder, 0, RegisterClass::k16);
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.imm = modifiers(decoder);
  op.run = run_scales;
}
Step run_scales_bf16(Warp& warp, const Op& op, LaneMask lanes) {
  const U32* a = warp.lanes<U32>(op.a);
  for_each_lane(lanes, [&](int lane) {
    const float high = bf16_to_f32(static_cast<U16>(a[lane] >> 16)), low = bf16_to_f32(static_cast<U16>(a[lane]));
    warp.lanes<U16>(op.d)[lane] = static_cast<U16>(scale_pair(high, low, op.imm));
  });
  return Step::kNext;
}
void scales_bf16(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = result(decoder, 0, RegisterClass::k16);
  op.a = decoder.source(1, RegisterClass::k32);
  op.imm = modifiers(decoder);
  op.run = run_scales_bf16;
}
U32 bf16_of_scales(U16 a) {
  const auto half = [](U8 code) { return U32{f32_to_bf16(ue8m0_to_f32(code))}; };
  return half(static_cast<U8>(a >> 8)) << 16 | half(static_cast<U8>(a));
}

// ---- cvt.pack -----------------------------------------------------------------------------------------------------

/// a and b, saturated to kBits bits each, below the low bits of c.
template <int kBits, bool kSigned>
U32 pack_integers(S32 a, S32 b, U32 c) {
  constexpr S32 kLow = kSigned ? -(1 << (kBits - 1)) : 0, kHigh = kSigned ? (1 << (kBits - 1)) - 1 : (1 << kBits) - 1;
  constexpr U32 kMask = (1u << kBits) - 1;
  const U32 pair = (static_cast<U32>(std::clamp(a, kLow, kHigh)) & kMask) << kBits |
                   (static_cast<U32>(std::clamp(b, kLow, kHigh)) & kMask);
  return static_cast<U32>(U64{c} << 2 * kBits) | pair;
}
template <bool kSigned>
U32 pack_halves(S32 a, S32 b) {
  return pack_integers<16, kSigned>(a, b, 0);
}

constexpr Form kForms[] = {
    {"cvt.rn.f16x2.f32", lane_function<pack_f16>},
    {"cvt.rn.bf16x2.f32", lane_function<pack_bf16>},
    {"cvt.(rn|rz).(relu)?.(satfinite)?.f16x2.f32", pack<U32, kF16, 16>},
    {"cvt.(rn|rz).(relu)?.(satfinite)?.bf16x2.f32", pack<U32, kBf16, 16>},
    {"cvt.(rna).(satfinite)?.tf32.f32", tf32},
    {"cvt.(rn|rz).(satfinite)?.(relu)?.tf32.f32", tf32},

    {"cvt.rn.(satfinite).(relu)?.e4m3x2.f32", pack<U16, kE4m3, 8>},
    {"cvt.rn.(satfinite).(relu)?.e5m2x2.f32", pack<U16, kE5m2, 8>},
    {"cvt.rn.(satfinite).(relu)?.e3m2x2.f32", pack<U16, kE3m2, 8>},
    {"cvt.rn.(satfinite).(relu)?.e2m3x2.f32", pack<U16, kE2m3, 8>},
    {"cvt.rn.(satfinite).(relu)?.e2m1x2.f32", pack<U16, kE2m1, 4>},
    {"cvt.rn.(satfinite).(relu)?.e4m3x2.f16x2", pack_from_f16<kE4m3>},
    {"cvt.rn.(satfinite).(relu)?.e5m2x2.f16x2", pack_from_f16<kE5m2>},
    {"cvt.rn.(relu)?.f16x2.e4m3x2", unpack<kE4m3Values, 8>},
    {"cvt.rn.(relu)?.f16x2.e5m2x2", unpack<kE5m2Values, 8>},
    {"cvt.rn.(relu)?.f16x2.e3m2x2", unpack<kE3m2Values, 8>},
    {"cvt.rn.(relu)?.f16x2.e2m3x2", unpack<kE2m3Values, 8>},
    {"cvt.rn.(relu)?.f16x2.e2m1x2", unpack<kE2m1Values, 4>},
    // From PTX ISA 9.1 and 9.2 on.
    {"cvt.rn.(satfinite).(relu)?.e4m3x2.bf16x2", pack_from_bf16<kE4m3>},
    {"cvt.rn.(satfinite).(relu)?.e5m2x2.bf16x2", pack_from_bf16<kE5m2>},
    {"cvt.rn.(relu)?.bf16x2.e4m3x2", unpack_to_bf16<kE4m3Values, 8>},
    {"cvt.rn.(relu)?.bf16x2.e5m2x2", unpack_to_bf16<kE5m2Values, 8>},
    {"cvt.rn.(relu)?.bf16x2.e3m2x2", unpack_to_bf16<kE3m2Values, 8>},
    {"cvt.rn.(relu)?.bf16x2.e2m3x2", unpack_to_bf16<kE2m3Values, 8>},
    {"cvt.rn.(relu)?.bf16x2.e2m1x2", unpack_to_bf16<kE2m1Values, 4>},
    {"cvt.(rz|rp).(satfinite)?.ue8m0x2.f32", scales},
    {"cvt.(rz|rp).(satfinite)?.ue8m0x2.bf16x2", scales_bf16},
    {"cvt.rn.bf16x2.ue8m0x2", lane_function<bf16_of_scales>},

    {"cvt.rs.(relu)?.(satfinite)?.f16x2.f32", stochastic<kF16, 13>},
    {"cvt.rs.(relu)?.(satfinite)?.bf16x2.f32", stochastic<kBf16, 16>},
    {"cvt.rs.(relu)?.(satfinite)?.(e4m3x4|e5m2x4|e2m3x4|e3m2x4|e2m1x4).f32", refuse_stochastic},

    {"cvt.pack.sat.u16.s32", lane_function<pack_halves<false>>},
    {"cvt.pack.sat.s16.s32", lane_function<pack_halves<true>>},
    {"cvt.pack.sat.u8.s32.b32", lane_function<pack_integers<8, false>>},
    {"cvt.pack.sat.s8.s32.b32", lane_function<pack_integers<8, true>>},
    {"cvt.pack.sat.u4.s32.b32", lane_function<pack_integers<4, false>>},
    {"cvt.pack.sat.s4.s32.b32", lane_function<pack_integers<4, true>>},
    {"cvt.pack.sat.u2.s32.b32", lane_function<pack_integers<2, false>>},
    {"cvt.pack.sat.s2.s32.b32", lane_function<pack_integers<2, true>>},
};

}  // namespace

std::span<const Form> packed_convert_forms() { return kForms; }

}  // namespace kernelwright::emulator
