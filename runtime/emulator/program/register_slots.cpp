// Linear scan over live ranges, one class at a time.
#include "kernelwright/runtime/emulator/program/register_slots.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "kernelwright/runtime/emulator/program/register_liveness.h"

namespace kernelwright::emulator {
namespace {

bool is(const Instruction& instruction, std::size_t part, std::string_view text) {
  return part < instruction.parts.size() && instruction.parts[part] == text;
}

bool has_part(const Instruction& instruction, std::string_view text) {
  return std::find(instruction.parts.begin(), instruction.parts.end(), text) != instruction.parts.end();
}

/// Rounds up to the alignment of areas, and of all registers except predicates.
std::uint32_t rounded(std::uint32_t bytes) { return (bytes + 63) / 64 * 64; }

/// Assigns places from `base` on to the registers of one class that are named and not pinned. Returns the end.
std::uint32_t share_places(const std::vector<int>& by_first, const std::vector<LiveRange>& ranges, std::uint32_t each,
                           std::uint32_t base, std::vector<Slot>& slot) {
  using Busy = std::pair<int, Slot>;  // last instruction, and place
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::priority_queue<Slot, std::vector<Slot>, std::greater<>> free;  // lowest first: a small file stays in cache
  std::uint32_t end = base;
  for (const int reg : by_first) {
    const LiveRange& range = ranges[static_cast<std::size_t>(reg)];
    for (; !busy.empty() && busy.top().first < range.first; busy.pop()) free.push(busy.top().second);
    Slot place = end;
    if (free.empty()) {
      end += each;
    } else {
      place = free.top();
      free.pop();
    }
    slot[static_cast<std::size_t>(reg)] = place;
    busy.emplace(range.last, place);
  }
  return end;
}

}  // namespace

// PTX ISA, "Instruction Set": the destination comes first. An instruction that writes to memory names it by an address.
// So this lists the instructions whose first operand is a register that they read.
bool defines(const Instruction& instruction, std::size_t operand) {
  if (operand >= instruction.operands.size()) return false;
  const Operand::Kind kind = instruction.operands[operand].kind;
  if (kind != Operand::Kind::kRegister && kind != Operand::Kind::kVector && kind != Operand::Kind::kSink) return false;
  const std::string_view root = instruction.parts[0];
  if (root == "bar" || root == "barrier") return operand == 0 && has_part(instruction, "red");
  if (root == "tcgen05") {
    if (!is(instruction, 1, "ld")) return false;
    return operand == 0 || (operand == 1 && has_part(instruction, "red"));
  }
  if (root == "mbarrier")
    return operand == 0 &&
           (is(instruction, 1, "arrive") || is(instruction, 1, "arrive_drop") || is(instruction, 1, "test_wait") ||
            is(instruction, 1, "try_wait") || is(instruction, 1, "pending_count"));
  if (root == "wgmma") return operand == 0 && is(instruction, 1, "mma_async");
  if (root == "multimem") return operand == 0 && is(instruction, 1, "ld_reduce");
  static constexpr std::string_view kReadOnly[] = {"applypriority",
                                                   "bra",
                                                   "brkpt",
                                                   "brx",
                                                   "call",
                                                   "cp",
                                                   "discard",
                                                   "exit",
                                                   "fence",
                                                   "griddepcontrol",
                                                   "membar",
                                                   "nanosleep",
                                                   "pmevent",
                                                   "prefetch",
                                                   "prefetchu",
                                                   "red",
                                                   "ret",
                                                   "setmaxnreg",
                                                   "st",
                                                   "stackrestore",
                                                   "stmatrix",
                                                   "tensormap",
                                                   "trap"};
  return operand == 0 && std::find(std::begin(kReadOnly), std::end(kReadOnly), root) == std::end(kReadOnly);
}

bool reads(const Instruction& instruction, std::size_t operand) {
  return !defines(instruction, operand) || instruction.parts[0] == "wgmma";
}

bool falls_through(const Instruction& instruction) {
  const std::string_view root = instruction.parts[0];
  return instruction.guard >= 0 ||
         (root != "bra" && root != "brx" && root != "ret" && root != "exit" && root != "trap");
}

SlotMap assign_slots(const Entry& entry, const std::vector<bool>& pinned, Sharing sharing) {
  const std::size_t count = entry.registers.size();
  SlotMap map;
  map.slot.assign(count, kNoSlot);
  std::vector<LiveRange> ranges = live_ranges(entry);
  // In use throughout the entry, so that it shares with none.
  const LiveRange throughout{0, static_cast<int>(entry.instructions.size())};
  if (ranges.size() != count) ranges.assign(count, throughout);
  if (sharing == Sharing::kNo)
    for (LiveRange& range : ranges)
      if (range.first <= range.last) range = throughout;

  constexpr RegisterClass kClasses[] = {RegisterClass::k128, RegisterClass::k64, RegisterClass::k32, RegisterClass::k16,
                                        RegisterClass::kPredicate};
  std::vector<int> by_first[std::size(kClasses)];
  for (std::size_t c = 0; c < std::size(kClasses); ++c)
    for (std::size_t reg = 0; reg < count; ++reg) {
      if (entry.registers[reg] != kClasses[c]) continue;
      if (reg < pinned.size() && pinned[reg]) {
        map.slot[reg] = map.bytes;
        map.bytes += slot_bytes_of(kClasses[c]);
      } else if (ranges[reg].first <= ranges[reg].last) {
        by_first[c].push_back(static_cast<int>(reg));
      }
    }
  map.bytes = map.pinned_bytes = rounded(map.bytes);
  // The registers of a function share places among themselves only: its caller's keep their values during the call.
  std::vector<int> ends;  // of the registers of the entry, and of each function behind them
  for (const LinkedFunction& function : entry.functions) ends.push_back(function.first_register);
  ends.push_back(static_cast<int>(count));
  for (std::size_t c = 0; c < std::size(kClasses); ++c) {
    auto rest = by_first[c].begin();
    for (const int end : ends) {
      std::vector<int> own(rest, std::lower_bound(rest, by_first[c].end(), end));
      rest += static_cast<std::ptrdiff_t>(own.size());
      std::stable_sort(own.begin(), own.end(), [&](int a, int b) {
        return ranges[static_cast<std::size_t>(a)].first < ranges[static_cast<std::size_t>(b)].first;
      });
      map.bytes = share_places(own, ranges, slot_bytes_of(kClasses[c]), map.bytes, map.slot);
    }
  }
  map.bytes = rounded(map.bytes);
  return map;
}

}  // namespace kernelwright::emulator
