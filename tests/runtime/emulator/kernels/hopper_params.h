/// What host and device agree on for the kernels beside this file: their parameters, the same bytes on both sides, and
/// their shared memory. A kernel's variant comes as constants in a spec.h, as for the product's kernels.
#pragma once

#include "contract/integers.h"

namespace kernelwright::test {

/// A tensor map as the device's backend encodes it.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/// gemm_sm90: D[m][n] = A[m][k] B^T, with B [n][k], or [k][n] where the variant says MN-major.
struct GemmParams {
  TensorMap a;   // box {64, block_m}
  TensorMap b;   // box {64, block_n / cluster}; MN-major {64, 64}
  TensorMap d;   // box {64, rows of a warpgroup}; bf16 output
  float* d_f32;  // [m][n]; f32 output
  int32_t m, n, k;
};

/// What a variant of gemm_sm90 chooses.
struct GemmVariant {
  int rows_per_warpgroup;  // 64 or 128; two warpgroups make block_m
  int block_n;             // 64, 128, 192, 256
  int stages;              // of the load ring
  int cluster;             // 1, or 2 CTAs one above the other that share their tiles of B
  bool b_mn_major;
  bool output_f32;
  int mma_in_flight;          // 0, or 1: a slot is released one step late
  bool cluster_barrier_exit;  // how a cluster parts: all wait for all, or the producer drains its ring
};

/// Bytes of shared memory: ring of A and B, staged D, barriers.
constexpr uint32_t gemm_ring_bytes(const GemmVariant& variant) {
  return static_cast<uint32_t>(variant.stages * (2 * variant.rows_per_warpgroup + variant.block_n) * 128);
}
constexpr uint32_t gemm_staging_bytes(const GemmVariant& variant) {
  return variant.output_f32 ? 0u : static_cast<uint32_t>(2 * variant.rows_per_warpgroup * variant.block_n * 2);
}
constexpr uint32_t gemm_shared_bytes(const GemmVariant& variant) {
  return gemm_ring_bytes(variant) + gemm_staging_bytes(variant) + static_cast<uint32_t>(variant.stages) * 16;
}

}  // namespace kernelwright::test
