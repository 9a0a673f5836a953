/// The functions in which the lanes of a warp stand.
///
/// A function's registers have their places in the warp's register file, one set for all its activations. If a lane
/// calls a function in which it stands already, the call keeps the lane's registers of that function, and the return
/// restores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernelwright/runtime/emulator/machine/warp.h"

namespace kernelwright::emulator {

/// One activation of a function by one lane.
struct CallFrame {
  std::uint32_t return_pc = 0;
  std::uint32_t call = 0;           // index into Program::calls
  int function = 0;                 // index into Program::functions
  std::uint64_t base = 0, end = 0;  // of the frame, in the lane's local memory
  std::vector<std::byte> kept;      // the lane's registers of the activation before; empty: there is none
};

struct CallStacks {
  std::vector<CallFrame> lanes[32];  // innermost last
  std::size_t kept_bytes = 0;        // of all frames
};

/// The lanes that go on together, and where.
struct Passage {
  LaneMask lanes = 0;
  std::uint32_t pc = 0;
};

/// Those of `lanes` that call the same function as the first one enter it. Throws Fault for an address that is no
/// function's, and for a stack that overflows.
Passage enter_function(Warp& warp, const Op& op, LaneMask lanes, std::uint32_t return_pc);
/// Those of `lanes` that return to the same place as the first one leave their function.
Passage leave_function(Warp& warp, LaneMask lanes);

}  // namespace kernelwright::emulator
