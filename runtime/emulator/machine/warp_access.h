/// Shared by instructions that a whole warp executes together and whose lanes supply shared-memory addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/op.h"

namespace kernelwright::emulator {

/// Throws Fault: only `lanes` executed `instruction`.
[[noreturn]] void fault_of_missing_lanes(const char* instruction, LaneMask lanes);

inline void require_whole_warp(const char* instruction, LaneMask lanes) {
  if (lanes != kAllLanes) [[unlikely]]
    fault_of_missing_lanes(instruction, lanes);
}

/// The fast path of shared accesses. Sets offsets[lane] into `warp.cta->shared` for the first `count` lanes. Returns
/// true if op's address (a, offset) is in the CTA's own shared memory for each of them, aligned to `bytes` (a power of
/// two). False is no error: shared_place() then finds the place or names the error.
inline bool own_shared_offsets(const Warp& warp, const Op& op, int count, std::uint32_t bytes,
                               std::uint32_t (&offsets)[32]) {
  if (op.wide_address) return false;
  const auto* base = warp.lanes<std::uint32_t>(op.a);
  const std::size_t size = warp.cta->shared.size();
  if (size < kSharedBase + bytes) return false;
  const auto limit = static_cast<std::uint32_t>(size) - kSharedBase - bytes;
  const std::uint32_t to_offset = static_cast<std::uint32_t>(op.offset) - (warp.cta->rank << kRankShift);
  std::uint32_t outside = 0, low_bits = 0;
  for (int lane = 0; lane < count; ++lane) {
    const std::uint32_t offset = base[lane] + to_offset;
    offsets[lane] = offset;
    outside |= offset - kSharedBase > limit ? 1u : 0u;
    low_bits |= offset;
  }
  return outside == 0 && (low_bits & (bytes - 1)) == 0;
}

/// Performs the warp's tcgen05.ld of that number now, if it is not performed yet.
void perform_tensor_load(Warp& warp, std::uint32_t number);
/// Performs each tcgen05.ld in flight whose registers `op` reads or writes: the hardware makes a thread wait for them.
/// Another tcgen05.ld does not wait for the registers that it loads.
void perform_touched_loads(Warp& warp, const Op& op);

}  // namespace kernelwright::emulator
