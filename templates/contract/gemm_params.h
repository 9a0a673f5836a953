/// gemm_sm90: kernel parameters and shared memory, said once for the host and the kernel.
#pragma once

#include "contract/integers.h"
#include "contract/tensor_map.h"

namespace kernelwright::contract {

/// D[m][n] = A[m][k] B[n][k]^T. Maps, innermost dimension first:
///   a  (k, m), box (64, rows of A that a CTA loads at once)    128-byte swizzle
///   b  (k, n), box (64, rows of B that a CTA loads at once)    128-byte swizzle
///   d, d_tail  (n, m), box (64, 16) and (block_n % 64, 16): what a warp stores at once    128-byte swizzle, none
struct GemmParams {
  TensorMap a, b, d;
  TensorMap d_tail;  // not read where 64 divides block_n
  int32_t m, n, k;   // elements; m, n, k > 0
  int32_t band;      // rows of tiles that are walked together: policy/tile_raster.cuh
  bool bands_of_n;   // bands of columns instead
};

constexpr int32_t kGemmSlabColumns = 64;       // of 16-bit elements: 128 bytes, a row of the swizzle's pattern
constexpr int32_t kGemmStoreRows = 16;         // of a warp
constexpr int32_t kGemmStoreSlabBytes = 2048;  // 16 rows of 128 bytes

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024.
struct GemmLayout {
  int32_t a;         // `stages` tiles of [block_m][128 bytes]
  int32_t b;         // `stages` tiles of [block_n][128 bytes]
  int32_t output;    // [math warps][store stages] slabs of 16 rows of 128 bytes
  int32_t barriers;  // [stages / k_group] full, then as many empty
  int32_t total;
};

constexpr GemmLayout gemm_layout(int32_t block_m, int32_t block_n, int32_t stages, int32_t k_group,
                                 int32_t math_warpgroups, int32_t store_stages) {
  GemmLayout layout{};
  layout.a = 0;
  layout.b = layout.a + stages * block_m * 128;
  layout.output = layout.b + stages * block_n * 128;
  layout.barriers = layout.output + math_warpgroups * 4 * store_stages * kGemmStoreSlabBytes;
  layout.total = layout.barriers + stages / k_group * 16;
  return layout;
}

}  // namespace kernelwright::contract
