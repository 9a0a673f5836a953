/// Reports of the emulator in SARIF 2.1.0, the format that code hosts and editors read.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"

namespace kernelwright::cli {

/// A report that a line of --hazard-suppressions has taken out, and the reason that the line gives.
struct SuppressedHazard {
  emulator::KernelHazard hazard;
  std::string reason;
};

/// One run with all rules of the checker. A report's place is its source line, or else its line of "KERNEL.ptx".
JsonValue sarif_of(const std::vector<emulator::KernelHazard>& hazards, const std::vector<SuppressedHazard>& suppressed);

}  // namespace kernelwright::cli
