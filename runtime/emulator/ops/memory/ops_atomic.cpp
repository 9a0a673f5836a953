/// atom and red (PTX ISA "Parallel synchronisation and communication: atom, red"): read, modify and write in one step.
///
/// Lanes execute in order, and the warps of a cluster run on one host thread, so plain loads and stores are atomic.
/// Clusters that communicate through global memory are kept on one thread (Decoder::communicates). Orderings and scopes
/// need no more work on a machine where every access is visible at once.
///
/// ptxas accepts the modifiers in any order, and compilers use several orders. So the pattern accepts any sequence.
/// decode_atomic() sorts the modifiers by kind and looks up the operation and its type in kOperations.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
struct U128 {
  U64 low = 0, high = 0;
  bool operator==(const U128&) const = default;
};

// ---- the operations: apply(old, b, c, global) is the new value

struct Add {
  template <class T>
  static T apply(T old, T b, T, bool) {
    return static_cast<T>(old + b);
  }
};
struct And {
  template <class T>
  static T apply(T old, T b, T, bool) {
    return old & b;
  }
};
struct Or {
  template <class T>
  static T apply(T old, T b, T, bool) {
    return old | b;
  }
};
struct Xor {
  template <class T>
  static T apply(T old, T b, T, bool) {
    return old ^ b;
  }
};
struct Exchange {
  template <class T>
  static T apply(T, T b, T, bool) {
    return b;
  }
};
struct CompareAndSwap {
  template <class T>
  static T apply(T old, T b, T c, bool) {
    return old == b ? c : old;
  }
};
struct Increment {
  static U32 apply(U32 old, U32 b, U32, bool) { return old >= b ? 0 : old + 1; }
};
struct Decrement {
  static U32 apply(U32 old, U32 b, U32, bool) { return old == 0 || old > b ? b : old - 1; }
};
template <class Number>
struct Min {
  template <class T>
  static T apply(T old, T b, T, bool) {
    return static_cast<Number>(old) < static_cast<Number>(b) ? old : b;
  }
};
template <class Number>
struct Max {
  template <class T>
  static T apply(T old, T b, T, bool) {
    return static_cast<Number>(old) > static_cast<Number>(b) ? old : b;
  }
};

struct AddF32 {
  static float flush(float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
  }
  /// In global memory, subnormal inputs and results become zeros; in shared memory they stay (PTX ISA "atom").
  static U32 apply(U32 old, U32 b, U32, bool global) {
    float x = std::bit_cast<float>(old), y = std::bit_cast<float>(b);
    if (global) x = flush(x), y = flush(y);
    float sum = x + y;
    if (global) sum = flush(sum);
    return sum != sum ? 0x7fffffffu : std::bit_cast<U32>(sum);
  }
};
struct AddF64 {
  static U64 apply(U64 old, U64 b, U64, bool) {
    return std::bit_cast<U64>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
  }
};

// The 16-bit floats compute in f32. f32 has more than twice their mantissa plus two bits, so a sum that is rounded
// twice is rounded correctly.
struct F16 {
  static float widen(U16 code) { return f16_to_f32(code); }
  static U16 narrow(float value) { return f32_to_f16(value); }
};
struct Bf16 {
  static float widen(U16 code) { return bf16_to_f32(code); }
  static U16 narrow(float value) { return f32_to_bf16(value); }
};
template <class Format>
struct AddHalf {
  static U16 apply(U16 old, U16 b, U16, bool) { return Format::narrow(Format::widen(old) + Format::widen(b)); }
};
/// If one operand is NaN, the result is the other one; -0 is below +0.
template <class Format, bool kMax>
struct SelectHalf {
  static U16 apply(U16 old, U16 b, U16, bool) {
    const float x = Format::widen(old), y = Format::widen(b);
    if (x != x) return y != y ? U16{0x7fff} : b;
    if (y != y) return old;
    if (x == y) return kMax == std::signbit(x) ? b : old;
    return (x > y) == kMax ? old : b;
  }
};
template <class Operation>
struct Packed {
  static U32 apply(U32 old, U32 b, U32, bool global) {
    const auto half = [&](int shift) {
      return U32{Operation::apply(static_cast<U16>(old >> shift), static_cast<U16>(b >> shift), 0, global)} << shift;
    };
    return half(0) | half(16);
  }
};

// ---- the handlers

/// op.imm: the space of the address, and whether the access acquires, or releases, beyond the CTA.
enum Space : U64 { kGeneric, kGlobal, kShared };
constexpr U64 kSpaces = 3, kAcquires = 4, kReleases = 8;

struct Place {
  std::byte* host = nullptr;
  bool global = false;
};

Place find_place(Warp& warp, const Op& op, int lane, U32 bytes) {
  const U64 address = lane_address(warp, op, lane);
  Hazards* const hazards = warp.cta->cluster->hazards;
  SharedPlace shared;
  const U64 space = op.imm & kSpaces;
  if (space == kShared) {
    shared = shared_place(warp, static_cast<U32>(address), bytes);
  } else {
    const GenericPlace place =
        space == kGlobal ? GenericPlace{.host = global_place(warp, address, bytes, Access::kWrite), .global = true}
                         : generic_place(warp, lane, address, bytes, Access::kWrite);
    if (place.global) {
      if (hazards) {
        hazards->access_global(warp, lane, Access::kRead, address, bytes);
        hazards->access_global(warp, lane, Access::kWrite, address, bytes);
        const auto uses = [&](U64 orders) -> std::uint8_t {
          return kStrongUse | kAtomicUse | ((op.imm & orders) ? kOrderingUse : 0);
        };
        hazards->exchange_global(warp, lane, Access::kRead, address, bytes, uses(kAcquires));
        hazards->exchange_global(warp, lane, Access::kWrite, address, bytes, uses(kReleases));
      }
      return {place.host, true};
    }
    if (place.shared.cta == nullptr) throw Fault("an atomic operation on local memory; global and shared have them");
    if (op.list2_size > 1) throw Fault("a vector of atomic operations on shared memory; only global memory has them");
    shared = place.shared;
  }
  if (hazards) hazards->access_atomic(warp, lane, shared, bytes);
  return {shared.host, false};
}

template <class T>
T register_value(const Warp& warp, Slot slot, int lane) {
  if constexpr (std::is_same_v<T, U128>) {
    const U64* halves = warp.lanes<U64>(slot);
    return {halves[lane], halves[32 + lane]};
  } else {
    return warp.lanes<T>(slot)[lane];
  }
}

template <class T>
void set_register(Warp& warp, Slot slot, int lane, T value) {
  if constexpr (std::is_same_v<T, U128>) {
    U64* halves = warp.lanes<U64>(slot);
    halves[lane] = value.low;
    halves[32 + lane] = value.high;
  } else {
    warp.lanes<T>(slot)[lane] = value;
  }
}

/// op.list: the destinations, if any. op.list2: operands b, one for each element of the vector. op.c: the third operand
/// of cas.
template <class Operation, class T>
Step atomic(Warp& warp, const Op& op, LaneMask lanes) {
  const U32 count = op.list2_size;
  for_each_lane(lanes, [&](int lane) {
    const Place place = find_place(warp, op, lane, count * sizeof(T));
    for (U32 i = 0; i < count; ++i) {
      T old;
      std::memcpy(&old, place.host + i * sizeof(T), sizeof old);
      const T b = register_value<T>(warp, op.list2[i], lane);
      const T c = op.c == kNoSlot ? T{} : register_value<T>(warp, op.c, lane);
      const T result = Operation::apply(old, b, c, place.global);
      std::memcpy(place.host + i * sizeof(T), &result, sizeof result);
      if (op.list_size != 0 && op.list[i] != kNoSlot) set_register<T>(warp, op.list[i], lane, old);
    }
  });
  return Step::kNext;
}

// ---- the forms

struct Operation {
  std::string_view name, type;
  Handler run;
  RegisterClass size;
  std::string_view vectors;  // "" if there are none
  bool vector_only = false;
  bool returns_only = false;  // only atom has it, red does not
};
template <class Op, class T>
constexpr Operation operation(std::string_view name, std::string_view type, std::string_view vectors = {},
                              bool vector_only = false, bool returns_only = false) {
  constexpr RegisterClass kSize = sizeof(T) == 2   ? RegisterClass::k16
                                  : sizeof(T) == 4 ? RegisterClass::k32
                                  : sizeof(T) == 8 ? RegisterClass::k64
                                                   : RegisterClass::k128;
  return {name, type, atomic<Op, T>, kSize, vectors, vector_only, returns_only};
}
constexpr std::string_view kHalves = "v2 v4 v8", kWords = "v2 v4";
constexpr Operation kOperations[] = {
    operation<Add, U32>("add", "u32"),
    operation<Add, U32>("add", "s32"),
    operation<Add, U64>("add", "u64"),
    operation<AddF32, U32>("add", "f32", kWords),
    operation<AddF64, U64>("add", "f64"),
    operation<AddHalf<F16>, U16>("add", "f16", kHalves),
    operation<AddHalf<Bf16>, U16>("add", "bf16", kHalves),
    operation<Packed<AddHalf<F16>>, U32>("add", "f16x2", kWords),
    operation<Packed<AddHalf<Bf16>>, U32>("add", "bf16x2", kWords),
    operation<Min<U32>, U32>("min", "u32"),
    operation<Min<std::int32_t>, U32>("min", "s32"),
    operation<Min<U64>, U64>("min", "u64"),
    operation<Min<std::int64_t>, U64>("min", "s64"),
    operation<SelectHalf<F16, false>, U16>("min", "f16", kHalves, true),
    operation<SelectHalf<Bf16, false>, U16>("min", "bf16", kHalves, true),
    operation<Packed<SelectHalf<F16, false>>, U32>("min", "f16x2", kWords, true),
    operation<Packed<SelectHalf<Bf16, false>>, U32>("min", "bf16x2", kWords, true),
    operation<Max<U32>, U32>("max", "u32"),
    operation<Max<std::int32_t>, U32>("max", "s32"),
    operation<Max<U64>, U64>("max", "u64"),
    operation<Max<std::int64_t>, U64>("max", "s64"),
    operation<SelectHalf<F16, true>, U16>("max", "f16", kHalves, true),
    operation<SelectHalf<Bf16, true>, U16>("max", "bf16", kHalves, true),
    operation<Packed<SelectHalf<F16, true>>, U32>("max", "f16x2", kWords, true),
    operation<Packed<SelectHalf<Bf16, true>>, U32>("max", "bf16x2", kWords, true),
    operation<And, U32>("and", "b32"),
    operation<And, U64>("and", "b64"),
    operation<Or, U32>("or", "b32"),
    operation<Or, U64>("or", "b64"),
    operation<Xor, U32>("xor", "b32"),
    operation<Xor, U64>("xor", "b64"),
    operation<Increment, U32>("inc", "u32"),
    operation<Decrement, U32>("dec", "u32"),
    operation<Exchange, U32>("exch", "b32", {}, false, true),
    operation<Exchange, U64>("exch", "b64", {}, false, true),
    operation<Exchange, U128>("exch", "b128", {}, false, true),
    operation<CompareAndSwap, U16>("cas", "b16", {}, false, true),
    operation<CompareAndSwap, U32>("cas", "b32", {}, false, true),
    operation<CompareAndSwap, U64>("cas", "b64", {}, false, true),
    operation<CompareAndSwap, U128>("cas", "b128", {}, false, true),
};

/// The kinds of modifiers; an instruction has at most one of each kind.
enum Kind { kSemantics, kScope, kSpace, kOperation, kNoFlush, kVector, kType, kNumKinds };
constexpr std::string_view kModifiers[kNumKinds] = {"relaxed|acquire|release|acq_rel",
                                                    "cta|cluster|gpu|sys",
                                                    "global|shared|shared::cta|shared::cluster",
                                                    "add|min|max|and|or|xor|inc|dec|exch|cas",
                                                    "noftz",
                                                    "v2|v4|v8",
                                                    "u32|s32|u64|s64|b16|b32|b64|b128|f32|f64|f16|f16x2|bf16|bf16x2"};

/// Whether `word` is in `list`, whose words are separated by `separator`.
bool lists(std::string_view list, std::string_view word, char separator) {
  for (;;) {
    const std::size_t end = list.find(separator);
    if (list.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

std::array<std::string_view, kNumKinds> modifiers_by_kind(const Decoder& decoder) {
  std::array<std::string_view, kNumKinds> sorted;
  for (std::size_t i = 0; i < kNumKinds; ++i) {
    const std::string_view modifier = decoder.choice(i);
    if (modifier.empty()) continue;
    const auto kind = static_cast<std::size_t>(
        std::ranges::find_if(kModifiers, [&](std::string_view list) { return lists(list, modifier, '|'); }) -
        std::begin(kModifiers));
    if (!sorted[kind].empty())
      decoder.refuse("has both ." + std::string(sorted[kind]) + " and ." + std::string(modifier));
    sorted[kind] = modifier;
  }
  return sorted;
}

void decode_atomic(Decoder& decoder, Op& op, bool returns) {
  const auto modifiers = modifiers_by_kind(decoder);
  const auto row = std::ranges::find_if(kOperations, [&](const Operation& candidate) {
    return candidate.name == modifiers[kOperation] && candidate.type == modifiers[kType];
  });
  if (row == std::end(kOperations) || (row->returns_only && !returns))
    decoder.refuse("there is no such operation on such a type");
  const std::string_view semantics = modifiers[kSemantics];
  if (!returns && !semantics.empty() && semantics != "relaxed" && semantics != "release")
    decoder.refuse("red is .relaxed or .release");
  const bool half = modifiers[kType].find("f16") != std::string_view::npos;
  if (half != !modifiers[kNoFlush].empty()) decoder.refuse(".noftz belongs to the 16-bit floats, and they need it");
  const bool shared = modifiers[kSpace].starts_with("shared");
  const std::string_view vector = modifiers[kVector];
  if (vector.empty() ? row->vector_only : !lists(row->vectors, vector, ' ') || shared)
    decoder.refuse("does not come with this vector length");
  const std::size_t count = vector.empty() ? 1 : static_cast<std::size_t>(vector[1] - '0');

  const bool compares = row->name == "cas";
  const std::size_t first = returns ? 1 : 0;
  decoder.expect_operands(first + (compares ? 3 : 2), first + (compares ? 3 : 2));
  if (returns) {
    const std::span<const Slot> d = decoder.operands()[0].kind == Operand::Kind::kSink
                                        ? (decoder.take(0), std::span<const Slot>())
                                        : decoder.vector(0, row->size, true);
    if (!d.empty() && d.size() != count) decoder.refuse("has another number of destinations than its vector length");
    op.list = d.data();
    op.list_size = static_cast<std::uint8_t>(d.size());
  }
  const StateSpace space = shared                      ? StateSpace::kShared
                           : modifiers[kSpace].empty() ? StateSpace::kGeneric
                                                       : StateSpace::kGlobal;
  decoder.address(first, space, op);
  const std::span<const Slot> b = decoder.vector(first + 1, row->size, false);
  if (b.size() != count) decoder.refuse("has another number of operands than its vector length");
  op.list2 = b.data();
  op.list2_size = static_cast<std::uint8_t>(b.size());
  if (compares) op.c = decoder.source(first + 2, row->size);
  op.imm = shared ? kShared : space == StateSpace::kGlobal ? kGlobal : kGeneric;
  if (modifiers[kScope] != "cta") {
    if (semantics == "acquire" || semantics == "acq_rel") op.imm |= kAcquires;
    if (semantics == "release" || semantics == "acq_rel") op.imm |= kReleases;
  }
  if (!shared) {
    if (!op.wide_address) decoder.refuse("needs a 64-bit address");
    decoder.communicates();
  }
  op.run = row->run;
}

void decode_atom(Decoder& decoder, Op& op) { decode_atomic(decoder, op, true); }
void decode_red(Decoder& decoder, Op& op) { decode_atomic(decoder, op, false); }

/// "root.(any modifier)?.(any modifier)?…", as many as there are kinds.
std::string any_modifiers(std::string_view root) {
  std::string any;
  for (const std::string_view list : kModifiers) any += (any.empty() ? "" : "|") + std::string(list);
  std::string pattern(root);
  for (int i = 0; i < kNumKinds; ++i) pattern += ".(" + any + ")?";
  return pattern;
}

}  // namespace

std::span<const Form> atomic_forms() {
  // Never destroyed, because the decoder's table, which points to it, is not destroyed either.
  static const std::string &kAtom = *new std::string(any_modifiers("atom")),
                           &kRed = *new std::string(any_modifiers("red"));
  static const Form kForms[] = {{kAtom, decode_atom}, {kRed, decode_red}};
  return kForms;
}

}  // namespace kernelwright::emulator
