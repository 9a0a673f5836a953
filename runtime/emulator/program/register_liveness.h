/// Over which stretch of an entry's instructions each register is in use. For register_slots.cpp alone.
#pragma once

#include <vector>

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// Instructions [first, last], or first > last where no instruction names the register. It holds every instruction at
/// which some lane may have a value in the register that it may yet read, and all that name it.
struct LiveRange {
  int first = 1, last = 0;
};

/// By register. Empty if the entry is so large that finding out would take seconds: no compiler emits it.
std::vector<LiveRange> live_ranges(const Entry& entry);

}  // namespace kernelwright::emulator
