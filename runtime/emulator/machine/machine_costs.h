/// Numbers of the emulated machine that virtual time counts with. The caller gives them: the emulator has no table of
/// machines. The defaults belong to no machine.
#pragma once

#include <cstdint>

namespace kernelwright::emulator {

/// One SM, with its share of what the SMs share.
struct MachineCosts {
  std::uint32_t wgmma_macs = 0;     // 16-bit multiply-adds per cycle, of the four tensor cores together; 0: no wgmma
  std::uint32_t mma_sync_macs = 1;  // the same for mma.sync
  std::uint32_t copy_bytes = 1;     // per cycle, between L2 and shared memory, while all SMs copy
  std::uint32_t copy_latency = 0;   // cycles of a copy, besides the cycles for its bytes
  std::uint32_t store_latency = 0;  // cycles until a bulk store has read its source
};

}  // namespace kernelwright::emulator
