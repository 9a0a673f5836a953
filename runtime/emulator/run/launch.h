/// The machine: runs the CTAs of one launch to their end, or to the first fault.
///
/// Lanes of a warp that stand at different instructions are its splits. The ready split with the lowest instruction
/// runs first, and splits that meet are merged. So lanes come together again where control flow joins, without an
/// analysis of the control flow. Aligned instructions wait until all live lanes stand there. A split whose turn ends
/// goes behind the others, so that a lane that spins on a sibling lets the sibling go on (Volta's forward progress).
///
/// Warps take turns. On each host thread, clusters run one after another. If a cluster does not end soon, clusters run
/// next to each other, up to as many as would be resident on the device. Persistent kernels whose clusters wait for one
/// another need this.
#pragma once

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/names.h"
#include "kernelwright/runtime/emulator/run/launch_report.h"
#include "kernelwright/runtime/emulator/run/options.h"

namespace kernelwright::emulator {

class HazardLog;

/// Runs `launch`. `log` may be null: then the checker is off. Never throws for a fault of the kernel: the report has
/// it.
LaunchReport run_launch(const Launch& launch, const Options& options, const LaunchNotes* notes, HazardLog* log);

}  // namespace kernelwright::emulator
