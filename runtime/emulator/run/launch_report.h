/// What a launch did, and how it ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/checker/hazard_report.h"

namespace kernelwright::emulator {

struct Trace;  // trace.h

struct Statistics {
  std::uint64_t warp_instructions = 0, thread_instructions = 0;
  std::uint64_t mma_operations = 0;  // by mma.sync, wgmma and tcgen05.mma; a multiply-add counts 2
  std::uint64_t copied_bytes = 0;    // by TMA and bulk copies
  double seconds = 0;
};

/// What happened in a launch. `fault` is set if the launch did not reach its end; its writes up to then stay in memory.
struct LaunchReport {
  Statistics statistics;
  std::vector<HazardReport> hazards;  // in a stable order
  bool completed = false;
  std::string fault;  // "" if completed; else a deadlock with what each warp waits for, an access out of bounds, a trap
  HazardKind fault_kind = HazardKind::kFault;  // the kind of `fault`
  std::string printed;                         // by the kernel's printf: CTAs in order, each one's text in its order
  std::shared_ptr<const Trace> trace;          // of one cluster, if options().timeline
};

}  // namespace kernelwright::emulator
