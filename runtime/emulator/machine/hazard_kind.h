/// The kinds of mistakes that the machine and the checker find in a kernel, with their names in reports.
#pragma once

#include <cstdint>
#include <string_view>

namespace kernelwright::emulator {

enum class HazardKind : std::uint8_t {
  kRace,            // two accesses, at least one of them a write, without an order between them
  kLaneRace,        // a race between lanes of one warp
  kProxyFence,      // a generic write and an asynchronous access: ordered, but without a proxy fence
  kUnwritten,       // a read of shared memory that was never written
  kMbarrier,        // over-arrival, a wrong byte count, phase skew, re-init while live, init not visible
  kRegister,        // a register of a wgmma or tcgen05.ld in flight
  kOutstanding,     // asynchronous work, or arrivals, left over when a CTA exits
  kDivergence,      // an aligned instruction that some lanes or warps do not reach
  kBarrier,         // a named barrier used with different counts
  kRegisterPool,    // setmaxnreg asks for registers that the pool does not have
  kGridDependency,  // an access before griddepcontrol.wait that conflicts with the launch ahead
  kTensorMemory,    // unallocated or leaked columns, a lane that a warp cannot reach, alloc after relinquish
  kTensorFence,     // ordered, but without a tcgen05.fence or tcgen05.wait around the synchronisation
  kData,            // a length, offset or page outside the launch's tensors; the engine finds these
  kOutOfBounds,
  kDeadlock,
  kFault,  // anything else that ends a launch
};
std::string_view name_of(HazardKind kind);  // "race", "missing proxy fence"

}  // namespace kernelwright::emulator
