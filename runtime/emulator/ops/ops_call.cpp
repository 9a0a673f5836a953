// Calls: of the module's functions, and of those that every CUDA device brings (CUDA C++ Programming Guide, "Formatted
// Output", "Dynamic Global Memory Allocation", "Assertion"). Values are passed in the local memory of frames.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/device_heap.h"
#include "kernelwright/runtime/emulator/machine/device_print.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/program/linker.h"

namespace kernelwright::emulator {
namespace {

/// Argument `i` of a call, as a lane passes it. op.list has the places of arguments in local memory.
template <class T>
T argument(Warp& warp, const Op& op, int lane, std::size_t i) {
  T value;
  std::memcpy(&value, local_place(warp, lane, warp.lanes<std::uint32_t>(op.list[i])[lane], sizeof value), sizeof value);
  return value;
}

template <class T>
void set_result(Warp& warp, const Op& op, int lane, T value) {
  if (op.d == kNoSlot) return;
  std::memcpy(local_place(warp, lane, warp.lanes<std::uint32_t>(op.d)[lane], sizeof value), &value, sizeof value);
}

Step call_printf(Warp& warp, const Op& op, LaneMask lanes) {
  std::string& all = warp.cta->cluster->printed;
  for_each_lane(lanes, [&](int lane) {
    const Printed printed = print_for_lane(warp, lane, argument<std::uint64_t>(warp, op, lane, 0),
                                           argument<std::uint64_t>(warp, op, lane, 1));
    all.append(printed.text, 0, kMostPrinted - std::min(kMostPrinted, all.size()));
    set_result(warp, op, lane, printed.arguments);
  });
  return Step::kNext;
}

Step call_malloc(Warp& warp, const Op& op, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    set_result(warp, op, lane, warp.launch->heap->allocate(argument<std::uint64_t>(warp, op, lane, 0)));
  });
  return Step::kNext;
}

Step call_free(Warp& warp, const Op& op, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) { warp.launch->heap->free(argument<std::uint64_t>(warp, op, lane, 0)); });
  warp.last_allocation = {};  // its block may be the freed one
  return Step::kNext;
}

Step call_assertfail(Warp& warp, const Op& op, LaneMask lanes) {
  const int lane = first_lane(lanes);
  const auto text = [&](std::size_t i) { return text_at(warp, lane, argument<std::uint64_t>(warp, op, lane, i)); };
  throw Fault(fmt::format("the kernel trapped: {}:{}: {}: Assertion `{}` failed", text(1),
                          argument<std::uint32_t>(warp, op, lane, 2), text(3), text(0)),
              HazardRule::kTrap);
}

struct BuiltIn {
  std::string_view name;
  std::size_t result_bytes;  // 0: none
  std::vector<std::size_t> argument_bytes;
  Handler run;
};

const std::vector<BuiltIn>& built_in() {
  static const auto& kAll = *new std::vector<BuiltIn>{
      {"vprintf", 4, {8, 8}, call_printf},
      {"malloc", 8, {8}, call_malloc},
      {"free", 0, {8}, call_free},
      {"__assertfail", 0, {8, 8, 4, 8, 8}, call_assertfail},
  };
  return kAll;
}

void decode_built_in(Decoder& decoder, const BuiltIn& function, Op& op) {
  decoder.take(0);
  const auto bytes = [&](const Operand& place) { return decoder.entry().variables.at(place.name).bytes; };
  const std::vector<Operand>&results = decoder.operands()[1].elements, &arguments = decoder.operands()[2].elements;
  const bool alike =
      results.size() == (function.result_bytes != 0 ? 1 : 0) &&
      std::ranges::all_of(results, [&](const Operand& r) { return bytes(r) == function.result_bytes; }) &&
      std::ranges::equal(arguments, function.argument_bytes, {}, bytes);
  if (!alike) decoder.refuse(fmt::format("{} is declared with other parameters than CUDA's", function.name));
  decoder.take(1);
  const auto list = decoder.vector(2, RegisterClass::k32, /*destination=*/false);
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
  if (!results.empty()) op.d = decoder.source(results[0], RegisterClass::k32);
  if (function.run == call_malloc || function.run == call_free) decoder.uses_heap();
  op.run = function.run;
}

void decode_call(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  const auto found = std::ranges::find(built_in(), decoder.operands()[0].name, &BuiltIn::name);
  if (found != built_in().end() && !decoder.calls_linked_function())
    decode_built_in(decoder, *found, op);
  else
    decoder.call(op);
}

constexpr Form kForms[] = {
    {"call.(uni)?", decode_call},
};

}  // namespace

bool is_built_in(std::string_view function) {
  return std::ranges::find(built_in(), function, &BuiltIn::name) != built_in().end();
}

std::span<const Form> call_forms() { return kForms; }

}  // namespace kernelwright::emulator
