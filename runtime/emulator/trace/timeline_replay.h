/// Gives a recording its times: a discrete-event simulation of the SMs that its CTAs are on.
///
/// The warp whose time is lowest goes first, so that units serve requests in the order of virtual time and the result
/// depends on nothing but the recording. Long work is cut into pieces, between which warps of one scheduler take turns.
#pragma once

#include "kernelwright/runtime/emulator/trace/timeline.h"
#include "kernelwright/runtime/emulator/trace/trace.h"

namespace kernelwright::emulator {

/// `machine` is machine_costs(recording.target) but in tests.
Trace replay(const Recording& recording, const MachineCosts& machine);

}  // namespace kernelwright::emulator
