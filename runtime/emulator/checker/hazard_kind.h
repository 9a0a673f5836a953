/// What can be wrong with a kernel, as reports name it.
#pragma once

#include <cstdint>
#include <string_view>

namespace kernelwright::emulator {

enum class HazardKind : std::uint8_t {
  kRace,            // two accesses, at least one a write, and no order between them
  kLaneRace,        // the same between lanes of one warp
  kProxyFence,      // ordered, but no proxy fence between a generic write and an asynchronous access
  kUnwritten,       // a read of shared memory that nothing wrote
  kMbarrier,        // over-arrival, a wrong byte count, phase skew, re-init while live, init not visible
  kRegister,        // a register of a wgmma or tcgen05.ld in flight
  kOutstanding,     // asynchronous work, or arrivals, left when a CTA exits
  kDivergence,      // an aligned instruction that not all lanes or warps reach alike
  kBarrier,         // a named barrier used with different counts
  kRegisterPool,    // setmaxnreg asks for what is not there
  kGridDependency,  // an access before griddepcontrol.wait that the launch ahead conflicts with
  kTensorMemory,    // unallocated or leaked columns, a lane that a warp cannot reach, alloc after relinquish
  kTensorFence,     // ordered, but no tcgen05.fence or tcgen05.wait around the synchronisation
  kData,            // a length, offset or page that the launch's tensors do not have; found by the engine
  kOutOfBounds,
  kDeadlock,
  kFault,  // anything else that ends a launch
};
std::string_view name_of(HazardKind kind);  // "race", "missing proxy fence"

}  // namespace kernelwright::emulator
