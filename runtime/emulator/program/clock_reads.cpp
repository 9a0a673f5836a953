#include "kernelwright/runtime/emulator/program/clock_reads.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace kernelwright::emulator {
namespace {

struct Clock {
  std::string_view name;
  RegisterClass size;
};
constexpr Clock kClocks[] = {
    {"%clock", RegisterClass::k32},          {"%clock_hi", RegisterClass::k32},
    {"%clock64", RegisterClass::k64},        {"%globaltimer", RegisterClass::k64},
    {"%globaltimer_lo", RegisterClass::k32}, {"%globaltimer_hi", RegisterClass::k32},
};

const Clock* clock_of(const Operand& operand) {
  if (operand.kind != Operand::Kind::kSpecialRegister) return nullptr;
  const auto* found = std::find_if(std::begin(kClocks), std::end(kClocks),
                                   [&](const Clock& clock) { return clock.name == operand.name; });
  return found == std::end(kClocks) ? nullptr : found;
}

/// Whether a mov into one register reads the clock, which the decoder takes as it is.
bool is_plain_read(const Instruction& instruction) {
  return instruction.parts[0] == "mov" && instruction.operands.size() == 2 &&
         instruction.operands[0].kind == Operand::Kind::kRegister;
}

/// `mov` of `source` into `destination`, under the guard of `instruction`.
Instruction read_of(const Instruction& instruction, const Clock& clock, const Operand& source,
                    const Operand& destination) {
  const bool wide = clock.size == RegisterClass::k64;
  Instruction read;
  read.opcode = wide ? "mov.b64" : "mov.b32";
  read.parts = {"mov", wide ? "b64" : "b32"};
  read.guard = instruction.guard;
  read.guard_negated = instruction.guard_negated;
  read.operands = {destination, source};
  read.line = instruction.line;
  read.source = instruction.source;
  return read;
}

void split_in(std::vector<Instruction>& instructions, std::vector<RegisterClass>& registers) {
  std::vector<Instruction> split;
  std::vector<int> places;  // where each old instruction begins now
  places.reserve(instructions.size());
  for (Instruction& instruction : instructions) {
    places.push_back(static_cast<int>(split.size()));
    for (Operand& operand : instruction.operands) {
      const Clock* clock = clock_of(operand);
      if (!clock || is_plain_read(instruction)) continue;
      Operand value;
      value.kind = Operand::Kind::kRegister;
      value.reg = static_cast<int>(registers.size());
      registers.push_back(clock->size);
      split.push_back(read_of(instruction, *clock, operand, value));
      operand = value;
    }
    split.push_back(std::move(instruction));
  }
  for (Instruction& instruction : split)
    for (int& target : instruction.targets) target = places[static_cast<std::size_t>(target)];
  instructions = std::move(split);
}

bool reads_clock(const std::vector<Instruction>& instructions) {
  return std::any_of(instructions.begin(), instructions.end(), [](const Instruction& instruction) {
    return !is_plain_read(instruction) && std::any_of(instruction.operands.begin(), instruction.operands.end(),
                                                      [](const Operand& operand) { return clock_of(operand); });
  });
}

}  // namespace

void split_clock_reads(Module& module) {
  for (Entry& entry : module.entries)
    if (reads_clock(entry.instructions)) split_in(entry.instructions, entry.registers);
  for (Function& function : module.functions)
    if (reads_clock(function.instructions)) split_in(function.instructions, function.registers);
}

}  // namespace kernelwright::emulator
