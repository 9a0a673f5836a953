/// The range of an entry's instructions in which each register is in use. Only register_slots.cpp includes this file.
#pragma once

#include <vector>

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// Instructions [first, last], or first > last if no instruction names the register. The range contains all
/// instructions that name the register, and all at which the register may hold a value that some lane may still read.
struct LiveRange {
  int first = 1, last = 0;
};

/// Ranges by register. Empty if the entry is so large that the analysis would take seconds; no compiler emits such an
/// entry.
std::vector<LiveRange> live_ranges(const Entry& entry);

}  // namespace kernelwright::emulator
