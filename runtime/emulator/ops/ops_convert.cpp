/// PTX ISA "cvt" between integers and floating-point numbers, one value at a time. ops_convert_packed.cpp has the
/// packed and narrow formats.
///
/// The common conversions are functions of one lane. All others take one path: a lane is read from its register into an
/// integer or a double (both exact), converted with the one rounding of the instruction, and written.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernelwright/runtime/emulator/numbers/float_parts.h"
#include "kernelwright/runtime/emulator/ops/convert_forms.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

// ---- types --------------------------------------------------------------------------------------------------------

enum class Type : U8 { kU8, kU16, kU32, kU64, kS8, kS16, kS32, kS64, kF16, kBf16, kF32, kF64 };
constexpr std::string_view kTypeNames[] = {"u8",  "u16", "u32", "u64",  "s8",  "s16",
                                           "s32", "s64", "f16", "bf16", "f32", "f64"};
constexpr int kTypeBits[] = {8, 16, 32, 64, 8, 16, 32, 64, 16, 16, 32, 64};

bool is_signed(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
bool is_floating(Type type) { return type >= Type::kF16; }
int bits_of(Type type) { return kTypeBits[static_cast<std::size_t>(type)]; }

Type type_of(std::string_view name) {
  return static_cast<Type>(std::find(std::begin(kTypeNames), std::end(kTypeNames), name) - std::begin(kTypeNames));
}

/// Rounding to an integer, or rounding of the result: the first modifier after `cvt`.
enum class How : U8 { kNone, kRn, kRz, kRm, kRp, kRni, kRzi, kRmi, kRpi };
constexpr std::string_view kHowNames[] = {"", "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"};

bool rounds_to_integer(How how) { return how >= How::kRni; }
Rounding rounding_of(How how) {
  return how == How::kNone || rounds_to_integer(how) ? Rounding::kNearestEven
                                                     : static_cast<Rounding>(static_cast<int>(how) - 1);
}

struct Conversion {
  Type to = Type::kU32, from = Type::kU32;
  How how = How::kNone;
  U8 to_register = 32, from_register = 32;  // bits; a register may be wider than the integer in it
  bool flush = false, saturate = false, finite = false, relu = false;
};
static_assert(sizeof(Conversion) <= 16);

// ---- one value ----------------------------------------------------------------------------------------------------

/// An integer of any type, as 65 bits with a sign.
__extension__ using Integer = __int128;

Integer lowest(Type type) { return is_signed(type) ? -(Integer{1} << (bits_of(type) - 1)) : Integer{0}; }
Integer highest(Type type) { return (Integer{1} << (bits_of(type) - (is_signed(type) ? 1 : 0))) - 1; }

Integer read_integer(Type type, U64 held) {
  const int unused = 64 - bits_of(type);
  const U64 top = held << unused;
  return is_signed(type) ? Integer{static_cast<S64>(top) >> unused} : Integer{top >> unused};
}
double read_float(Type type, U64 held, bool flush_input) {
  switch (type) {
    case Type::kF16: return f16_to_f32(static_cast<U16>(held));
    case Type::kBf16: return bf16_to_f32(static_cast<U16>(held));
    case Type::kF32: {
      const float value = std::bit_cast<float>(static_cast<U32>(held));
      return flush_input ? flush(value) : value;
    }
    default: return std::bit_cast<double>(held);
  }
}

double round_to_integer(double value, How how) {
  switch (how) {
    case How::kRni: return std::nearbyint(value);
    case How::kRzi: return std::trunc(value);
    case How::kRmi: return std::floor(value);
    case How::kRpi: return std::ceil(value);
    default: return value;
  }
}

/// Saturates. NaN becomes 0, or only the highest bit if one side has 64 bits (PTX ISA "cvt").
U64 float_to_integer(double value, const Conversion& conversion) {
  if (std::isnan(value)) {
    const bool wide = conversion.from == Type::kF64 || bits_of(conversion.to) == 64;
    return wide ? U64{1} << (bits_of(conversion.to) - 1) : 0;
  }
  const double whole = round_to_integer(value, conversion.how);
  const Integer low = lowest(conversion.to), high = highest(conversion.to);
  if (whole <= static_cast<double>(low)) return static_cast<U64>(low);
  if (whole >= static_cast<double>(high)) return static_cast<U64>(high);
  return static_cast<U64>(static_cast<Integer>(whole));
}

/// A NaN that came from f64 keeps its sign and the upper bits of its payload, and becomes quiet.
U32 narrow_nan(const NumberFormat& format, U64 code) {
  const U32 infinity = format.max_code + 1, quiet = 1u << (format.mantissa_bits - 1);
  const auto payload = static_cast<U32>((code & 0xfffffffffffffu) >> (52 - format.mantissa_bits));
  const auto sign = static_cast<U32>(code >> 63) << (format.exponent_bits + format.mantissa_bits);
  return sign | infinity | quiet | payload;
}

/// The result's bits. `low` is the exact value minus `value`, needed for the rounding.
U64 write_float(ExactSum value, const Conversion& conversion) {
  const Rounding rounding = rounding_of(conversion.how);
  const auto narrow = [&](const NumberFormat& format) {
    const U32 sign = 1u << (format.exponent_bits + format.mantissa_bits);
    U32 code = encode_number(format, round_to_odd(value), rounding, conversion.finite);
    if (conversion.from == Type::kF64 && std::isnan(value.high) && !conversion.saturate)
      return narrow_nan(format, std::bit_cast<U64>(value.high));
    if (conversion.saturate) {
      const U32 one = static_cast<U32>(format.bias) << format.mantissa_bits;
      code = code == format.nan_code || (code & sign) ? 0 : std::min(code, one);
    }
    if (conversion.relu && (code & sign)) code = 0;
    return code;
  };
  switch (conversion.to) {
    case Type::kF16: return narrow(kF16);
    case Type::kBf16: return narrow(kBf16);
    case Type::kF32: {
      const U32 code = narrow(kF32);
      return conversion.flush ? std::bit_cast<U32>(flush(std::bit_cast<float>(code))) : code;
    }
    default: break;
  }
  double result = value.high;
  const double infinity = std::numeric_limits<double>::infinity();
  const bool toward_zero = rounding == Rounding::kTowardZero;
  if (value.low > 0 && (rounding == Rounding::kUp || (toward_zero && result < 0)))
    result = std::nextafter(result, infinity);
  if (value.low < 0 && (rounding == Rounding::kDown || (toward_zero && result > 0)))
    result = std::nextafter(result, -infinity);
  return std::bit_cast<U64>(conversion.saturate ? saturate_unit(result) : result);
}

U64 convert(U64 held, const Conversion& conversion) {
  if (!is_floating(conversion.from)) {
    const Integer value = read_integer(conversion.from, held);
    if (is_floating(conversion.to)) {
      const double near = static_cast<double>(value);
      return write_float({near, static_cast<double>(value - static_cast<Integer>(near))}, conversion);
    }
    return static_cast<U64>(conversion.saturate ? std::clamp(value, lowest(conversion.to), highest(conversion.to))
                                                : value);
  }
  // The H100 does not flush a value that becomes f16: directed rounding sees the subnormal.
  const double value = read_float(conversion.from, held, conversion.flush && conversion.to != Type::kF16);
  if (!is_floating(conversion.to)) return float_to_integer(value, conversion);
  return write_float({round_to_integer(value, conversion.how), 0}, conversion);
}

/// The value as it stands in a register that may be wider.
U64 widen(U64 value, const Conversion& conversion) {
  return is_floating(conversion.to) ? value : static_cast<U64>(read_integer(conversion.to, value));
}

template <class From, class To>
void convert_lanes(Warp& warp, const Op& op, LaneMask lanes, const Conversion& conversion) {
  const From* a = warp.lanes<From>(op.a);
  To* d = warp.lanes<To>(op.d);
  for_each_lane(lanes, [&](int lane) { d[lane] = static_cast<To>(widen(convert(a[lane], conversion), conversion)); });
}
template <class From>
void convert_from(Warp& warp, const Op& op, LaneMask lanes, const Conversion& conversion) {
  if (conversion.to_register == 16) return convert_lanes<From, U16>(warp, op, lanes, conversion);
  if (conversion.to_register == 32) return convert_lanes<From, U32>(warp, op, lanes, conversion);
  return convert_lanes<From, U64>(warp, op, lanes, conversion);
}

U64 pack(const Conversion& c) {
  return static_cast<U64>(c.to) | static_cast<U64>(c.from) << 8 | static_cast<U64>(c.how) << 16 |
         U64{c.to_register} << 24 | U64{c.from_register} << 32 |
         (U64{c.flush} | U64{c.saturate} << 1 | U64{c.finite} << 2 | U64{c.relu} << 3) << 40;
}
Conversion unpack(U64 imm) {
  const auto byte = [&](int at) { return static_cast<U8>(imm >> at); };
  const U8 flags = byte(40);
  return {static_cast<Type>(byte(0)), static_cast<Type>(byte(8)), static_cast<How>(byte(16)), byte(24),        byte(32),
          (flags & 1) != 0,           (flags & 2) != 0,           (flags & 4) != 0,           (flags & 8) != 0};
}

Step run_convert(Warp& warp, const Op& op, LaneMask lanes) {
  const Conversion conversion = unpack(op.imm);
  if (conversion.from_register == 16) convert_from<U16>(warp, op, lanes, conversion);
  if (conversion.from_register == 32) convert_from<U32>(warp, op, lanes, conversion);
  if (conversion.from_register == 64) convert_from<U64>(warp, op, lanes, conversion);
  return Step::kNext;
}

// ---- the common ones ----------------------------------------------------------------------------------------------

template <class D, class A>
D cast(A a) {
  return static_cast<D>(a);
}
U32 low_byte(U16 a) { return a & 0xffu; }
float f32_of_f16(U16 a) { return one_nan(f16_to_f32(a)); }
U32 f32_of_bf16(U16 a) { return U32{a} << 16; }  // the hardware shifts: a NaN keeps its payload
U16 f16_of_f32(float a) { return f32_to_f16(a); }
U16 bf16_of_f32(float a) { return f32_to_bf16(a); }
float f32_of_f64(double a) { return static_cast<float>(a); }  // NaN keeps its sign and payload
template <float (*kRound)(float)>
float to_whole(float a) {
  return one_nan(kRound(a));
}
float round_even(float a) { return __builtin_nearbyintf(a); }
float round_zero(float a) { return __builtin_truncf(a); }
float round_down(float a) { return __builtin_floorf(a); }
float round_up(float a) { return __builtin_ceilf(a); }
S32 s32_of_f32(float a) {
  const bool low = !(a > -0x1p31f), high = a >= 0x1p31f;
  const S32 inside = static_cast<S32>(low || high ? 0.0f : a);
  return a != a ? 0 : high ? std::numeric_limits<S32>::max() : low ? std::numeric_limits<S32>::min() : inside;
}

struct Fast {
  std::string_view how, to, from;
  void (*decode)(Decoder&, Op&);
};
constexpr Fast kFast[] = {
    {"", "u32", "u16", lane_function<cast<U32, U16>>},
    {"", "s32", "u16", lane_function<cast<U32, U16>>},
    {"", "s32", "s16", lane_function<cast<S32, S16>>},
    {"", "u32", "s16", lane_function<cast<S32, S16>>},
    {"", "u64", "u32", lane_function<cast<U64, U32>>},
    {"", "s64", "u32", lane_function<cast<U64, U32>>},
    {"", "s64", "s32", lane_function<cast<S64, S32>>},
    {"", "u64", "s32", lane_function<cast<S64, S32>>},
    {"", "u32", "u64", lane_function<cast<U32, U64>>},
    {"", "s32", "s64", lane_function<cast<U32, U64>>},
    {"", "s32", "u64", lane_function<cast<U32, U64>>},
    {"", "u32", "s64", lane_function<cast<U32, U64>>},
    {"", "u16", "u32", lane_function<cast<U16, U32>>},
    {"", "s16", "s32", lane_function<cast<U16, U32>>},
    {"", "u32", "u8", lane_function<low_byte>},
    {"rn", "f32", "s32", lane_function<cast<float, S32>>},
    {"rn", "f32", "u32", lane_function<cast<float, U32>>},
    {"", "f32", "f16", lane_function<f32_of_f16>},
    {"", "f32", "bf16", lane_function<f32_of_bf16>},
    {"rn", "f16", "f32", lane_function<f16_of_f32>},
    {"rn", "bf16", "f32", lane_function<bf16_of_f32>},
    {"rn", "f32", "f64", lane_function<f32_of_f64>},
    {"", "f64", "f32", lane_function<cast<double, float>>},
    {"rzi", "s32", "f32", lane_function<s32_of_f32>},
    {"rni", "f32", "f32", lane_function<to_whole<round_even>>},
    {"rzi", "f32", "f32", lane_function<to_whole<round_zero>>},
    {"rmi", "f32", "f32", lane_function<to_whole<round_down>>},
    {"rpi", "f32", "f32", lane_function<to_whole<round_up>>},
};

// ---- rows ---------------------------------------------------------------------------------------------------------

/// Bits of the register that is operand i, or of the type if the operand is a constant.
U8 register_bits(const Decoder& decoder, std::size_t i, Type type) {
  const Operand& operand = decoder.operands()[i];
  const int needed = std::max(bits_of(type), 16);
  if (operand.kind != Operand::Kind::kRegister) return static_cast<U8>(needed);
  const RegisterClass size = decoder.register_class(operand);
  const int bits = size == RegisterClass::k16   ? 16
                   : size == RegisterClass::k32 ? 32
                   : size == RegisterClass::k64 ? 64
                                                : 0;
  if (bits < needed || (is_floating(type) && bits != needed))
    decoder.refuse("operand " + std::to_string(i + 1) + " is a register of the wrong size");
  return static_cast<U8>(bits);
}
RegisterClass class_of_bits(U8 bits) {
  return bits == 16 ? RegisterClass::k16 : bits == 32 ? RegisterClass::k32 : RegisterClass::k64;
}

/// Checks the modifiers that the ISA requires: how a float becomes an integer, and how a result that does not fit is
/// rounded. Like ptxas it takes two spellings more: between f16 and bf16 no rounding means .rn, and a bf16 that becomes
/// wider may have a rounding, which changes nothing.
void check_rounding(const Decoder& decoder, const Conversion& c) {
  const bool to_float = is_floating(c.to), from_float = is_floating(c.from);
  const bool between_halves = to_float && from_float && c.to != c.from && bits_of(c.to) == 16 && bits_of(c.from) == 16;
  const bool narrows = (to_float && from_float && bits_of(c.to) < bits_of(c.from)) || between_halves;
  const bool widens_bf16 = c.from == Type::kBf16 && bits_of(c.to) > 16;
  if (from_float && !to_float && !rounds_to_integer(c.how)) decoder.refuse("needs .rni, .rzi, .rmi or .rpi");
  const bool rounds = c.how == How::kNone ? between_halves : !rounds_to_integer(c.how);
  if (((!from_float && to_float) || narrows) && !rounds) decoder.refuse("needs .rn, .rz, .rm or .rp");
  if (!from_float && !to_float && c.how != How::kNone) decoder.refuse("does not take a rounding between integers");
  if (to_float && from_float && !narrows && !widens_bf16 && c.how != How::kNone && !rounds_to_integer(c.how))
    decoder.refuse("does not take a rounding, as it is exact");
  if (rounds_to_integer(c.how) && to_float && c.to != c.from)
    decoder.refuse("rounds to an integer in its own type only");
  const auto byte_and_bf16 = [](Type byte, Type other) { return bits_of(byte) == 8 && other == Type::kBf16; };
  if (byte_and_bf16(c.to, c.from) || byte_and_bf16(c.from, c.to)) decoder.refuse("is no conversion that the ISA has");
  if (c.saturate && (c.to == Type::kBf16 || c.from == Type::kBf16)) decoder.refuse("does not take .sat with bf16");
  if (c.flush && c.to != Type::kF32 && c.from != Type::kF32) decoder.refuse("takes .ftz only with f32");
}

void cvt(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  Conversion c;
  const auto how = std::find(std::begin(kHowNames), std::end(kHowNames), decoder.choice(0));
  c.how = static_cast<How>(how - std::begin(kHowNames));
  c.to = type_of(decoder.choice(3));
  c.from = type_of(decoder.choice(4));
  c.flush = decoder.has("ftz");
  c.saturate = decoder.has("sat");
  c.relu = decoder.has("relu");
  c.finite = decoder.has("satfinite");
  check_rounding(decoder, c);
  c.to_register = register_bits(decoder, 0, c.to);
  c.from_register = register_bits(decoder, 1, c.from);
  const bool plain = !c.flush && !c.saturate && !c.relu && !c.finite && c.to_register == std::max(bits_of(c.to), 16) &&
                     c.from_register == std::max(bits_of(c.from), 16);
  for (const Fast& fast : kFast)
    if (plain && fast.how == decoder.choice(0) && fast.to == decoder.choice(3) && fast.from == decoder.choice(4))
      return fast.decode(decoder, op);
  op.d = result(decoder, 0, class_of_bits(c.to_register));
  op.a = decoder.source(1, class_of_bits(c.from_register));
  op.imm = pack(c);
  op.run = run_convert;
}

#define KERNELWRIGHT_TYPES "(u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f32|f64)"

constexpr Form kForms[] = {
    {"cvt.(rn|rz|rm|rp|rni|rzi|rmi|rpi)?.(ftz)?.(sat)?." KERNELWRIGHT_TYPES "." KERNELWRIGHT_TYPES, cvt},
    {"cvt.(rn|rz).(relu)?.(satfinite)?.(f16|bf16).(f32)", cvt},
};

#undef KERNELWRIGHT_TYPES

/// These rows and the rows of the packed formats.
std::vector<Form> all_forms() {
  std::vector<Form> forms(std::begin(kForms), std::end(kForms));
  const std::span<const Form> packed = packed_convert_forms();
  forms.insert(forms.end(), packed.begin(), packed.end());
  return forms;
}

}  // namespace

std::span<const Form> convert_forms() {
  static const std::vector<Form>& forms = *new std::vector<Form>(all_forms());  // never destroyed
  return forms;
}

}  // namespace kernelwright::emulator
