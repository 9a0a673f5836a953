#include "kernelwright/runtime/emulator/machine/warp_access.h"

#include <fmt/format.h>

#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {

void fault_of_missing_lanes(const char* instruction, LaneMask lanes) {
  throw Fault(fmt::format("{}: all 32 lanes of the warp must execute it together, and only those in {:#010x} do; "
                          "a branch, a guard or a CTA size that is no multiple of 32 keeps the others away",
                          instruction, lanes),
              HazardKind::kDivergence);
}

}  // namespace kernelwright::emulator
