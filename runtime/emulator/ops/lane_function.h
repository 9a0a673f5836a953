/// Instructions that are one function of one lane: makes a row's decode function from that function.
///
///   std::uint32_t add(std::uint32_t a, std::uint32_t b) { return a + b; }
///   constexpr Form kForms[] = {{"add.(u32|s32)", lane_function<add>}, …
///
/// Operands are d, a, b, c, … in order. Each is a register of the size of the function's result or parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/numbers/target_clones.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/program/op.h"

namespace kernelwright::emulator {

/// Bit l is lane l. With this table, loops over a predicate's bits vectorise; with shifts they do not.
inline constexpr auto kLaneBit = [] {
  struct {
    LaneMask bit[32];
  } table{};
  for (int lane = 0; lane < 32; ++lane) table.bit[lane] = LaneMask{1} << lane;
  return table;
}();

template <class T>
constexpr RegisterClass class_of() {
  return sizeof(T) <= 2 ? RegisterClass::k16 : sizeof(T) == 4 ? RegisterClass::k32 : RegisterClass::k64;
}

/// The destination register, which may not be the sink `_`.
inline Slot result(Decoder& decoder, std::size_t operand, RegisterClass size) {
  const Slot slot = decoder.destination(operand, size);
  if (slot == kNoSlot) decoder.refuse("its result goes nowhere");
  return slot;
}

namespace detail {

/// d, a, b, c and a fourth source in op.list.
template <class D, class... S>
void read_operands(Decoder& decoder, Op& op) {
  constexpr RegisterClass kSources[] = {class_of<S>()...};
  decoder.expect_operands(1 + sizeof...(S), 1 + sizeof...(S));
  op.d = result(decoder, 0, class_of<D>());
  Slot* const places[] = {&op.a, &op.b, &op.c};
  for (std::size_t i = 0; i < sizeof...(S) && i < 3; ++i) *places[i] = decoder.source(i + 1, kSources[i]);
  if constexpr (sizeof...(S) == 4) {
    const auto list = decoder.slots(1);
    list[0] = decoder.source(4, kSources[3]);
    op.list = list.data();
    op.list_size = 1;
  }
}

template <auto kFunction, class D, class... S>
struct LaneFunction {
  KERNELWRIGHT_TARGET_CLONES_FLATTEN static Step run(Warp& warp, const Op& op, LaneMask lanes) {
    D* d = warp.lanes<D>(op.d);
    return run_with(warp, op, lanes, d, static_cast<D (*)(S...)>(nullptr));
  }
  template <class A>
  static Step run_with(Warp& warp, const Op& op, LaneMask lanes, D* d, D (*)(A)) {
    const A* a = warp.lanes<A>(op.a);
    assign_lanes(d, lanes, [=](int lane) { return kFunction(a[lane]); });
    return Step::kNext;
  }
  template <class A, class B>
  static Step run_with(Warp& warp, const Op& op, LaneMask lanes, D* d, D (*)(A, B)) {
    const A* a = warp.lanes<A>(op.a);
    const B* b = warp.lanes<B>(op.b);
    assign_lanes(d, lanes, [=](int lane) { return kFunction(a[lane], b[lane]); });
    return Step::kNext;
  }
  template <class A, class B, class C>
  static Step run_with(Warp& warp, const Op& op, LaneMask lanes, D* d, D (*)(A, B, C)) {
    const A* a = warp.lanes<A>(op.a);
    const B* b = warp.lanes<B>(op.b);
    const C* c = warp.lanes<C>(op.c);
    assign_lanes(d, lanes, [=](int lane) { return kFunction(a[lane], b[lane], c[lane]); });
    return Step::kNext;
  }
  template <class A, class B, class C, class E>
  static Step run_with(Warp& warp, const Op& op, LaneMask lanes, D* d, D (*)(A, B, C, E)) {
    const A* a = warp.lanes<A>(op.a);
    const B* b = warp.lanes<B>(op.b);
    const C* c = warp.lanes<C>(op.c);
    const E* e = warp.lanes<E>(op.list[0]);
    assign_lanes(d, lanes, [=](int lane) { return kFunction(a[lane], b[lane], c[lane], e[lane]); });
    return Step::kNext;
  }

  static void decode(Decoder& decoder, Op& op) {
    read_operands<D, S...>(decoder, op);
    op.run = run;
  }
};

/// The same, smaller and slower.
template <auto kFunction, class D, class... S>
struct RareLaneFunction {
  static Step run(Warp& warp, const Op& op, LaneMask lanes) {
    const Slot slots[] = {op.a, op.b, op.c};
    run_with(warp, op.d, slots, lanes, std::index_sequence_for<S...>());
    return Step::kNext;
  }
  template <std::size_t... kSource>
  static void run_with(Warp& warp, Slot d, const Slot* slots, LaneMask lanes, std::index_sequence<kSource...>) {
    static_assert(sizeof...(S) <= 3);
    for (; lanes != 0; lanes &= lanes - 1) {
      const int lane = first_lane(lanes);
      warp.lanes<D>(d)[lane] = kFunction(warp.lanes<S>(slots[kSource])[lane]...);
    }
  }
  static void decode(Decoder& decoder, Op& op) {
    read_operands<D, S...>(decoder, op);
    op.run = run;
  }
};

template <auto kFunction, class D, class... S>
constexpr auto lane_function_of(D (*)(S...)) {
  return &LaneFunction<kFunction, D, S...>::decode;
}
template <auto kFunction, class D, class... S>
constexpr auto rare_lane_function_of(D (*)(S...)) {
  return &RareLaneFunction<kFunction, D, S...>::decode;
}

}  // namespace detail

template <auto kFunction>
inline constexpr void (*lane_function)(Decoder&, Op&) = detail::lane_function_of<kFunction>(kFunction);
/// For functions that kernels rarely use: they are not compiled several times.
template <auto kFunction>
inline constexpr void (*rare_lane_function)(Decoder&, Op&) = detail::rare_lane_function_of<kFunction>(kFunction);

}  // namespace kernelwright::emulator
