/// The machine: runs the CTAs of one launch to their end, or to the first fault.
///
/// Lanes of a warp that stand at different instructions are its splits. The ready split with the lowest instruction
/// runs first and splits that meet are merged, so that lanes come together again where control flow joins, without an
/// analysis of it; aligned instructions wait until all live lanes stand there. A split whose turn ends goes behind the
/// others, so that a lane that spins on a sibling lets it go on (Volta's forward progress). Warps take turns; clusters
/// run one after another on each thread, and next to each other once one of them does not end soon, up to as many as
/// would be resident on the device: persistent kernels that wait for one another need that.
#pragma once

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

class HazardLog;

/// Runs `launch`. `log` may be null: then nothing is checked. Never throws for what the kernel does: that is in the
/// report.
LaunchReport run_launch(const Launch& launch, const Options& options, const LaunchNotes* notes, HazardLog* log);

}  // namespace kernelwright::emulator
