/// PTX ISA "mov": registers, constants, addresses, special registers; packing several registers into one, and
/// unpacking.
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

template <class T>
T same(T a) {
  return a;
}

// ---- clocks -------------------------------------------------------------------------------------------------------

/// A clock counts the warp's instructions: it never runs backward, and is the same in every run.
template <class T, int kShift>
Step run_clock(Warp& warp, const Op& op, LaneMask lanes) {
  const T now = static_cast<T>(warp.instructions >> kShift);
  assign_lanes(warp.lanes<T>(op.d), lanes, [=](int) { return now; });
  return Step::kNext;
}
struct ClockRegister {
  std::string_view name;
  RegisterClass size;
  Handler run;
};
constexpr ClockRegister kClocks[] = {
    {"%clock", RegisterClass::k32, run_clock<U32, 0>},
    {"%clock_hi", RegisterClass::k32, run_clock<U32, 32>},
    {"%clock64", RegisterClass::k64, run_clock<U64, 0>},
    {"%globaltimer", RegisterClass::k64, run_clock<U64, 0>},
    {"%globaltimer_lo", RegisterClass::k32, run_clock<U32, 0>},
    {"%globaltimer_hi", RegisterClass::k32, run_clock<U32, 32>},
};

// ---- vectors ------------------------------------------------------------------------------------------------------

/// Elements of kBits bits, low ones first, in registers of type E, to a register of type D.
template <class D, class E, int kBits>
Step run_pack(Warp& warp, const Op& op, LaneMask lanes) {
  D* d = warp.lanes<D>(op.d);
  constexpr D kMask = static_cast<D>((U64{1} << kBits) - 1);
  std::array<const E*, sizeof(D) * 8 / kBits> elements;
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = warp.lanes<E>(op.list[i]);
  for_each_lane(lanes, [&](int lane) {
    D value = 0;
    for (std::size_t i = 0; i < elements.size(); ++i)
      value = static_cast<D>(value | static_cast<D>((static_cast<D>(elements[i][lane]) & kMask) << i * kBits));
    d[lane] = value;
  });
  return Step::kNext;
}
template <class D, class E, int kBits>
Step run_unpack(Warp& warp, const Op& op, LaneMask lanes) {
  constexpr D kMask = static_cast<D>((U64{1} << kBits) - 1);
  constexpr std::size_t kCount = sizeof(D) * 8 / kBits;
  // Copied first: a destination may be the source register, or share its place.
  std::array<D, 32> source;
  std::memcpy(source.data(), warp.lanes<D>(op.a), sizeof source);
  for (std::size_t i = 0; i < kCount; ++i) {
    if (op.list[i] == kNoSlot) continue;
    assign_lanes(warp.lanes<E>(op.list[i]), lanes,
                 [&](int lane) { return static_cast<E>(source[static_cast<std::size_t>(lane)] >> i * kBits & kMask); });
  }
  return Step::kNext;
}
// 128 bits are two arrays of 64-bit halves, low halves first.
Step run_pack128(Warp& warp, const Op& op, LaneMask lanes) {
  const U64 *low = warp.lanes<U64>(op.list[0]), *high = warp.lanes<U64>(op.list[1]);
  U64* d = warp.lanes<U64>(op.d);
  for_each_lane(lanes, [&](int lane) {
    d[lane] = low[lane];
    d[lane + 32] = high[lane];
  });
  return Step::kNext;
}
Step run_unpack128(Warp& warp, const Op& op, LaneMask lanes) {
  const U64* a = warp.lanes<U64>(op.a);
  for (int half = 0; half < 2; ++half)
    if (op.list[half] != kNoSlot)
      assign_lanes(warp.lanes<U64>(op.list[half]), lanes, [&](int lane) { return a[lane + 32 * half]; });
  return Step::kNext;
}
Step run_copy128(Warp& warp, const Op& op, LaneMask lanes) {
  const U64* a = warp.lanes<U64>(op.a);
  U64* d = warp.lanes<U64>(op.d);
  for_each_lane(lanes, [&](int lane) {
    d[lane] = a[lane];
    d[lane + 32] = a[lane + 32];
  });
  return Step::kNext;
}

struct VectorForm {
  RegisterClass whole, element;
  std::size_t count;
  Handler pack, unpack;
};
constexpr VectorForm kVectors[] = {
    {RegisterClass::k16, RegisterClass::k16, 2, run_pack<U16, U16, 8>, run_unpack<U16, U16, 8>},
    {RegisterClass::k32, RegisterClass::k16, 2, run_pack<U32, U16, 16>, run_unpack<U32, U16, 16>},
    {RegisterClass::k32, RegisterClass::k16, 4, run_pack<U32, U16, 8>, run_unpack<U32, U16, 8>},
    {RegisterClass::k64, RegisterClass::k32, 2, run_pack<U64, U32, 32>, run_unpack<U64, U32, 32>},
    {RegisterClass::k64, RegisterClass::k16, 4, run_pack<U64, U16, 16>, run_unpack<U64, U16, 16>},
    {RegisterClass::k128, RegisterClass::k64, 2, run_pack128, run_unpack128},
};
const VectorForm& vector_form(const Decoder& decoder, RegisterClass whole, std::size_t count) {
  for (const VectorForm& form : kVectors)
    if (form.whole == whole && form.count == count) return form;
  decoder.refuse("packs or unpacks a number of elements that is not modelled");
}

// ---- rows ---------------------------------------------------------------------------------------------------------

template <RegisterClass kSize>
constexpr auto kCopy = lane_function<same<U32>>;
template <>
constexpr auto kCopy<RegisterClass::k16> = lane_function<same<U16>>;
template <>
constexpr auto kCopy<RegisterClass::k64> = lane_function<same<U64>>;

template <RegisterClass kSize>
void mov(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  const Operand &to = decoder.operands()[0], &from = decoder.operands()[1];
  if (!to.name.empty() && to.kind == Operand::Kind::kVector) decoder.refuse("writes a whole vector; mov.v2 and .v4 do");
  if (from.kind == Operand::Kind::kVector) {
    if (!from.name.empty()) decoder.refuse("reads the whole of " + std::string(from.name) + "; mov.v2 and .v4 do");
    const VectorForm& form = vector_form(decoder, kSize, from.elements.size());
    op.d = result(decoder, 0, kSize);
    op.list = decoder.vector(1, form.element, false).data();
    op.list_size = static_cast<std::uint8_t>(form.count);
    op.run = form.pack;
    return;
  }
  if (to.kind == Operand::Kind::kVector) {
    const VectorForm& form = vector_form(decoder, kSize, to.elements.size());
    op.list = decoder.vector(0, form.element, true).data();
    op.list_size = static_cast<std::uint8_t>(form.count);
    op.a = decoder.source(1, kSize);
    op.run = form.unpack;
    return;
  }
  for (const ClockRegister& clock : kClocks)
    if (from.kind == Operand::Kind::kSpecialRegister && from.name == clock.name) {
      if (clock.size != kSize) decoder.refuse("reads a special register of another size");
      op.d = result(decoder, 0, kSize);
      decoder.take(1);
      op.run = clock.run;
      return;
    }
  if constexpr (kSize == RegisterClass::k128) {
    op.d = result(decoder, 0, kSize);
    op.a = decoder.source(1, kSize);
    op.run = run_copy128;
  } else {
    kCopy<kSize>(decoder, op);
  }
}

// ---- mov.v2 and .v4: Op::list has the destinations, Op::list2 the sources, which may be the same registers

template <class T>
Step run_copy_vector(Warp& warp, const Op& op, LaneMask lanes) {
  const std::size_t count = op.list_size;
  T values[4][32];
  for (std::size_t i = 0; i < count; ++i) std::memcpy(values[i], warp.lanes<T>(op.list2[i]), sizeof values[i]);
  for (std::size_t i = 0; i < count; ++i)
    if (op.list[i] != kNoSlot)
      assign_lanes(warp.lanes<T>(op.list[i]), lanes, [&](int lane) { return values[i][lane]; });
  return Step::kNext;
}

template <class T>
void mov_vector(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  const auto count = static_cast<std::size_t>(decoder.choice(0)[1] - '0');
  const std::span<const Slot> to = decoder.vector(0, class_of<T>(), true),
                              from = decoder.vector(1, class_of<T>(), false);
  if (to.size() != count || from.size() != count) decoder.refuse("has vectors of another length");
  op.list = to.data();
  op.list2 = from.data();
  op.list_size = op.list2_size = static_cast<std::uint8_t>(count);
  op.run = run_copy_vector<T>;
}

Step run_copy_predicate(Warp& warp, const Op& op, LaneMask lanes) {
  warp.set_predicate(op.d, warp.predicate(op.a) ^ (op.imm ? kAllLanes : 0), lanes);
  return Step::kNext;
}
void mov_predicate(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = result(decoder, 0, RegisterClass::kPredicate);
  op.a = decoder.source(1, RegisterClass::kPredicate);
  op.imm = decoder.negated(1);
  op.run = run_copy_predicate;
}

constexpr Form kForms[] = {
    {"mov.(b16|u16|s16|f16|bf16)", mov<RegisterClass::k16>}, {"mov.(b32|u32|s32|f32)", mov<RegisterClass::k32>},
    {"mov.(b64|u64|s64|f64)", mov<RegisterClass::k64>},      {"mov.b128", mov<RegisterClass::k128>},
    {"mov.(v2|v4).(b16|u16|s16|f16|bf16)", mov_vector<U16>}, {"mov.(v2|v4).(b32|u32|s32|f32)", mov_vector<U32>},
    {"mov.(v2).(b64|u64|s64|f64)", mov_vector<U64>},         {"mov.pred", mov_predicate},
};

}  // namespace

std::span<const Form> move_forms() { return kForms; }

}  // namespace kernelwright::emulator
