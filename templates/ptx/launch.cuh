/// Programmatic dependent launch: a grid whose launch asks for it may start while the grid ahead of it in the stream
/// ends. Cluster launch control: a CTA takes over the work of a CTA that has not begun.
///
/// In a kernel that may be launched this way, every CTA must wait, even if it has no work. A CTA may instead
/// synchronise with a CTA of its cluster that has waited. Only then does the end of this grid imply that the grids
/// ahead of it have ended. The wait of the next grid relies on this.
///
/// Within a CTA one waiting thread is enough, if a barrier stands before the other threads touch global memory: what
/// the wait makes visible is visible to the whole grid. Reads after the wait must not be .nc (or __ldg). A .nc read
/// promises that no thread writes the bytes while the grid runs, and the compiler may move it to before the wait.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// griddepcontrol.wait (sm_90): returns once the grids on which this grid depends have ended and their writes are
/// visible. Does nothing in a launch without the PDL attribute. Writes must come after the wait as well: the grid ahead
/// may still read what this grid overwrites.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// griddepcontrol.launch_dependents (sm_90): lets the next grid start, once in every CTA a thread has called it or the
/// CTA has ended. The next grid's wait still covers all of this grid. Does nothing unless the next launch asked for it.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- cluster launch control ----

constexpr uint32_t kCancelResponseBytes = 16, kNoBlock = 0xffffffff;

/// clusterlaunchcontrol.try_cancel (PTX ISA 8.6, sm_100), by one thread: asks to cancel a CTA of this grid that has not
/// begun. The answer, 16 bytes, is written to `response` (a multiple of 16) in the async proxy. It completes 16 bytes
/// on `barrier`, which the caller has armed with them. After a refusal, the CTA may not ask again.
__device__ __forceinline__ void clusterlaunchcontrol_try_cancel(uint32_t response, uint32_t barrier) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(response),
      "r"(barrier)
      : "memory");
}

/// As above, by one thread for the whole cluster: whole clusters are cancelled. The answer names the first CTA of a
/// cluster. It is written at the offset of `response` in every CTA, and completes on the barrier at the offset of
/// `barrier` there.
__device__ __forceinline__ void clusterlaunchcontrol_try_cancel_multicast(uint32_t response, uint32_t barrier) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 "
      "[%0], [%1];" ::"r"(response),
      "r"(barrier)
      : "memory");
}

/// clusterlaunchcontrol.query_cancel: blockIdx.x of the cancelled CTA, whose work the asking CTA must now do; kNoBlock
/// if no CTA was cancelled.
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
