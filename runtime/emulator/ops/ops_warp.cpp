/// Communication between the lanes of a warp (PTX ISA shfl.sync, vote.sync, match.sync, redux.sync, elect.sync,
/// activemask).
///
/// Before a handler runs, the machine brings together the lanes that one member mask names; exited lanes count as
/// present. It faults an executing lane that its mask does not name. So `lanes` here are the lanes that take part, all
/// with one mask.
#include <cstring>
#include <string>
#include <type_traits>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/numbers/float_parts.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

namespace {

LaneMask bit(int lane) { return LaneMask{1} << lane; }

// ---------------------------------------------------------------------------------------------- shfl

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

/// Some lanes read from lanes that do not take part, which PTX leaves undefined. They get what the register holds.
void report_absent_sources(Warp& warp, LaneMask lanes, LaneMask readers) {
  if (Hazards* hazards = warp.cta->cluster->hazards)
    hazards->report(
        HazardRule::kShuffleSource, warp, readers,
        "shfl.sync reads from lanes that do not execute it: only those in the mask " + std::to_string(lanes) + " do");
}

/// d: result, e: whether the source lane was in range, a: value, b: lane or distance, c: clamp and segment mask.
template <Shuffle kMode>
Step shuffle(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* a = warp.lanes<std::uint32_t>(op.a);
  const auto* b = warp.lanes<std::uint32_t>(op.b);
  const auto* c = warp.lanes<std::uint32_t>(op.c);
  std::int32_t from[32];
  std::uint32_t in_range[32];
  for (int lane = 0; lane < 32; ++lane) {
    const std::int32_t distance = static_cast<std::int32_t>(b[lane] & 31);
    const std::int32_t clamp = static_cast<std::int32_t>(c[lane] & 31),
                       segment = static_cast<std::int32_t>(c[lane] >> 8 & 31);
    const std::int32_t first = lane & segment, last = first | (clamp & ~segment);
    std::int32_t source = 0;
    if constexpr (kMode == Shuffle::kUp) source = lane - distance;
    if constexpr (kMode == Shuffle::kDown) source = lane + distance;
    if constexpr (kMode == Shuffle::kButterfly) source = lane ^ distance;
    if constexpr (kMode == Shuffle::kIndex) source = first | (distance & ~segment);
    const bool within = kMode == Shuffle::kUp ? source >= last : source <= last;
    from[lane] = within ? source : lane;
    in_range[lane] = within ? 1 : 0;
  }
  std::uint32_t result[32];
  for (int lane = 0; lane < 32; ++lane) result[lane] = a[from[lane] & 31];
  if (lanes != kAllLanes) {
    LaneMask readers = 0;
    for_each_lane(lanes, [&](int lane) { readers |= (lanes >> from[lane] & 1) == 0 ? bit(lane) : 0; });
    if (readers != 0) report_absent_sources(warp, lanes, readers);
  }
  if (op.d != kNoSlot) assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int lane) { return result[lane]; });
  if (op.e != kNoSlot) {
    LaneMask mask = 0;
    for (int lane = 0; lane < 32; ++lane) mask |= in_range[lane] << lane;
    warp.set_predicate(op.e, mask, lanes);
  }
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- vote, elect,
// activemask

enum class Vote { kAll, kAny, kUniform, kBallot };

/// op.imm: whether the predicate is negated.
template <Vote kMode>
Step vote(Warp& warp, const Op& op, LaneMask lanes) {
  const LaneMask set = (op.imm != 0 ? ~warp.predicate(op.a) : warp.predicate(op.a)) & lanes;
  if constexpr (kMode == Vote::kBallot) {
    assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int) { return set; });
  } else {
    const bool result = kMode == Vote::kAll ? set == lanes : kMode == Vote::kAny ? set != 0 : set == lanes || set == 0;
    warp.set_predicate(op.d, result ? kAllLanes : 0, lanes);
  }
  return Step::kNext;
}

/// Elects the lowest lane, as existing hardware does.
Step elect(Warp& warp, const Op& op, LaneMask lanes) {
  const int leader = first_lane(lanes);
  if (op.d != kNoSlot)
    assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int) { return static_cast<std::uint32_t>(leader); });
  warp.set_predicate(op.e, bit(leader), lanes);
  return Step::kNext;
}

Step active_mask(Warp& warp, const Op& op, LaneMask lanes) {
  assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int) { return lanes; });
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- match

template <class T>
Step match_any(Warp& warp, const Op& op, LaneMask lanes) {
  T a[32];
  std::memcpy(a, warp.lanes<T>(op.a), sizeof a);
  auto* d = warp.lanes<std::uint32_t>(op.d);
  for (LaneMask rest = lanes; rest != 0;) {
    const T value = a[first_lane(rest)];
    LaneMask equal = 0;
    for_each_lane(rest, [&](int lane) { equal |= a[lane] == value ? bit(lane) : 0; });
    for_each_lane(equal, [&](int lane) { d[lane] = equal; });
    rest &= ~equal;
  }
  return Step::kNext;
}

template <class T>
Step match_all(Warp& warp, const Op& op, LaneMask lanes) {
  const T* a = warp.lanes<T>(op.a);
  const T value = a[first_lane(lanes)];
  bool equal = true;
  for_each_lane(lanes, [&](int lane) { equal &= a[lane] == value; });
  assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int) { return equal ? lanes : 0; });
  if (op.e != kNoSlot) warp.set_predicate(op.e, equal ? kAllLanes : 0, lanes);
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- redux

struct Add {
  static std::uint32_t apply(std::uint32_t x, std::uint32_t y) { return x + y; }
};
struct And {
  static std::uint32_t apply(std::uint32_t x, std::uint32_t y) { return x & y; }
};
struct Or {
  static std::uint32_t apply(std::uint32_t x, std::uint32_t y) { return x | y; }
};
struct Xor {
  static std::uint32_t apply(std::uint32_t x, std::uint32_t y) { return x ^ y; }
};
template <class T>
struct Min {
  static std::uint32_t apply(std::uint32_t x, std::uint32_t y) { return static_cast<T>(x) < static_cast<T>(y) ? x : y; }
};
template <class T>
struct Max {
  static std::uint32_t apply(std::uint32_t x, std::uint32_t y) { return static_cast<T>(x) > static_cast<T>(y) ? x : y; }
};

template <class Operation>
Step reduce(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* a = warp.lanes<std::uint32_t>(op.a);
  std::uint32_t result = a[first_lane(lanes)];
  for_each_lane(lanes & (lanes - 1), [&](int lane) { result = Operation::apply(result, a[lane]); });
  assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int) { return result; });
  return Step::kNext;
}

/// The order of f32 values other than NaN, as integers: -0 is below +0.
std::int32_t float_order(std::uint32_t code) {
  const auto bits = static_cast<std::int32_t>(code);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

constexpr std::uint64_t kAbsolute = 1, kNanWins = 2;  // bits of op.imm

/// Without .NaN, NaN values count only where there are no others.
template <bool kMax>
Step reduce_f32(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* a = warp.lanes<std::uint32_t>(op.a);
  std::uint32_t result = kNanF32;
  bool found = false, nan = false;
  for_each_lane(lanes, [&](int lane) {
    const std::uint32_t value = op.imm & kAbsolute ? a[lane] & 0x7fffffffu : a[lane];
    const bool is_nan = (value & 0x7fffffffu) > 0x7f800000u;
    nan |= is_nan;
    if (is_nan) return;
    const bool beats = kMax ? float_order(value) > float_order(result) : float_order(value) < float_order(result);
    if (!found || beats) result = value;
    found = true;
  });
  if (nan && (op.imm & kNanWins)) result = kNanF32;
  assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int) { return result; });
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- the forms

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};
template <class Value, std::size_t kCount>
Value find(const Named<Value> (&rows)[kCount], std::string_view name) {
  for (const auto& row : rows)
    if (row.name == name) return row.value;
  return {};
}

void decode_members(Decoder& decoder, Op& op, std::size_t operand) {
  op.members = decoder.source(operand, RegisterClass::k32);
  op.converge = Converge::kMembers;
}

/// The predicate after `|` in the first operand; kNoSlot if there is none.
Slot paired_predicate(Decoder& decoder) {
  const Operand& destination = decoder.operands()[0];
  if (destination.paired < 0) return kNoSlot;
  Operand predicate;
  predicate.kind = Operand::Kind::kRegister;
  predicate.reg = destination.paired;
  return decoder.destination(predicate, RegisterClass::kPredicate);
}

void refuse_sink(const Decoder& decoder, const Op& op) {
  if (op.d == kNoSlot) decoder.refuse("its destination cannot be _");
}

void decode_shuffle(Decoder& decoder, Op& op) {
  static constexpr Named<Handler> kModes[] = {{"up", shuffle<Shuffle::kUp>},
                                              {"down", shuffle<Shuffle::kDown>},
                                              {"bfly", shuffle<Shuffle::kButterfly>},
                                              {"idx", shuffle<Shuffle::kIndex>}};
  decoder.expect_operands(5, 5);
  op.d = decoder.destination(0, RegisterClass::k32);
  op.e = paired_predicate(decoder);
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.c = decoder.source(3, RegisterClass::k32);
  decode_members(decoder, op, 4);
  op.run = find(kModes, decoder.choice(0));
}

void decode_vote(Decoder& decoder, Op& op) {
  static constexpr Named<Handler> kModes[] = {{"all", vote<Vote::kAll>},
                                              {"any", vote<Vote::kAny>},
                                              {"uni", vote<Vote::kUniform>},
                                              {"ballot", vote<Vote::kBallot>}};
  decoder.expect_operands(3, 3);
  const bool ballot = decoder.choice(0) == "ballot";
  op.d = decoder.destination(0, ballot ? RegisterClass::k32 : RegisterClass::kPredicate);
  refuse_sink(decoder, op);
  op.a = decoder.source(1, RegisterClass::kPredicate);
  op.imm = decoder.negated(1) ? 1 : 0;
  decode_members(decoder, op, 2);
  op.run = find(kModes, decoder.choice(0));
}

void decode_match(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  const bool all = decoder.choice(0) == "all", wide = decoder.choice(1) == "b64";
  op.d = decoder.destination(0, RegisterClass::k32);
  refuse_sink(decoder, op);
  op.e = paired_predicate(decoder);
  if (op.e != kNoSlot && !all) decoder.refuse("only match.all gives a predicate");
  op.a = decoder.source(1, wide ? RegisterClass::k64 : RegisterClass::k32);
  decode_members(decoder, op, 2);
  if (all)
    op.run = wide ? match_all<std::uint64_t> : match_all<std::uint32_t>;
  else
    op.run = wide ? match_any<std::uint64_t> : match_any<std::uint32_t>;
}

void decode_reduce(Decoder& decoder, Op& op) {
  static constexpr Named<Handler> kUnsigned[] = {{"add", reduce<Add>},
                                                 {"min", reduce<Min<std::uint32_t>>},
                                                 {"max", reduce<Max<std::uint32_t>>},
                                                 {"and", reduce<And>},
                                                 {"or", reduce<Or>},
                                                 {"xor", reduce<Xor>}};
  static constexpr Named<Handler> kSigned[] = {
      {"add", reduce<Add>}, {"min", reduce<Min<std::int32_t>>}, {"max", reduce<Max<std::int32_t>>}};
  decoder.expect_operands(3, 3);
  op.d = decoder.destination(0, RegisterClass::k32);
  refuse_sink(decoder, op);
  op.a = decoder.source(1, RegisterClass::k32);
  decode_members(decoder, op, 2);
  op.run = decoder.has("s32") ? find(kSigned, decoder.choice(0)) : find(kUnsigned, decoder.choice(0));
}

/// Of all targets, ptxas takes this form for sm_100a, sm_103a and their families alone.
void decode_reduce_f32(Decoder& decoder, Op& op) {
  const std::string_view target = decoder.target();
  const bool member = target.starts_with("sm_100") || target.starts_with("sm_103");
  if (!member || !(target.ends_with('a') || target.ends_with('f')))
    decoder.refuse("needs sm_100a or sm_103a, and the module's target is " + std::string(target));
  decoder.expect_operands(3, 3);
  op.d = decoder.destination(0, RegisterClass::k32);
  refuse_sink(decoder, op);
  op.a = decoder.source(1, RegisterClass::k32);
  decode_members(decoder, op, 2);
  op.imm = (decoder.has("abs") ? kAbsolute : 0) | (decoder.has("NaN") ? kNanWins : 0);
  op.run = decoder.has("max") ? reduce_f32<true> : reduce_f32<false>;
}

void decode_elect(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = decoder.destination(0, RegisterClass::k32);
  op.e = paired_predicate(decoder);
  if (op.e == kNoSlot) decoder.refuse("lacks the predicate that it sets");
  decode_members(decoder, op, 1);
  op.run = elect;
}

void decode_active_mask(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  op.d = decoder.destination(0, RegisterClass::k32);
  refuse_sink(decoder, op);
  op.run = active_mask;
}

constexpr Form kForms[] = {
    {"shfl.sync.(up|down|bfly|idx).b32", decode_shuffle},
    {"vote.sync.(all|any|uni).pred", decode_vote},
    {"vote.sync.(ballot).b32", decode_vote},
    {"match.(any|all).sync.(b32|b64)", decode_match},
    {"redux.sync.(add|min|max).(u32|s32)", decode_reduce},
    {"redux.sync.(and|or|xor).b32", decode_reduce},
    {"redux.sync.(min|max).(abs)?.(NaN)?.f32", decode_reduce_f32},
    {"elect.sync", decode_elect},
    {"activemask.b32", decode_active_mask},
};

}  // namespace

std::span<const Form> warp_forms() { return kForms; }

}  // namespace kernelwright::emulator
