/// What the threads of a CTA do together: election, named barriers, register budgets. Some functions need Hopper or
/// later, as their comments say.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// elect.sync (PTX ISA 8.0, sm_90): true in one lane of the converged warp. The same set of lanes always elects the
/// same lane.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected)::"memory");
  return elected != 0;
}

/// shfl.sync.up: `other` is the value of the lane `distance` below. Returns whether there is such a lane.
__device__ __forceinline__ bool shfl_up(uint32_t& other, uint32_t value, uint32_t distance) {
  uint32_t exists;
  asm volatile("{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, %3, 0, 0xffffffff; selp.u32 %1, 1, 0, p; }"
               : "=r"(other), "=r"(exists)
               : "r"(value), "r"(distance));
  return exists != 0;
}

/// bar.sync: waits until `threads` threads (a multiple of 32) have arrived at barrier `id`, 0 to 15, and orders their
/// memory accesses. Barrier 0 is that of __syncthreads().
__device__ __forceinline__ void bar_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// bar.arrive: this warp arrives at barrier `id` and goes on. `threads` counts the arriving and the waiting threads.
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

/// nanosleep (PTX ISA 6.3, sm_70): the thread waits for up to twice `nanoseconds`.
__device__ __forceinline__ void nanosleep(uint32_t nanoseconds) {
  asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds) : "memory");
}

/// Returns `value`, which must be equal in all lanes. The compiler does not know that a value from memory is equal in
/// all lanes. Where control flow may differ between lanes, it then keeps addresses and descriptors out of uniform
/// registers. A branch on the returned value cannot differ between lanes.
///
/// Never call uniform() behind a condition, `&&` and `?:` included. ptxas turns a short conditional block into
/// predicated instructions. If ptxas 12.9 or 13.0 needs both the guard of REDUX and its complement, it overwrites the
/// guard with the complement. The reduction is then skipped, and its result is whatever the uniform register held (13.5
/// is right). No compiler moves the call behind a condition, because the call is convergent.
__device__ __forceinline__ int uniform(int value) { return __reduce_max_sync(0xffffffff, value); }

}  // namespace kernelwright::ptx
