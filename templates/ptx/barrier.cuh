/// What the threads of a CTA do together: election, named barriers, register budgets. Hopper and later where it says
/// so.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// elect.sync (PTX ISA 8.0, sm_90): true in one lane of the converged warp, always the same one for the same set of
/// lanes.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected)::"memory");
  return elected != 0;
}

/// bar.sync: waits until `threads` threads (a multiple of 32) have come to barrier `id`, 0 to 15; orders their memory
/// accesses. Barrier 0 is __syncthreads()'s.
__device__ __forceinline__ void bar_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// bar.arrive: counts this warp in at barrier `id` and goes on; `threads` counts those that arrive and those that wait.
__device__ __forceinline__ void bar_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// setmaxnreg (PTX ISA 8.0, sm_90a): every warp of the warpgroup executes it, with the same count. dec gives registers
/// back to the CTA's pool, inc waits until the pool has them. Multiples of 8 in [24, 256].
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// `value`, which all lanes have. The compiler does not know that of a value from memory, and where control flow may
/// differ between lanes it keeps addresses and descriptors out of uniform registers: a branch on this one may not.
///
/// Never call uniform() behind a condition, `&&` and `?:` included. ptxas turns a short conditional block into
/// predicated instructions, and ptxas 12.9 and 13.0 then overwrite the guard of REDUX with its complement, if they need
/// both: the reduction is skipped, and its result is whatever the uniform register held (13.5 is right). No compiler
/// moves the call behind a condition: it is convergent.
__device__ __forceinline__ int uniform(int value) { return __reduce_max_sync(0xffffffff, value); }

}  // namespace kernelwright::ptx
