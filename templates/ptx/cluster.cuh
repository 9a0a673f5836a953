/// Thread block clusters (PTX ISA 7.8, sm_90): ranks, addresses in other CTAs, the cluster's barrier, remote stores.
#pragma once

#include "contract/integers.h"

namespace kernelwright::ptx {

__device__ __forceinline__ uint32_t cluster_ctarank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// mapa: the address in CTA `rank` of the cluster that corresponds to `address` of this CTA's shared memory.
__device__ __forceinline__ uint32_t mapa(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// ld.shared::cluster from CTA `rank`, at the place that corresponds to `address` of this CTA's shared memory. mapa and
/// load are one statement: no other code sees the mapped address.
__device__ __forceinline__ float ld_shared_cluster_f32(uint32_t address, uint32_t rank) {
  float value;
  asm volatile("{ .reg .u32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there]; }"
               : "=f"(value)
               : "r"(address), "r"(rank)
               : "memory");
  return value;
}
__device__ __forceinline__ uint32_t ld_shared_cluster_u32(uint32_t address, uint32_t rank) {
  uint32_t value;
  asm volatile("{ .reg .u32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.u32 %0, [there]; }"
               : "=r"(value)
               : "r"(address), "r"(rank)
               : "memory");
  return value;
}
/// As above, 16 bytes.
__device__ __forceinline__ void ld_shared_cluster_v4(float (&value)[4], uint32_t address, uint32_t rank) {
  asm volatile(
      "{ .reg .u32 there; mapa.shared::cluster.u32 there, %4, %5; ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, "
      "[there]; }"
      : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
      : "r"(address), "r"(rank)
      : "memory");
}

/// barrier.cluster.arrive.release: a thread that waits with acquire sees what this thread wrote. Threads of a warp may
/// arrive one by one. Every thread of the cluster must arrive, and none may exit in between.
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

/// barrier.cluster.arrive.relaxed: as above, without ordering. For exits, and for use after an own fence.
__device__ __forceinline__ void barrier_cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

__device__ __forceinline__ void barrier_cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/// Called by all threads of the kCtas CTAs of a cluster. Afterwards, each sees what the others did before.
template <int kCtas>
__device__ __forceinline__ void sync_ctas() {
  if constexpr (kCtas > 1) {
    barrier_cluster_arrive();
    barrier_cluster_wait();
  } else {
    __syncthreads();
  }
}

/// st.shared::cluster: stores 16 bytes to CTA `rank` of the cluster, at the place of `address` of this CTA's shared
/// memory. mapa and store are one statement: when they were apart, compilers were seen to address the wrong CTA.
__device__ __forceinline__ void st_shared_cluster_v4(uint32_t address, uint32_t rank, const float (&value)[4]) {
  asm volatile(
      "{ .reg .b32 mapped; mapa.shared::cluster.u32 mapped, %0, %1; st.shared::cluster.v4.f32 [mapped], {%2, %3, %4, "
      "%5}; }" ::"r"(address),
      "r"(rank), "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3])
      : "memory");
}

/// st.async (sm_90): writes `value` into any CTA of the cluster and completes 4 bytes on an mbarrier of the same CTA.
/// Both addresses come from mapa.
__device__ __forceinline__ void st_async_u32(uint32_t address, uint32_t value, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(address), "r"(value),
               "r"(barrier)
               : "memory");
}

/// As above, 16 bytes.
__device__ __forceinline__ void st_async_v4_u32(uint32_t address, const uint32_t (&value)[4], uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3]), "r"(barrier)
      : "memory");
}

}  // namespace kernelwright::ptx
