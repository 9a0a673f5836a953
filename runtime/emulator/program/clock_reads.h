/// Clocks as sources of other instructions than `mov`: ptxas takes `cvt.u32.u64 %r1, %clock64`.
#pragma once

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// Puts a `mov` of the clock into a new register before each such instruction, under the instruction's guard.
void split_clock_reads(Module& module);

}  // namespace kernelwright::emulator
