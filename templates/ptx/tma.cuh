/// Copies by the copy unit: bulk copies of bytes and of boxes of tensors (PTX ISA 8.0, sm_90). One thread issues each
/// copy. Loads complete on an mbarrier by bytes. Stores and reductions are counted in groups of the issuing thread.
/// Coordinates are elements, innermost first. Elements outside the tensor are loaded as zeros and are not stored, but
/// their bytes count. A map lives in __grid_constant__ parameters or in global memory.
#pragma once

#include "contract/integers.h"
#include "contract/tensor_map.h"

namespace kernelwright::ptx {

using contract::TensorMap;

__device__ __forceinline__ uint64_t map_address(const TensorMap& map) { return reinterpret_cast<uint64_t>(&map); }

/// Fetches the 128 bytes of the map ahead of its first use.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map_address(map)) : "memory");
}

// ---- the L2's policy: operands of the loads below that take a `policy` ----

/// createpolicy.fractional (sm_80): these lines are evicted first. For data that is read once.
__device__ __forceinline__ uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// As above: these lines are evicted last. For data that other CTAs read again.
__device__ __forceinline__ uint64_t createpolicy_evict_last() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// ---- loads of boxes ----
// _multicast: the box lands at the same offset in every CTA of the cluster whose bit is set in `ctas`. It completes on
// the barrier at the same offset there.

__device__ __forceinline__ void cp_async_bulk_tensor_1d(uint32_t shared, const TensorMap& map, int x,
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], "
      "[%3];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_2d(uint32_t shared, const TensorMap& map, int x, int y,
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_2d(uint32_t shared, const TensorMap& map, int x, int y,
                                                        uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_2d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_2d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  uint32_t barrier, uint16_t ctas, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_"
      "hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier), "h"(ctas), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                        uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3, %4}], [%5], %6;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  int z, uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4}], [%5], %6;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  int z, uint32_t barrier, uint16_t ctas,
                                                                  uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_"
      "hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(ctas), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                        int w, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                        int w, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3, %4, %5}], [%6], %7;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  int z, int w, uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4, %5}], [%6], %7;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  int z, int w, uint32_t barrier, uint16_t ctas,
                                                                  uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_"
      "hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "h"(ctas), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_5d(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                        int w, int v, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, "
      "%6}], [%7];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_5d(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                        int w, int v, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3, %4, %5, %6}], [%7], %8;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_5d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  int z, int w, int v, uint32_t barrier,
                                                                  uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_5d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  int z, int w, int v, uint32_t barrier, uint16_t ctas,
                                                                  uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_"
      "hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8, %9;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier), "h"(ctas), "l"(policy)
      : "memory");
}

// _pair (PTX ISA 8.6, sm_100a): the box lands in this CTA. It completes on a barrier of this CTA or of its peer, the
// other CTA of the tcgen05 pair, as `barrier` from mapa says. _pair_multicast: the box lands in each CTA of `ctas`. It
// completes on a barrier at the offset of `barrier` in that CTA's pair. That barrier is in the pair's first CTA if
// `barrier` is in the first CTA of its own pair, else in the second.

__device__ __forceinline__ void cp_async_bulk_tensor_2d_pair(uint32_t shared, const TensorMap& map, int x, int y,
                                                             uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_2d_pair_multicast(uint32_t shared, const TensorMap& map, int x,
                                                                       int y, uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::"
      "2 "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d_pair(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                             uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, "
      "%3, %4}], [%5];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d_pair_multicast(uint32_t shared, const TensorMap& map, int x,
                                                                       int y, int z, uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::"
      "2 "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d_pair(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                             int w, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, "
      "%3, %4, %5}], [%6];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_5d_pair(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                             int w, int v, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, "
      "%3, %4, %5, %6}], [%7];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier)
      : "memory");
}

/// Brings a box into the L2. No thread waits for it.
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor_2d(const TensorMap& map, int x, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map_address(map)), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor_3d(const TensorMap& map, int x, int y, int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map_address(map)), "r"(x),
               "r"(y), "r"(z)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor_4d(const TensorMap& map, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map_address(map)),
               "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

// ---- stores and reductions of boxes ----

__device__ __forceinline__ void cp_async_bulk_tensor_2d_store(const TensorMap& map, int x, int y, uint32_t shared) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map_address(map)),
      "r"(x), "r"(y), "r"(shared)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d_store(const TensorMap& map, int x, int y, int z,
                                                              uint32_t shared) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map_address(map)),
      "r"(x), "r"(y), "r"(z), "r"(shared)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d_store(const TensorMap& map, int x, int y, int z, int w,
                                                              uint32_t shared) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
                   map_address(map)),
               "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared)
               : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_5d_store(const TensorMap& map, int x, int y, int z, int w, int v,
                                                              uint32_t shared) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(
                   map_address(map)),
               "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(shared)
               : "memory");
}

/// Adds a box to the tensor, element by element. Several such reductions are not ordered.
__device__ __forceinline__ void cp_reduce_async_bulk_tensor_2d_add(const TensorMap& map, int x, int y,
                                                                   uint32_t shared) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                   map_address(map)),
               "r"(x), "r"(y), "r"(shared)
               : "memory");
}
__device__ __forceinline__ void cp_reduce_async_bulk_tensor_3d_add(const TensorMap& map, int x, int y, int z,
                                                                   uint32_t shared) {
  asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
                   map_address(map)),
               "r"(x), "r"(y), "r"(z), "r"(shared)
               : "memory");
}

// ---- bytes: addresses and sizes are multiples of 16 ----

__device__ __forceinline__ void cp_async_bulk_load(uint32_t shared, const void* global, uint32_t bytes,
                                                   uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void cp_async_bulk_load(uint32_t shared, const void* global, uint32_t bytes,
                                                   uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

/// Multicast, as for boxes.
__device__ __forceinline__ void cp_async_bulk_load_multicast(uint32_t shared, const void* global, uint32_t bytes,
                                                             uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
      "[%3], %4;" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "h"(ctas)
      : "memory");
}

/// Copies from this CTA's shared memory to that of another CTA, and completes on a barrier of the other CTA. `to` and
/// `barrier` come from mapa.
__device__ __forceinline__ void cp_async_bulk_to_cluster(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "r"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void cp_async_bulk_store(void* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
               : "memory");
}

/// Adds f32 values to global memory, each atomically.
__device__ __forceinline__ void cp_reduce_async_bulk_add_f32(void* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global), "r"(shared),
               "r"(bytes)
               : "memory");
}

// ---- groups ----

/// Ends this thread's group of stores and reductions.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most kPending of this thread's groups are unfinished: their writes are visible to this thread.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Waits until at most kPending of this thread's groups have still to read their source. The sources of the others may
/// then be overwritten.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace kernelwright::ptx
