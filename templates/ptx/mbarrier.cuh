/// mbarriers (PTX ISA 7.0; transactions 8.0, sm_90), and the fences between the accesses of threads and of copy units.
/// Addresses are those of the shared window. With a CTA's rank in their upper bits (mapa) they reach another CTA of the
/// cluster.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

/// mbarrier.init: 8 bytes at a multiple of 8. A phase ends once `arrivals` arrivals have come and no bytes are pending.
/// One thread calls it. fence_mbarrier_init() and a barrier must follow before any other thread uses the mbarrier.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// mbarrier.inval: afterwards the memory may be used for something else. No thread may be waiting.
__device__ __forceinline__ void mbarrier_inval(uint32_t barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// fence.mbarrier_init (sm_90): orders this thread's mbarrier.init before uses by other CTAs of the cluster and by the
/// async proxy. A barrier must follow that tells the other threads.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive (PTX ISA 7.0): one arrival, release at CTA scope.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive on a barrier of any CTA of the cluster, release at CTA scope. `barrier` comes from mapa. Afterwards
/// the other CTA may write by TMA over what finished products of this CTA have read. It may not read what threads of
/// this CTA wrote: that needs mbarrier_arrive_cluster(). mbarrier_arrive_cluster() waits for the thread's memory
/// accesses (a MEMBAR of the GPU); it made a ring of four slots between two CTAs a third slower.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive on a barrier of any CTA of the cluster, release at cluster scope. `barrier` comes from mapa.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier_arrive_remote() on the barrier of CTA `rank` that lies where `barrier` lies in this CTA: mapa and arrival
/// in one statement.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 mapped; mapa.shared::cluster.u32 mapped, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [mapped]; "
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// mbarrier_arrive_cluster() on the barrier of CTA `rank` that lies where `barrier` lies in this CTA: mapa and arrival
/// in one statement.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 mapped; mapa.shared::cluster.u32 mapped, %0, %1; "
      "mbarrier.arrive.release.cluster.shared::cluster.b64 "
      "_, [mapped]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// mbarrier.arrive.expect_tx: the phase now also waits for `bytes`; then one arrival.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}

/// mbarrier.expect_tx without an arrival.
__device__ __forceinline__ void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// mbarrier.try_wait.parity: true once the phase with `parity` has completed. May return false after a hardware time
/// limit, so callers loop. In a fresh barrier, the phase with parity 1 counts as completed.
__device__ __forceinline__ bool mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}

/// As above, acquire at cluster scope: for barriers on which other CTAs arrive.
__device__ __forceinline__ bool mbarrier_try_wait_parity_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// mbarrier.test_wait.parity: as try_wait, but it never suspends the thread.
__device__ __forceinline__ bool mbarrier_test_wait_parity(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}

/// Returns once the phase with `parity` has completed.
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
  }
}

__device__ __forceinline__ void mbarrier_wait_parity_cluster(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait_parity_cluster(barrier, parity)) {
  }
}

// ---- fences between proxies ----

/// fence.proxy.async.shared::cta: orders this thread's ordinary accesses to shared memory before the async operations
/// after the fence (TMA, bulk copies, operand reads of wgmma).
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// fence.proxy.async for every state space.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

// ---- arrivals by copies of the thread ----

/// cp.async.mbarrier.arrive.noinc: one of the arrivals for which the barrier was initialised. The arrival comes once
/// all cp.async that this thread has issued are done.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace kernelwright::ptx
