/// PTX ISA "Video Instructions": vadd and the like on 32 bits, two halves (vadd2) or four bytes (vadd4), with operands
/// and results that are whole registers. Selectors (%r1.b0), vmad, vavrg2 and vavrg4 have no row. An H100
/// departs from the ISA's text in some forms, and these have no row either. They are minima and maxima with C, sums of
/// lanes with C, and saturation of unsigned sums and differences. Sums of unsigned differences with C have a row.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

using U32 = std::uint32_t;
using S64 = std::int64_t;

enum class Video : std::uint8_t { kAdd, kSub, kAbsDiff, kMin, kMax, kShiftLeft, kShiftRight, kSet };
enum class Relation : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };
/// What is done with the result and the operand C.
enum class Second : std::uint8_t { kNone, kAdd, kMin, kMax };

/// What the handler needs; it fits into op.imm.
struct Plan {
  Video operation = Video::kAdd;
  Relation relation = Relation::kEq;
  Second second = Second::kNone;
  std::uint8_t bits = 32;  // of one lane of a register
  bool signed_a = false, signed_b = false, signed_d = false;
  std::uint8_t saturate = 0;  // of a shift: beyond 31 bits as 32 bits
};
static_assert(sizeof(Plan) == sizeof(Op::imm));

S64 lane_of(U32 word, int lane, int bits, bool is_signed) {
  const U32 value = word >> lane * bits & (bits == 32 ? ~U32{0} : (U32{1} << bits) - 1);
  return is_signed && (value >> (bits - 1)) != 0 ? S64{value} - (S64{1} << bits) : S64{value};
}

bool holds(Relation relation, S64 a, S64 b) {
  switch (relation) {
    case Relation::kEq: return a == b;
    case Relation::kNe: return a != b;
    case Relation::kLt: return a < b;
    case Relation::kLe: return a <= b;
    case Relation::kGt: return a > b;
    case Relation::kGe: return a >= b;
  }
  return false;
}

S64 result_of(const Plan& plan, S64 a, S64 b) {
  // A shift's number of bits wraps around at 32, or is 32 at most.
  const S64 amount = plan.saturate != 0 ? std::min<S64>(b, 32) : b & 31;
  switch (plan.operation) {
    case Video::kAdd: return a + b;
    case Video::kSub: return a - b;
    case Video::kAbsDiff: return a < b ? b - a : a - b;
    case Video::kMin: return std::min(a, b);
    case Video::kMax: return std::max(a, b);
    case Video::kShiftLeft: return static_cast<S64>(static_cast<std::uint64_t>(a) << amount);
    case Video::kShiftRight: return a >> amount;
    case Video::kSet: return holds(plan.relation, a, b) ? 1 : 0;
  }
  return 0;
}

U32 second_of(const Plan& plan, U32 sum, U32 c) {
  const bool less = plan.signed_d ? static_cast<std::int32_t>(sum) < static_cast<std::int32_t>(c) : sum < c;
  switch (plan.second) {
    case Second::kNone: break;
    case Second::kAdd: return sum + c;
    case Second::kMin: return less ? sum : c;
    case Second::kMax: return less ? c : sum;
  }
  return sum;
}

U32 compute(const Plan& plan, U32 a, U32 b, U32 c) {
  const bool shift = plan.operation == Video::kShiftLeft || plan.operation == Video::kShiftRight;
  const S64 low = plan.signed_d ? -(S64{1} << (plan.bits - 1)) : 0;
  const S64 high = (S64{1} << (plan.bits - (plan.signed_d ? 1 : 0))) - 1;
  U32 packed = 0, sum = 0;
  for (int lane = 0; lane < 32 / plan.bits; ++lane) {
    S64 value = result_of(plan, lane_of(a, lane, plan.bits, plan.signed_a), lane_of(b, lane, plan.bits, plan.signed_b));
    if (plan.saturate != 0 && !shift) value = std::clamp(value, low, high);
    const auto bits = static_cast<U32>(value) & (plan.bits == 32 ? ~U32{0} : (U32{1} << plan.bits) - 1);
    packed |= bits << lane * plan.bits;
    sum += static_cast<U32>(lane_of(bits, 0, plan.bits, plan.signed_d));
  }
  return plan.second == Second::kNone ? packed : second_of(plan, sum, c);
}

Step run_video(Warp& warp, const Op& op, LaneMask lanes) {
  Plan plan;
  std::memcpy(static_cast<void*>(&plan), &op.imm, sizeof plan);
  const U32 *a = warp.lanes<U32>(op.a), *b = warp.lanes<U32>(op.b), *c = warp.lanes<U32>(op.c);
  assign_lanes(warp.lanes<U32>(op.d), lanes, [&](int lane) { return compute(plan, a[lane], b[lane], c[lane]); });
  return Step::kNext;
}

template <class T>
struct Named {
  std::string_view name;
  T value;
};
template <class T, std::size_t kCount>
T find(const Named<T> (&rows)[kCount], std::string_view name, T otherwise) {
  for (const Named<T>& row : rows)
    if (row.name == name) return row.value;
  return otherwise;
}

/// The name without its vadd's 2 or 4 lanes is the first part.
void decode_video(Decoder& decoder, Op& op) {
  static constexpr Named<Video> kOperations[] = {
      {"vadd", Video::kAdd}, {"vsub", Video::kSub},       {"vabsdiff", Video::kAbsDiff}, {"vmin", Video::kMin},
      {"vmax", Video::kMax}, {"vshl", Video::kShiftLeft}, {"vshr", Video::kShiftRight},  {"vset", Video::kSet}};
  static constexpr Named<Relation> kRelations[] = {{"eq", Relation::kEq}, {"ne", Relation::kNe}, {"lt", Relation::kLt},
                                                   {"le", Relation::kLe}, {"gt", Relation::kGt}, {"ge", Relation::kGe}};
  static constexpr Named<Second> kSeconds[] = {{"add", Second::kAdd}, {"min", Second::kMin}, {"max", Second::kMax}};
  const auto& parts = decoder.instruction().parts;
  std::string_view name = parts[0];
  Plan plan;
  if (name.back() == '2' || name.back() == '4') {
    plan.bits = name.back() == '2' ? 16 : 8;
    name.remove_suffix(1);
  }
  plan.operation = find(kOperations, name, Video::kAdd);
  const bool set = plan.operation == Video::kSet;  // its result has no type of its own
  plan.signed_d = !set && parts[1] == "s32";
  plan.signed_a = parts[set ? 1 : 2] == "s32";
  plan.signed_b = parts[set ? 2 : 3] == "s32";
  for (const std::string_view part : parts) plan.relation = find(kRelations, part, plan.relation);
  plan.saturate = decoder.has("sat") || decoder.has("clamp") ? 1 : 0;
  plan.second = find(kSeconds, parts.back(), Second::kNone);
  // Forms on halves and bytes always have C, into which unselected lanes would be merged.
  const std::size_t operands = plan.second != Second::kNone || plan.bits != 32 ? 4 : 3;
  decoder.expect_operands(operands, operands);
  op.d = result(decoder, 0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.c = operands == 4 ? decoder.source(3, RegisterClass::k32) : op.b;
  std::memcpy(&op.imm, &plan, sizeof plan);
  op.run = run_video;
}

#define KERNELWRIGHT_LANES "(vadd2|vsub2|vabsdiff2|vmin2|vmax2|vadd4|vsub4|vabsdiff4|vmin4|vmax4)"

constexpr Form kForms[] = {
    {"(vadd|vsub|vabsdiff|vmin|vmax).(u32|s32).(u32|s32).(u32|s32).(add)?", decode_video},
    {"(vsub|vmin|vmax).(u32|s32).(u32|s32).(u32|s32).(sat)", decode_video},
    {"(vadd|vabsdiff).(s32).(u32|s32).(u32|s32).(sat)", decode_video},
    {KERNELWRIGHT_LANES ".(u32|s32).(u32|s32).(u32|s32).(sat)?", decode_video},
    {"(vabsdiff2|vabsdiff4).(u32).(u32).(u32).(add)", decode_video},
    {"(vshl|vshr).(u32|s32).(u32|s32).u32.(clamp|wrap).(add|min|max)?", decode_video},
    {"vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).(add)?", decode_video},
    {"(vset2|vset4).(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).(add)?", decode_video},
};

#undef KERNELWRIGHT_LANES

}  // namespace

std::span<const Form> video_forms() { return kForms; }

}  // namespace kernelwright::emulator
