#include "kernelwright/runtime/emulator/machine/call_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

Warp::Warp() = default;
Warp::~Warp() = default;
Warp::Warp(Warp&&) noexcept = default;

namespace {

/// What the frames of a warp may keep. A GPU spills to the stack, where a thread has 512 KiB at most.
constexpr std::size_t kMostKeptBytes = std::size_t{64} << 20;

/// Copies the lane's value of each register of the function: to `kept`, or back from there.
template <bool kKeep>
void copy_registers(Warp& warp, const Program::CalledFunction& function, int lane, std::vector<std::byte>& kept) {
  std::size_t at = 0;
  const auto copy = [&](std::byte* place, std::size_t bytes) {
    if constexpr (kKeep)
      kept.insert(kept.end(), place, place + bytes);
    else
      std::memcpy(place, kept.data() + at, bytes);
    at += bytes;
  };
  const auto one = [&](Slot slot, RegisterClass size) {
    const auto l = static_cast<std::size_t>(lane);
    switch (size) {
      case RegisterClass::kPredicate: {
        auto bit = static_cast<std::byte>(warp.predicate(slot) >> lane & 1);
        copy(&bit, 1);
        if constexpr (!kKeep) warp.set_predicate(slot, bit != std::byte{0} ? kAllLanes : 0, LaneMask{1} << lane);
        break;
      }
      case RegisterClass::k16: copy(warp.registers + slot + 2 * l, 2); break;
      case RegisterClass::k32: copy(warp.registers + slot + 4 * l, 4); break;
      case RegisterClass::k64: copy(warp.registers + slot + 8 * l, 8); break;
      case RegisterClass::k128:  // two arrays, low halves first
        copy(warp.registers + slot + 8 * l, 8);
        copy(warp.registers + slot + 256 + 8 * l, 8);
        break;
    }
  };
  for (const auto& [slot, size] : function.registers) one(slot, size);
  for (const Program::FrameSlot& slot : function.frame_slots) one(slot.slot, slot.size);
}

void fill_frame_slots(Warp& warp, const Program::CalledFunction& function, int lane, std::uint64_t base) {
  for (const Program::FrameSlot& slot : function.frame_slots) {
    if (slot.size == RegisterClass::k64)
      warp.lanes<std::uint64_t>(slot.slot)[lane] = base + slot.offset;
    else
      warp.lanes<std::uint32_t>(slot.slot)[lane] = static_cast<std::uint32_t>(base + slot.offset);
  }
}

/// Copies values from `from` to `to`, which are places in two frames of a lane.
void copy_values(Warp& warp, int lane, const std::vector<Variable>& from, std::uint64_t from_base,
                 const std::vector<Variable>& to, std::uint64_t to_base) {
  std::byte* const local = warp.local.data() + warp.local.size() / 32 * static_cast<std::size_t>(lane);
  for (std::size_t i = 0; i < from.size(); ++i)
    std::memmove(local + to_base + to[i].offset, local + from_base + from[i].offset, from[i].bytes);
}

void require_alike(const Program::Call& call, const LinkedFunction& function) {
  const auto sizes = [](const Variable& a, const Variable& b) { return a.bytes == b.bytes; };
  if (!std::ranges::equal(call.actual.results, function.signature.results, sizes) ||
      !std::ranges::equal(call.actual.parameters, function.signature.parameters, sizes))
    throw Fault(
        fmt::format("a call through an address goes to {}, which has other parameters than the call's prototype",
                    function.name),
        HazardRule::kWrongCall);
}

void push_frame(Warp& warp, std::uint32_t call_index, int function_index, int lane, std::uint32_t return_pc) {
  const Program& program = *warp.launch->program;
  const Program::CalledFunction& function = program.functions[static_cast<std::size_t>(function_index)];
  const LinkedFunction& linked = *function.linked;
  std::vector<CallFrame>& stack = warp.calls->lanes[lane];
  const std::uint64_t caller_base = stack.empty() ? 0 : stack.back().base;
  const std::uint64_t top = stack.empty() ? program.entry->local_bytes : stack.back().end;
  CallFrame frame{.return_pc = return_pc, .call = call_index, .function = function_index};
  frame.base = (top + linked.frame_alignment - 1) / linked.frame_alignment * linked.frame_alignment;
  frame.end = frame.base + linked.frame_bytes;
  if (frame.end > warp.local.size() / 32)
    throw Fault(fmt::format("the stack of lane {} overflows in a call of {}: {} calls deep, and a thread has {} bytes",
                            lane, linked.name, stack.size() + 1, warp.local.size() / 32),
                HazardRule::kStackOverflow);
  if (std::ranges::any_of(stack, [&](const CallFrame& open) { return open.function == function_index; }))
    copy_registers<true>(warp, function, lane, frame.kept);
  warp.calls->kept_bytes += frame.kept.size();
  if (warp.calls->kept_bytes > kMostKeptBytes)
    throw Fault(fmt::format("the stacks of a warp overflow in a call of {}: lane {} is {} calls deep, and recursion "
                            "keeps {} MiB of registers at most",
                            linked.name, lane, stack.size() + 1, kMostKeptBytes >> 20),
                HazardRule::kStackOverflow);
  fill_frame_slots(warp, function, lane, frame.base);
  copy_values(warp, lane, program.calls[call_index].actual.parameters, caller_base, linked.signature.parameters,
              frame.base);
  stack.push_back(std::move(frame));
}

void pop_frame(Warp& warp, int lane) {
  const Program& program = *warp.launch->program;
  std::vector<CallFrame>& stack = warp.calls->lanes[lane];
  CallFrame frame = std::move(stack.back());
  stack.pop_back();
  const Program::CalledFunction& function = program.functions[static_cast<std::size_t>(frame.function)];
  copy_values(warp, lane, function.linked->signature.results, frame.base, program.calls[frame.call].actual.results,
              stack.empty() ? 0 : stack.back().base);
  if (!frame.kept.empty()) copy_registers<false>(warp, function, lane, frame.kept);
  warp.calls->kept_bytes -= frame.kept.size();
}

}  // namespace

Passage enter_function(Warp& warp, const Op& op, LaneMask lanes, std::uint32_t return_pc) {
  const Program& program = *warp.launch->program;
  const Program::Call& call = program.calls[op.imm];
  int index = call.function;
  if (index < 0) {
    const std::uint64_t* addresses = warp.lanes<std::uint64_t>(op.a);
    const std::uint64_t address = addresses[first_lane(lanes)];
    const auto found = std::ranges::find_if(
        program.functions, [&](const Program::CalledFunction& f) { return f.linked->address == address; });
    if (found == program.functions.end())
      throw Fault(fmt::format("a call of address {:#x}, where no function is", address), HazardRule::kWrongCall);
    require_alike(call, *found->linked);
    index = static_cast<int>(found - program.functions.begin());
    LaneMask alike = 0;
    for_each_lane(lanes, [&](int lane) { alike |= addresses[lane] == address ? LaneMask{1} << lane : 0; });
    lanes = alike;
  }
  if (!warp.calls) warp.calls = std::make_unique<CallStacks>();
  for_each_lane(lanes, [&](int lane) { push_frame(warp, static_cast<std::uint32_t>(op.imm), index, lane, return_pc); });
  const LinkedFunction& linked = *program.functions[static_cast<std::size_t>(index)].linked;
  return {lanes, static_cast<std::uint32_t>(linked.first_instruction)};
}

Passage leave_function(Warp& warp, LaneMask lanes) {
  const std::uint32_t pc = warp.calls->lanes[first_lane(lanes)].back().return_pc;
  LaneMask alike = 0;
  for_each_lane(lanes, [&](int lane) {
    if (warp.calls->lanes[lane].back().return_pc == pc) alike |= LaneMask{1} << lane;
  });
  for_each_lane(alike, [&](int lane) { pop_frame(warp, lane); });
  return {alike, pc};
}

}  // namespace kernelwright::emulator
