/// Programmatic dependent launch: a grid whose launch asks for it may start while the one ahead of it in the stream
/// ends. And cluster launch control: a CTA takes over the work of one that has not begun.
///
/// Every CTA of a kernel that may be launched so waits, or meets one of its cluster that has, whether or not it has
/// work: only then does the end of the grid say that those ahead of it have ended too, which is what the wait of the
/// grid behind it relies on. Within a CTA it is enough that one thread has waited before the others touch global
/// memory, if a barrier stands between: what the wait makes visible is visible to the grid. Reads behind it must not be
/// .nc (or __ldg): that promises bytes which nobody writes while the grid runs, and lets the compiler move a read to
/// before the wait.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// griddepcontrol.wait (sm_90): returns once the grids that this one depends on have ended and their writes are
/// visible. Does nothing in a launch without the PDL attribute. Writes need it as much as reads: the grid ahead may
/// still read what this one is to overwrite.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// griddepcontrol.launch_dependents (sm_90): lets the next grid start, once a thread of every CTA has said so or the
/// CTA has ended; its wait still covers all of this one. Does nothing unless the next launch asked for it.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- cluster launch control ----

constexpr uint32_t kCancelResponseBytes = 16, kNoBlock = 0xffffffff;

/// clusterlaunchcontrol.try_cancel (PTX ISA 8.6, sm_100), by one thread: asks that a CTA of this grid which has not
/// begun never does. The answer is written to `response`, 16 bytes at a multiple of 16, in the async proxy, and
/// completes as so many bytes on `barrier`, which the caller has armed with them. Who was refused may not ask again.
__device__ __forceinline__ void clusterlaunchcontrol_try_cancel(uint32_t response, uint32_t barrier) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(response),
      "r"(barrier)
      : "memory");
}

/// As above, by one thread of a cluster for all of it: whole clusters are cancelled, and the answer, which names a
/// cluster's first CTA, is written to that offset in every CTA and completes on the barrier at that offset there.
__device__ __forceinline__ void clusterlaunchcontrol_try_cancel_multicast(uint32_t response, uint32_t barrier) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 "
      "[%0], [%1];" ::"r"(response),
      "r"(barrier)
      : "memory");
}

/// clusterlaunchcontrol.query_cancel: blockIdx.x of the CTA that was cancelled, whose work is now the asker's; kNoBlock
/// if none was.
__device__ __forceinline__ uint32_t clusterlaunchcontrol_canceled_block(uint32_t response) {
  uint32_t block;
  asm volatile(
      "{\n"
      ".reg .b128 answer;\n"
      ".reg .pred canceled;\n"
      "ld.shared.b128 answer, [%1];\n"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 canceled, answer;\n"
      "mov.u32 %0, %2;\n"
      "@canceled clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, answer;\n"
      "}"
      : "=&r"(block)
      : "r"(response), "n"(kNoBlock)
      : "memory");
  return block;
}

}  // namespace kernelwright::ptx
