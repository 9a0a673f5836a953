/// Copies of rows that lie anywhere in a tensor of two dimensions (PTX ISA 8.6, sm_100).
///
/// tile::gather4: brings four rows from column `x` on, each as a box of one row, to places that follow each other. A
/// row that the tensor does not have, -1 too, is of zeros, and counts as bytes all the same. _pair: tma.cuh.
#pragma once

#include "contract/tensor_map.h"
#include "ptx/tma.cuh"

namespace kernelwright::ptx {

__device__ __forceinline__ void cp_async_bulk_tensor_gather4(uint32_t shared, const TensorMap& map, int x,
                                                             const int (&rows)[4], uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5, %6}], [%7];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_gather4_pair(uint32_t shared, const TensorMap& map, int x,
                                                                  const int (&rows)[4], uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes.cta_group::2 [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared),
      "l"(map_address(map)), "r"(x), "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(barrier)
      : "memory");
}

}  // namespace kernelwright::ptx
