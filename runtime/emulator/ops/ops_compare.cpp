/// PTX ISA "Comparison and Selection Instructions": setp, set, selp, slct, of all types.
///
/// A comparison makes a mask of the warp's lanes. The use of the mask is the same for all types: it is combined with a
/// predicate, written as one or two predicates, or widened to a register of ones.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "kernelwright/runtime/emulator/numbers/float_parts.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

enum class Compare { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };

template <Compare kCompare, class T>
bool compare(T a, T b) {
  [[maybe_unused]] const bool unordered = a != a || b != b;
  if constexpr (kCompare == Compare::kEq) return a == b;
  if constexpr (kCompare == Compare::kNe) return (a != b) & !unordered;
  if constexpr (kCompare == Compare::kLt) return a < b;
  if constexpr (kCompare == Compare::kLe) return a <= b;
  if constexpr (kCompare == Compare::kGt) return a > b;
  if constexpr (kCompare == Compare::kGe) return a >= b;
  if constexpr (kCompare == Compare::kEqu) return (a == b) | unordered;
  if constexpr (kCompare == Compare::kNeu) return a != b;
  if constexpr (kCompare == Compare::kLtu) return !(a >= b);
  if constexpr (kCompare == Compare::kLeu) return !(a > b);
  if constexpr (kCompare == Compare::kGtu) return !(a <= b);
  if constexpr (kCompare == Compare::kGeu) return !(a < b);
  if constexpr (kCompare == Compare::kNum) return !unordered;
  return unordered;  // kNan
}

/// The same for a comparison that is known only at run time.
template <class T>
bool compare(Compare how, T a, T b) {
  switch (how) {
    case Compare::kEq: return compare<Compare::kEq>(a, b);
    case Compare::kNe: return compare<Compare::kNe>(a, b);
    case Compare::kLt: return compare<Compare::kLt>(a, b);
    case Compare::kLe: return compare<Compare::kLe>(a, b);
    case Compare::kGt: return compare<Compare::kGt>(a, b);
    case Compare::kGe: return compare<Compare::kGe>(a, b);
    case Compare::kEqu: return compare<Compare::kEqu>(a, b);
    case Compare::kNeu: return compare<Compare::kNeu>(a, b);
    case Compare::kLtu: return compare<Compare::kLtu>(a, b);
    case Compare::kLeu: return compare<Compare::kLeu>(a, b);
    case Compare::kGtu: return compare<Compare::kGtu>(a, b);
    case Compare::kGeu: return compare<Compare::kGeu>(a, b);
    case Compare::kNum: return compare<Compare::kNum>(a, b);
    case Compare::kNan: return compare<Compare::kNan>(a, b);
  }
  return false;
}

/// The comparison that the pattern's first choice names.
Compare comparison_of(const Decoder& decoder) {
  constexpr std::string_view kNames[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                         "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  std::string_view name = decoder.choice(0);
  if (name == "lo") name = "lt";
  if (name == "ls") name = "le";
  if (name == "hi") name = "gt";
  if (name == "hs") name = "ge";
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) decoder.refuse("names no comparison");
  return static_cast<Compare>(found - std::begin(kNames));
}

/// A register's type, and how the number to compare is read from it.
template <class T>
struct Plain {
  using Register = T;
  static T value(T held) { return held; }
};
struct FlushedF32 {
  using Register = float;
  static float value(float held) { return flush(held); }
};
float flush_f16(float value) { return std::fabs(value) < 0x1p-14f ? std::copysign(0.0f, value) : value; }
template <bool kFtz>
struct F16 {
  using Register = U16;
  static float value(U16 held) { return kFtz ? flush_f16(f16_to_f32(held)) : f16_to_f32(held); }
};
struct Bf16 {
  using Register = U16;
  static float value(U16 held) { return bf16_to_f32(held); }
};
/// One half of a pair.
template <class Half, int kShift>
struct HalfOf {
  using Register = U32;
  static float value(U32 held) { return Half::value(static_cast<U16>(held >> kShift)); }
};

template <class Read>
Step compare_each(Warp& warp, const Op& op, LaneMask lanes, Compare how, LaneMask& mask) {
  const auto *a = warp.lanes<typename Read::Register>(op.a), *b = warp.lanes<typename Read::Register>(op.b);
  mask = 0;
  for_each_lane(lanes,
                [&](int lane) { mask |= LaneMask{compare(how, Read::value(a[lane]), Read::value(b[lane]))} << lane; });
  return Step::kNext;
}

// ---- what becomes of the mask -------------------------------------------------------------------------------------

enum Combine : U64 { kAlone, kAnd, kOr, kXor };
constexpr U64 kCombineMask = 3, kInvert = 4, kOnesAreFloat = 8;
constexpr int kCompareShift = 8;  // position in Op::imm of the comparison, if the handler reads it

LaneMask combine(LaneMask mask, const Warp& warp, const Op& op) {
  const U64 how = op.imm & kCombineMask;
  if (how == kAlone) return mask;
  const LaneMask c = warp.predicate(op.c) ^ (op.imm & kInvert ? kAllLanes : 0);
  return how == kAnd ? mask & c : how == kOr ? mask | c : mask ^ c;
}
/// Operands a, b and, if there is a boolean operator, c.
void read_sources(Decoder& decoder, Op& op, RegisterClass size) {
  const U64 how = decoder.has("and") ? kAnd : decoder.has("or") ? kOr : decoder.has("xor") ? kXor : kAlone;
  decoder.expect_operands(how == kAlone ? 3 : 4, how == kAlone ? 3 : 4);
  op.a = decoder.source(1, size);
  op.b = decoder.source(2, size);
  op.imm = how | static_cast<U64>(comparison_of(decoder)) << kCompareShift;
  if (how == kAlone) return;
  op.c = decoder.source(3, RegisterClass::kPredicate);
  if (decoder.negated(3)) op.imm |= kInvert;
}
/// p or p|q.
void read_predicates(Decoder& decoder, Op& op) {
  op.d = decoder.destination(0, RegisterClass::kPredicate);
  Operand second = decoder.operands()[0];
  if (second.paired < 0) return;
  second.kind = Operand::Kind::kRegister;
  second.reg = second.paired;
  op.e = decoder.destination(second, RegisterClass::kPredicate);
}

// ---- setp ---------------------------------------------------------------------------------------------------------

template <class Read, Compare kHow>
KERNELWRIGHT_TARGET_CLONES_FLATTEN Step run_setp(Warp& warp, const Op& op, LaneMask lanes) {
  const auto *a = warp.lanes<typename Read::Register>(op.a), *b = warp.lanes<typename Read::Register>(op.b);
  LaneMask mask = 0;
  for (int lane = 0; lane < 32; ++lane)
    mask |= compare<kHow>(Read::value(a[lane]), Read::value(b[lane])) ? kLaneBit.bit[lane] : 0;
  const LaneMask p = combine(mask, warp, op);
  if (op.d != kNoSlot) warp.set_predicate(op.d, p, lanes);
  if (op.e != kNoSlot) warp.set_predicate(op.e, combine(~mask, warp, op), lanes);
  return Step::kNext;
}
template <class Read>
void setp(Decoder& decoder, Op& op) {
  constexpr bool kFloating = std::is_floating_point_v<decltype(Read::value({}))>;
  const auto handlers = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Handler, sizeof...(I)>{run_setp<Read, static_cast<Compare>(I)>...};
  }
  (std::make_index_sequence < kFloating ? 14 : 6 > ());
  read_predicates(decoder, op);
  read_sources(decoder, op, class_of<typename Read::Register>());
  op.run = handlers.at(static_cast<std::size_t>(comparison_of(decoder)));
}

template <class Read>
Step run_setp_half(Warp& warp, const Op& op, LaneMask lanes) {
  LaneMask mask = 0;
  compare_each<Read>(warp, op, lanes, static_cast<Compare>(op.imm >> kCompareShift), mask);
  const LaneMask p = combine(mask, warp, op), q = combine(~mask, warp, op);
  if (op.d != kNoSlot) warp.set_predicate(op.d, p, lanes);
  if (op.e != kNoSlot) warp.set_predicate(op.e, q, lanes);
  return Step::kNext;
}
template <class Read>
void setp_half(Decoder& decoder, Op& op) {
  read_predicates(decoder, op);
  read_sources(decoder, op, RegisterClass::k16);
  op.run = run_setp_half<Read>;
}
/// For a pair: p is the result of the low halves, q that of the high halves.
template <class Half>
Step run_setp_pair(Warp& warp, const Op& op, LaneMask lanes) {
  const Compare how = static_cast<Compare>(op.imm >> kCompareShift);
  LaneMask low = 0, high = 0;
  compare_each<HalfOf<Half, 0>>(warp, op, lanes, how, low);
  compare_each<HalfOf<Half, 16>>(warp, op, lanes, how, high);
  low = combine(low, warp, op);
  high = combine(high, warp, op);
  if (op.d != kNoSlot) warp.set_predicate(op.d, low, lanes);
  if (op.e != kNoSlot) warp.set_predicate(op.e, high, lanes);
  return Step::kNext;
}
template <class Half>
void setp_pair(Decoder& decoder, Op& op) {
  read_predicates(decoder, op);
  read_sources(decoder, op, RegisterClass::k32);
  op.run = run_setp_pair<Half>;
}

// ---- set: all ones or 1.0 -----------------------------------------------------------------------------------------

template <class Read, class D, D kTrue>
Step run_set(Warp& warp, const Op& op, LaneMask lanes) {
  LaneMask mask = 0;
  compare_each<Read>(warp, op, lanes, static_cast<Compare>(op.imm >> kCompareShift), mask);
  mask = combine(mask, warp, op);
  D* d = warp.lanes<D>(op.d);
  for_each_lane(lanes, [&](int lane) { d[lane] = mask >> lane & 1 ? kTrue : D{0}; });
  return Step::kNext;
}
template <class Read, class D, D kTrue>
void set(Decoder& decoder, Op& op) {
  op.d = result(decoder, 0, class_of<D>());
  read_sources(decoder, op, class_of<typename Read::Register>());
  op.run = run_set<Read, D, kTrue>;
}
template <class Read>
void set_ones(Decoder& decoder, Op& op) {
  set<Read, U32, ~U32{0}>(decoder, op);
}
template <class Read>
void set_one(Decoder& decoder, Op& op) {
  set<Read, U32, 0x3f800000u>(decoder, op);
}
template <class Read>
void set_ones16(Decoder& decoder, Op& op) {
  set<Read, U16, U16{0xffff}>(decoder, op);
}
template <class Read>
void set_one_f16(Decoder& decoder, Op& op) {
  set<Read, U16, U16{0x3c00}>(decoder, op);
}
template <class Read>
void set_one_bf16(Decoder& decoder, Op& op) {
  set<Read, U16, U16{0x3f80}>(decoder, op);
}

template <class Half, U16 kTrue>
Step run_set_pair(Warp& warp, const Op& op, LaneMask lanes) {
  const Compare how = static_cast<Compare>(op.imm >> kCompareShift);
  LaneMask low = 0, high = 0;
  compare_each<HalfOf<Half, 0>>(warp, op, lanes, how, low);
  compare_each<HalfOf<Half, 16>>(warp, op, lanes, how, high);
  low = combine(low, warp, op);
  high = combine(high, warp, op);
  U32* d = warp.lanes<U32>(op.d);
  for_each_lane(lanes, [&](int lane) {
    d[lane] = (low >> lane & 1 ? U32{kTrue} : 0) | (high >> lane & 1 ? U32{kTrue} << 16 : 0);
  });
  return Step::kNext;
}
template <class Half, U16 kTrue>
void set_pair(Decoder& decoder, Op& op) {
  op.d = result(decoder, 0, RegisterClass::k32);
  read_sources(decoder, op, RegisterClass::k32);
  op.run = run_set_pair<Half, kTrue>;
}

// ---- selp, slct ---------------------------------------------------------------------------------------------------

template <class T>
KERNELWRIGHT_TARGET_CLONES_FLATTEN Step run_selp(Warp& warp, const Op& op, LaneMask lanes) {
  const LaneMask take_a = warp.predicate(op.c) ^ (op.imm ? kAllLanes : 0);
  const T *a = warp.lanes<T>(op.a), *b = warp.lanes<T>(op.b);
  assign_lanes(warp.lanes<T>(op.d), lanes,
               [=](int lane) { return (take_a & kLaneBit.bit[lane]) != 0 ? a[lane] : b[lane]; });
  return Step::kNext;
}
template <class T>
void selp(Decoder& decoder, Op& op) {
  decoder.expect_operands(4, 4);
  op.d = result(decoder, 0, class_of<T>());
  op.a = decoder.source(1, class_of<T>());
  op.b = decoder.source(2, class_of<T>());
  op.c = decoder.source(3, RegisterClass::kPredicate);
  op.imm = decoder.negated(3);
  op.run = run_selp<T>;
}

template <class T>
T select_by_sign(T a, T b, std::int32_t c) {
  return c >= 0 ? a : b;
}
/// -0 selects a, NaN selects b. With kFtz, subnormal numbers count as zeros.
template <class T, bool kFtz>
T select_by_float(T a, T b, float c) {
  return flush_if<kFtz>(c) >= 0 ? a : b;
}

#define KERNELWRIGHT_ORDERED "(eq|ne|lt|le|gt|ge)"
#define KERNELWRIGHT_UNSIGNED "(eq|ne|lt|le|gt|ge|lo|ls|hi|hs)"
#define KERNELWRIGHT_FLOATING "(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)"
#define KERNELWRIGHT_COMBINE ".(and|or|xor)?"

constexpr Form kForms[] = {
    {"setp.(eq|ne)" KERNELWRIGHT_COMBINE ".b16", setp<Plain<U16>>},
    {"setp.(eq|ne)" KERNELWRIGHT_COMBINE ".b32", setp<Plain<U32>>},
    {"setp.(eq|ne)" KERNELWRIGHT_COMBINE ".b64", setp<Plain<U64>>},
    {"setp." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".u16", setp<Plain<U16>>},
    {"setp." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".u32", setp<Plain<U32>>},
    {"setp." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".u64", setp<Plain<U64>>},
    {"setp." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".s16", setp<Plain<std::int16_t>>},
    {"setp." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".s32", setp<Plain<std::int32_t>>},
    {"setp." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".s64", setp<Plain<std::int64_t>>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f32", setp<Plain<float>>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.f32", setp<FlushedF32>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f64", setp<Plain<double>>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f16", setp_half<F16<false>>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.f16", setp_half<F16<true>>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".bf16", setp_half<Bf16>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f16x2", setp_pair<F16<false>>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.f16x2", setp_pair<F16<true>>},
    {"setp." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".bf16x2", setp_pair<Bf16>},

    {"set.(eq|ne)" KERNELWRIGHT_COMBINE ".(u32|s32).b16", set_ones<Plain<U16>>},
    {"set.(eq|ne)" KERNELWRIGHT_COMBINE ".(u32|s32).b32", set_ones<Plain<U32>>},
    {"set.(eq|ne)" KERNELWRIGHT_COMBINE ".(u32|s32).b64", set_ones<Plain<U64>>},
    {"set." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".(u32|s32).u16", set_ones<Plain<U16>>},
    {"set." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".(u32|s32).u32", set_ones<Plain<U32>>},
    {"set." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".(u32|s32).u64", set_ones<Plain<U64>>},
    {"set." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".(u32|s32).s16", set_ones<Plain<std::int16_t>>},
    {"set." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".(u32|s32).s32", set_ones<Plain<std::int32_t>>},
    {"set." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".(u32|s32).s64", set_ones<Plain<std::int64_t>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u32|s32).f32", set_ones<Plain<float>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.(u32|s32).f32", set_ones<FlushedF32>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u32|s32).f64", set_ones<Plain<double>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u32|s32).f16", set_ones<F16<false>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.(u32|s32).f16", set_ones<F16<true>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u32|s32).bf16", set_ones<Bf16>},
    {"set.(eq|ne)" KERNELWRIGHT_COMBINE ".f32.b16", set_one<Plain<U16>>},
    {"set.(eq|ne)" KERNELWRIGHT_COMBINE ".f32.b32", set_one<Plain<U32>>},
    {"set.(eq|ne)" KERNELWRIGHT_COMBINE ".f32.b64", set_one<Plain<U64>>},
    {"set." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".f32.u16", set_one<Plain<U16>>},
    {"set." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".f32.u32", set_one<Plain<U32>>},
    {"set." KERNELWRIGHT_UNSIGNED KERNELWRIGHT_COMBINE ".f32.u64", set_one<Plain<U64>>},
    {"set." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".f32.s16", set_one<Plain<std::int16_t>>},
    {"set." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".f32.s32", set_one<Plain<std::int32_t>>},
    {"set." KERNELWRIGHT_ORDERED KERNELWRIGHT_COMBINE ".f32.s64", set_one<Plain<std::int64_t>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f32.f32", set_one<Plain<float>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.f32.f32", set_one<FlushedF32>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f32.f64", set_one<Plain<double>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u16|s16).f16", set_ones16<F16<false>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.(u16|s16).f16", set_ones16<F16<true>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u16|s16).bf16", set_ones16<Bf16>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f16.f16", set_one_f16<F16<false>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.f16.f16", set_one_f16<F16<true>>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".bf16.bf16", set_one_bf16<Bf16>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".f16x2.f16x2", set_pair<F16<false>, 0x3c00>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.f16x2.f16x2", set_pair<F16<true>, 0x3c00>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".bf16x2.bf16x2", set_pair<Bf16, 0x3f80>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u32|s32).f16x2", set_pair<F16<false>, 0xffff>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".ftz.(u32|s32).f16x2", set_pair<F16<true>, 0xffff>},
    {"set." KERNELWRIGHT_FLOATING KERNELWRIGHT_COMBINE ".(u32|s32).bf16x2", set_pair<Bf16, 0xffff>},

    {"selp.(b16|u16|s16)", selp<U16>},
    {"selp.(b32|u32|s32|f32)", selp<U32>},
    {"selp.(b64|u64|s64|f64)", selp<U64>},
    {"slct.(b16|u16|s16).s32", lane_function<select_by_sign<U16>>},
    {"slct.(b32|u32|s32|f32).s32", lane_function<select_by_sign<U32>>},
    {"slct.(b64|u64|s64|f64).s32", lane_function<select_by_sign<U64>>},
    {"slct.(b16|u16|s16).f32", lane_function<select_by_float<U16, false>>},
    {"slct.(b32|u32|s32|f32).f32", lane_function<select_by_float<U32, false>>},
    {"slct.(b64|u64|s64|f64).f32", lane_function<select_by_float<U64, false>>},
    {"slct.ftz.(b16|u16|s16).f32", lane_function<select_by_float<U16, true>>},
    {"slct.ftz.(b32|u32|s32|f32).f32", lane_function<select_by_float<U32, true>>},
    {"slct.ftz.(b64|u64|s64|f64).f32", lane_function<select_by_float<U64, true>>},
};

#undef KERNELWRIGHT_ORDERED
#undef KERNELWRIGHT_UNSIGNED
#undef KERNELWRIGHT_FLOATING
#undef KERNELWRIGHT_COMBINE

}  // namespace

std::span<const Form> compare_forms() { return kForms; }

}  // namespace kernelwright::emulator
