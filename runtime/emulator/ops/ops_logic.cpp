/// PTX ISA "Logic and Shift Instructions" and `prmt`.
#include <algorithm>
#include <array>

#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

template <class T>
inline constexpr U32 kBits = sizeof(T) * 8;

template <class T>
T bit_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
T bit_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
T bit_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <class T>
T bit_not(T a) {
  return static_cast<T>(~a);
}
template <class T>
T is_zero(T a) {
  return a == 0 ? 1 : 0;
}

// A shift count beyond the width counts as the width.
template <class T>
T shift_left(T a, U32 by) {
  return by >= kBits<T> ? T{0} : static_cast<T>(a << by);
}
template <class T>
T shift_right(T a, U32 by) {
  if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> (by >= kBits<T> ? kBits<T> - 1 : by));
  return by >= kBits<T> ? T{0} : static_cast<T>(a >> by);
}
/// `b` above `a`, 64 bits.
template <bool kClamp>
U32 funnel_left(U32 a, U32 b, U32 c) {
  const U32 by = kClamp ? std::min<U32>(c, 32) : c & 31;
  return static_cast<U32>(((U64{b} << 32 | a) << by) >> 32);
}
template <bool kClamp>
U32 funnel_right(U32 a, U32 b, U32 c) {
  const U32 by = kClamp ? std::min<U32>(c, 32) : c & 31;
  return static_cast<U32>((U64{b} << 32 | a) >> by);
}

// ---- predicates ---------------------------------------------------------------------------------------------------

template <LaneMask (*kFunction)(LaneMask, LaneMask)>
struct PredicateFunction {
  static Step run(Warp& warp, const Op& op, LaneMask lanes) {
    const LaneMask a = warp.predicate(op.a) ^ (op.imm & 1 ? kAllLanes : 0);
    const LaneMask b = warp.predicate(op.b) ^ (op.imm & 2 ? kAllLanes : 0);
    warp.set_predicate(op.d, kFunction(a, b), lanes);
    return Step::kNext;
  }
  static void decode(Decoder& decoder, Op& op) {
    decoder.expect_operands(3, 3);
    op.d = result(decoder, 0, RegisterClass::kPredicate);
    op.a = decoder.source(1, RegisterClass::kPredicate);
    op.b = decoder.source(2, RegisterClass::kPredicate);
    op.imm = (decoder.negated(1) ? 1u : 0u) | (decoder.negated(2) ? 2u : 0u);
    op.run = run;
  }
};
Step run_not_predicate(Warp& warp, const Op& op, LaneMask lanes) {
  warp.set_predicate(op.d, warp.predicate(op.a) ^ (op.imm ? 0 : kAllLanes), lanes);
  return Step::kNext;
}
void not_predicate(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = result(decoder, 0, RegisterClass::kPredicate);
  op.a = decoder.source(1, RegisterClass::kPredicate);
  op.imm = decoder.negated(1);
  op.run = run_not_predicate;
}

// ---- lop3 ---------------------------------------------------------------------------------------------------------

/// Bit i of the table is the result if a, b and c are bits 2, 1 and 0 of i.
inline U32 lookup3(U32 a, U32 b, U32 c, const std::array<U32, 8>& table) {
  const U32 na = ~a, nb = ~b, nc = ~c;
  return (table[0] & na & nb & nc) | (table[1] & na & nb & c) | (table[2] & na & b & nc) | (table[3] & na & b & c) |
         (table[4] & a & nb & nc) | (table[5] & a & nb & c) | (table[6] & a & b & nc) | (table[7] & a & b & c);
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN Step run_lop3(Warp& warp, const Op& op, LaneMask lanes) {
  std::array<U32, 8> table;
  for (U32 i = 0; i < 8; ++i) table[i] = op.imm >> i & 1 ? ~U32{0} : 0;
  const U32 *a = warp.lanes<U32>(op.a), *b = warp.lanes<U32>(op.b), *c = warp.lanes<U32>(op.c);
  assign_lanes(warp.lanes<U32>(op.d), lanes,
               [=, &table](int lane) { return lookup3(a[lane], b[lane], c[lane], table); });
  return Step::kNext;
}
void lop3(Decoder& decoder, Op& op) {
  decoder.expect_operands(5, 5);
  op.d = result(decoder, 0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.c = decoder.source(3, RegisterClass::k32);
  op.imm = static_cast<U64>(decoder.immediate(4, 0, 255));
  op.run = run_lop3;
}

constexpr std::uint64_t kLop3And = 1 << 8, kLop3NegatedInput = 1 << 9;

/// lop3.or / lop3.and: d|p; p = (the result is not zero) op q. Slots: list[0] is p, list[1] is q.
Step run_lop3_predicate(Warp& warp, const Op& op, LaneMask lanes) {
  std::array<U32, 8> table;
  for (U32 i = 0; i < 8; ++i) table[i] = op.imm >> i & 1 ? ~U32{0} : 0;
  const U32 *a = warp.lanes<U32>(op.a), *b = warp.lanes<U32>(op.b), *c = warp.lanes<U32>(op.c);
  LaneMask nonzero = 0;
  for_each_lane(lanes, [&](int lane) {
    const U32 value = lookup3(a[lane], b[lane], c[lane], table);
    nonzero |= value != 0 ? LaneMask{1} << lane : 0;
    if (op.d != kNoSlot) warp.lanes<U32>(op.d)[lane] = value;
  });
  const LaneMask q = warp.predicate(op.list[1]) ^ (op.imm & kLop3NegatedInput ? kAllLanes : 0);
  warp.set_predicate(op.list[0], op.imm & kLop3And ? nonzero & q : nonzero | q, lanes);
  return Step::kNext;
}
void lop3_predicate(Decoder& decoder, Op& op) {
  decoder.expect_operands(6, 6);
  const Operand& first = decoder.operands()[0];
  if (first.paired < 0) decoder.refuse("needs a pair d|p as its first operand");
  Operand predicate = first;
  predicate.kind = Operand::Kind::kRegister;
  predicate.reg = first.paired;
  predicate.paired = -1;
  const auto list = decoder.slots(2);
  op.d = decoder.destination(0, RegisterClass::k32);
  list[0] = decoder.destination(predicate, RegisterClass::kPredicate);
  list[1] = decoder.source(5, RegisterClass::kPredicate);
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.c = decoder.source(3, RegisterClass::k32);
  op.imm = static_cast<U64>(decoder.immediate(4, 0, 255)) | (decoder.has("and") ? kLop3And : 0) |
           (decoder.negated(5) ? kLop3NegatedInput : 0);
  op.list = list.data();
  op.list_size = 2;
  op.run = run_lop3_predicate;
}

// ---- prmt ---------------------------------------------------------------------------------------------------------

/// Byte i of the result is byte (selector >> 4i & 7) of b:a, or eight copies of that byte's sign if bit 3 is set.
U32 permute(U32 a, U32 b, U32 selector) {
  const U64 bytes = U64{b} << 32 | a;
  U32 d = 0;
  for (U32 i = 0; i < 4; ++i) {
    const U32 select = selector >> 4 * i;
    const U32 byte = static_cast<U32>(bytes >> 8 * (select & 7)) & 0xff;
    const U32 sign = byte & 0x80 ? 0xffu : 0u;
    d |= (select & 8 ? sign : byte) << 8 * i;
  }
  return d;
}
/// A mode is four selectors, one for each value of the low two bits of c.
enum Mode : std::size_t { kForward4, kBackward4, kReplicate8, kEdgeLeft, kEdgeRight, kReplicate16 };
constexpr U32 kSelectors[][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
    {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232},
};
template <Mode kMode>
U32 permute_mode(U32 a, U32 b, U32 c) {
  return permute(a, b, kSelectors[kMode][c & 3]);
}

constexpr Form kForms[] = {
    {"and.b16", lane_function<bit_and<U16>>},
    {"and.b32", lane_function<bit_and<U32>>},
    {"and.b64", lane_function<bit_and<U64>>},
    {"and.pred", PredicateFunction<bit_and<LaneMask>>::decode},
    {"or.b16", lane_function<bit_or<U16>>},
    {"or.b32", lane_function<bit_or<U32>>},
    {"or.b64", lane_function<bit_or<U64>>},
    {"or.pred", PredicateFunction<bit_or<LaneMask>>::decode},
    {"xor.b16", lane_function<bit_xor<U16>>},
    {"xor.b32", lane_function<bit_xor<U32>>},
    {"xor.b64", lane_function<bit_xor<U64>>},
    {"xor.pred", PredicateFunction<bit_xor<LaneMask>>::decode},
    {"not.b16", lane_function<bit_not<U16>>},
    {"not.b32", lane_function<bit_not<U32>>},
    {"not.b64", lane_function<bit_not<U64>>},
    {"not.pred", not_predicate},
    {"cnot.b16", lane_function<is_zero<U16>>},
    {"cnot.b32", lane_function<is_zero<U32>>},
    {"cnot.b64", lane_function<is_zero<U64>>},
    {"lop3.b32", lop3},
    {"lop3.(or|and).b32", lop3_predicate},

    {"shl.b16", lane_function<shift_left<U16>>},
    {"shl.b32", lane_function<shift_left<U32>>},
    {"shl.b64", lane_function<shift_left<U64>>},
    {"shr.(b16|u16)", lane_function<shift_right<U16>>},
    {"shr.(b32|u32)", lane_function<shift_right<U32>>},
    {"shr.(b64|u64)", lane_function<shift_right<U64>>},
    {"shr.s16", lane_function<shift_right<std::int16_t>>},
    {"shr.s32", lane_function<shift_right<std::int32_t>>},
    {"shr.s64", lane_function<shift_right<std::int64_t>>},
    {"shf.l.clamp.b32", lane_function<funnel_left<true>>},
    {"shf.l.wrap.b32", lane_function<funnel_left<false>>},
    {"shf.r.clamp.b32", lane_function<funnel_right<true>>},
    {"shf.r.wrap.b32", lane_function<funnel_right<false>>},

    {"prmt.b32", lane_function<permute>},
    {"prmt.b32.f4e", lane_function<permute_mode<kForward4>>},
    {"prmt.b32.b4e", lane_function<permute_mode<kBackward4>>},
    {"prmt.b32.rc8", lane_function<permute_mode<kReplicate8>>},
    {"prmt.b32.ecl", lane_function<permute_mode<kEdgeLeft>>},
    {"prmt.b32.ecr", lane_function<permute_mode<kEdgeRight>>},
    {"prmt.b32.rc16", lane_function<permute_mode<kReplicate16>>},
};

}  // namespace

std::span<const Form> logic_forms() { return kForms; }

}  // namespace kernelwright::emulator
