/// What functions and calls share about values in frames. See functions.cpp.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// The class of a register that holds `bytes`, a power of two from 1 to 16.
inline RegisterClass class_of_bytes(std::uint64_t bytes) {
  constexpr RegisterClass kBySize[] = {RegisterClass::k16, RegisterClass::k16, RegisterClass::k32, RegisterClass::k64,
                                       RegisterClass::k128};
  return kBySize[__builtin_ctzll(bytes)];
}

/// Whether Reader::unique_name() made the name, for a variable of a frame. '@' is in no name of the text.
inline bool is_frame_name(std::string_view name) { return name.find('@') != std::string_view::npos; }

/// Whether one register can hold a value of `bytes`.
inline bool is_movable(std::uint64_t bytes) { return bytes <= 16 && bytes != 0 && (bytes & (bytes - 1)) == 0; }

/// An instruction with the guard and the place of `at`.
inline Instruction begin_like(const Instruction& at) {
  Instruction instruction;
  instruction.guard = at.guard;
  instruction.guard_negated = at.guard_negated;
  instruction.line = at.line;
  instruction.source = at.source;
  return instruction;
}

}  // namespace kernelwright::emulator
