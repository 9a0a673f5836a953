/// gemm_portable: kernel parameters, warps and shared memory, in one place for the host and the kernel.
#pragma once

#include "contract/gemm_groups.h"
#include "contract/gemm_launch.h"
#include "contract/integers.h"

namespace kernelwright::contract {

/// D = epilogue(A B), as GemmProblem defines it. Rows of a and b begin at multiples of 16 bytes, rows of d and c at
/// multiples of an element. Strides are in elements, from one row in memory to the next. With groups, b is a matrix for
/// each group, one behind the other; so are bias and the scales of b, and per_block the scales of a masked a. With a
/// gated epilogue, columns of the product are gates and ups in runs of 8. bias has n elements still, and d n / 2
/// columns.
struct GemmPortableParams {
  const void* a;         // [m, k], or [k, m]
  const void* b;         // [n, k], or [k, n]
  void* d;               // [m, n]
  const void* c;         // [m, n]; c and bias have dtype spec::kC
  const void* bias;      // [n]
  const float* scale_a;  // per_tensor [1], per_token [m], per_block [k / 128][scale_a_stride]
  const float* scale_b;  // per_tensor [1], per_token [n], per_block [n / 128][scale_b_stride]
  int64_t a_stride, b_stride, c_stride, d_stride, scale_a_stride, scale_b_stride;
  float alpha, beta;
  int32_t m, n, k;  // m, n > 0
  GemmLaunchParams launch;
  GemmGroupsParams groups;
};

constexpr int32_t kGemmPortableSlabBytes = 128;  // bytes of k in a slot, unless the schedule gives another number

/// Number of groups of rows into which the warps divide a tile. Warps of the same rows divide its columns.
constexpr int32_t gemm_portable_row_warps(int32_t block_m) { return block_m >= 64 ? 2 : 1; }

/// Warps of a tile, at most 8. Each has a part of at most 64 rows and 32 columns, and at least 16 columns.
constexpr int32_t gemm_portable_warps(int32_t block_m, int32_t block_n) {
  const int32_t wanted = block_m * block_n > 64 * 128 ? 8 : 4;
  const int32_t most = gemm_portable_row_warps(block_m) * (block_n / 16);
  return wanted < most ? wanted : most;
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024.
struct GemmPortableLayout {
  int32_t a;       // `stages` slabs of A
  int32_t b;       // `stages` slabs of B
  int32_t groups;  // GemmGroupTable
  int32_t total;
};
constexpr GemmPortableLayout gemm_portable_layout(int32_t block_m, int32_t block_n, int32_t stages,
                                                  int32_t slab_bytes = kGemmPortableSlabBytes, int32_t groups = 0) {
  const int32_t b = stages * block_m * slab_bytes, table = b + stages * block_n * slab_bytes;
  return {0, b, table, table + gemm_group_table(groups).total};
}

}  // namespace kernelwright::contract
