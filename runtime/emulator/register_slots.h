/// Where an entry's virtual registers go in a warp's register file.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/runtime/emulator/ptx_module.h"

namespace kernelwright::emulator {

struct SlotMap {
  std::vector<std::uint32_t> slot;  // by virtual register: bytes from the beginning of the file
  std::uint32_t bytes = 0;          // of the file
  std::uint32_t pinned_bytes = 0;   // at its beginning: the pinned registers, which share with nobody
};

SlotMap assign_slots(const Entry& entry, const std::vector<bool>& pinned);

}  // namespace kernelwright::emulator
