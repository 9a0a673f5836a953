/// Gives a recording its times: a discrete-event simulation of the SMs on which its CTAs run.
///
/// The warp with the lowest time goes first. So units serve requests in the order of virtual time, and the result
/// depends only on the recording. Long work is cut into pieces, between which warps of one scheduler take turns.
#pragma once

#include "kernelwright/runtime/emulator/trace/timeline.h"
#include "kernelwright/runtime/emulator/trace/trace.h"

namespace kernelwright::emulator {

/// `machine`: the costs that the recording was made with.
Trace replay(const Recording& recording, const MachineCosts& machine);

}  // namespace kernelwright::emulator
