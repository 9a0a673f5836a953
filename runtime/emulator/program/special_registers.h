/// The special registers that an instruction may read as a source (PTX ISA "Special Registers"). Clocks are not among
/// them: ops_move.cpp reads those when they are asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

struct SpecialRegister {
  Special what = Special::kNumber;
  std::uint64_t value = 0;            // of SpecialSlot
  std::optional<RegisterClass> size;  // of what it is read into; empty: 32 or 64 bits
  bool fills_16_bits = false;         // these too
};

/// Empty for a name that is not modelled.
std::optional<SpecialRegister> find_special_register(std::string_view name);

}  // namespace kernelwright::emulator
