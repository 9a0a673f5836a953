/// Copies that the hardware makes by itself: bulk copies of bytes and of boxes of tensors (PTX ISA 8.0, sm_90). One
/// thread issues each. Loads complete on an mbarrier by bytes; stores and reductions are counted in groups of the
/// thread that issued them. Coordinates are elements, innermost first; what lies outside the tensor is zero, or not
/// stored, and counts its bytes all the same.
#pragma once

#include "hopper.cuh"

namespace kernelwright::test {

__device__ __forceinline__ uint64_t map_address(const TensorMap& map) { return reinterpret_cast<uint64_t>(&map); }

/// Fetches the 128 bytes of the map ahead of its first use.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map_address(map)) : "memory");
}

// ---- loads of boxes ----

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
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

/// The box lands at the same offset in every CTA whose bit is set in `ctas`, and completes on the barrier at the same
/// offset there.
__device__ __forceinline__ void cp_async_bulk_tensor_2d_multicast(uint32_t shared, const TensorMap& map, int x, int y,
                                                                  uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(barrier), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_3d(uint32_t shared, const TensorMap& map, int x, int y, int z,
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d(uint32_t shared, const TensorMap& map, const int (&at)[4],
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared),
      "l"(map_address(map)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_5d(uint32_t shared, const TensorMap& map, const int (&at)[5],
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared),
      "l"(map_address(map)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier)
      : "memory");
}

/// Brings a box into the L2. Nothing waits for it.
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor_2d(const TensorMap& map, int x, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map_address(map)), "r"(x), "r"(y)
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

/// Adds a box to the tensor, element by element and in no order among several such.
__device__ __forceinline__ void cp_reduce_async_bulk_tensor_2d_add(const TensorMap& map, int x, int y,
                                                                   uint32_t shared) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                   map_address(map)),
               "r"(x), "r"(y), "r"(shared)
               : "memory");
}

// ---- bytes: addresses and sizes are multiples of 16 ----

__device__ __forceinline__ void cp_async_bulk_load(uint32_t shared, const void* global, uint32_t bytes,
                                                   uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

/// As the multicast of boxes.
__device__ __forceinline__ void cp_async_bulk_load_multicast(uint32_t shared, const void* global, uint32_t bytes,
                                                             uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
      "[%3], %4;" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "h"(ctas)
      : "memory");
}

/// Shared memory of this CTA to that of another, completing on a barrier of the other. `to` and `barrier` from mapa.
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

/// Waits until at most kPending of this thread's groups have still to read their source: it may then be overwritten.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace kernelwright::test
