/// What the PTX parser and the slot assignment promise to readers of a module, checked on one module. For fuzzers and
/// mutation tests, whose inputs have no other expected result.
#pragma once

#include <cstddef>
#include <string>

#include "kernelwright/runtime/emulator/program/linker.h"
#include "kernelwright/runtime/emulator/program/register_slots.h"
#include "kernelwright/runtime/emulator/ptx/module.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"

namespace kernelwright::test {

namespace detail {

inline std::string broken_by_operand(const emulator::Operand& operand, const emulator::Entry& entry,
                                     const emulator::SlotMap& map, int depth) {
  using Kind = emulator::Operand::Kind;
  if (depth > 2) return "an operand nests deeper than an address, its vector and their elements";
  if ((operand.kind == Kind::kRegister) != (operand.reg >= 0)) return "a register without an index, or the reverse";
  for (const int reg : {operand.reg, operand.paired}) {
    if (reg < 0) continue;
    if (reg >= static_cast<int>(entry.registers.size())) return "a register outside the entry's";
    if (map.slot[static_cast<std::size_t>(reg)] >= map.bytes) return "a register without a place";
  }
  const bool holds = operand.kind == Kind::kAddress || operand.kind == Kind::kVector;
  const bool may_be_empty = operand.kind == Kind::kVector && depth == 0;  // results and arguments of a call
  if (holds == operand.elements.empty() && !may_be_empty) return "elements where none belong, or the reverse";
  for (const emulator::Operand& element : operand.elements)
    if (auto broken = broken_by_operand(element, entry, map, depth + 1); !broken.empty()) return broken;
  return "";
}

/// The same for one entry that was read, or that link_functions() made.
inline std::string broken_by_entry(const emulator::Entry& entry) {
  using namespace emulator;
  const SlotMap map = assign_slots(entry, {});
  if (map.slot.size() != entry.registers.size() || map.bytes % 64 != 0) return "a slot map of the wrong size";
  if (entry.instructions.empty() || falls_through(entry.instructions.back())) return "an entry falls off its end";
  for (const Instruction& instruction : entry.instructions) {
    if (instruction.parts.empty() || instruction.line < 1) return "an instruction without an opcode or a line";
    if (instruction.guard >= 0 &&
        entry.registers.at(static_cast<std::size_t>(instruction.guard)) != RegisterClass::kPredicate)
      return "a guard that is no predicate";
    for (const int target : instruction.targets)
      if (target < 0 || target >= static_cast<int>(entry.instructions.size())) return "a branch out of its entry";
    for (const Operand& operand : instruction.operands)
      if (auto broken = broken_by_operand(operand, entry, map, 0); !broken.empty()) return broken;
  }
  return "";
}

/// The same for an entry with the functions that it calls, if they can be linked.
inline std::string broken_by_linked(const emulator::Module& module, const emulator::Entry& entry) {
  try {
    const auto linked = emulator::link_functions(module, entry);
    return linked ? broken_by_entry(*linked) : "";
  } catch (const emulator::PtxError&) {
    return "";
  }
}

}  // namespace detail

/// The first promise that `module` breaks, or "".
inline std::string broken_promise(const emulator::Module& module) {
  using namespace emulator;
  for (const Entry& entry : module.entries) {
    if (!module.find(entry.name)) return "an entry is not found by its name";
    if (!entry.refusal.empty()) {
      if (entry.refusal_line < 1 || entry.refusal.size() > 1000) return "a refusal without a line, or a long one";
      if (!entry.instructions.empty() || !entry.registers.empty()) return "a refused entry that holds something";
      continue;
    }
    if (auto broken = detail::broken_by_entry(entry); !broken.empty()) return broken;
    if (auto broken = detail::broken_by_linked(module, entry); !broken.empty()) return broken;
  }
  for (const auto& [name, variable] : module.variables)
    if (variable.space != StateSpace::kShared && variable.offset + variable.bytes > module.global_image.size())
      return "a variable outside the image";
  return "";
}

}  // namespace kernelwright::test
