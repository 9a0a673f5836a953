/// What host and device share for the kernels beside this file: their parameters, the same bytes on both sides, and
/// their shared memory. A spec.h gives a kernel's variant as constants, as for the product's kernels.
#pragma once

#include "contract/integers.h"
#include "contract/tensor_map.h"

namespace kernelwright::test {

using contract::TensorMap;

/// gemm_sm90: D[m][n] = A[m][k] B^T, with B [n][k], or [k][n] where the variant says MN-major.
struct GemmParams {
  TensorMap a;   // box {64, block_m}
  TensorMap b;   // box {64, block_n / cluster}; MN-major {64, 64}
  TensorMap d;   // box {64, rows of a warpgroup}; bf16 output
  float* d_f32;  // [m][n]; f32 output
  int32_t m, n, k;
};

constexpr int kGemmThreads = 384;  // a warpgroup that loads, two that multiply

/// The choices of a variant of gemm_sm90.
struct GemmVariant {
  int rows_per_warpgroup;  // 64 or 128; two warpgroups make block_m
  int block_n;             // 64, 128, 192, 256
  int stages;              // of the load ring
  int cluster;             // 1, or 2 CTAs one above the other that share their tiles of B
  bool b_mn_major;
  bool output_f32;
  int mma_in_flight;          // 0, or 1: a slot is released one step late
  bool cluster_barrier_exit;  // how a cluster ends: all CTAs wait for all, or the producer drains its ring
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

/// attention_sm90: O = softmax(scale Q K^T + bias) V for each of batch * heads; q, o [batch_heads][q_len][head_dim] and
/// k, v [batch_heads][kv_len][head_dim] in bf16. A CTA has 128 queries of one head: blockIdx.x counts those, y the
/// heads.
struct AttentionParams {
  TensorMap q;        // box {64, 64, 1}
  TensorMap k, v;     // box {64, block_n, 1}
  const float* bias;  // [batch_heads][bias_stride], added to each score; -inf from kv_len on
  void* o;
  int32_t q_len, kv_len;
  int32_t bias_stride;  // kv_len rounded up to block_n
  float scale_log2;     // scale * log2(e)
};

constexpr int kAttentionThreads = 384;  // a warpgroup that loads, two of 64 queries each
constexpr int kAttentionBlockM = 128;

/// The choices of a variant of attention_sm90.
struct AttentionVariant {
  int head_dim;  // 64 or 128
  int block_n;   // keys of a step: 64 or 128
  int stages;    // of the rings of K and of V
  bool causal;   // query i sees the keys up to i + kv_len - q_len
  bool overlap;  // a step's softmax runs under the product of the step before with V
};

constexpr uint32_t attention_q_bytes(const AttentionVariant& variant) {
  return static_cast<uint32_t>(kAttentionBlockM * variant.head_dim * 2);
}
/// One slot of K, or of V.
constexpr uint32_t attention_slot_bytes(const AttentionVariant& variant) {
  return static_cast<uint32_t>(variant.block_n * variant.head_dim * 2);
}
constexpr uint32_t attention_bias_bytes(const AttentionVariant& variant) {
  return static_cast<uint32_t>(variant.block_n * 4);
}
/// Q, rings of K, V and bias, barriers: two for Q, full and empty for each slot of K and of V.
constexpr uint32_t attention_shared_bytes(const AttentionVariant& variant) {
  return attention_q_bytes(variant) +
         static_cast<uint32_t>(variant.stages) *
             (2 * attention_slot_bytes(variant) + attention_bias_bytes(variant) + 4 * 8) +
         2 * 8;
}

/// kv_pipeline_sm90: the tiles of K are 256 floats, those of V 128; three warps, of which one loads.
struct KvPipelineParams {
  const float* k;        // [tiles][256]
  const float* v;        // [tiles][128]
  const int32_t* tiles;  // [items]
  float* out;            // [items][2][32]
  int32_t items;
};

constexpr int kKvPipelineThreads = 96;
constexpr int kKvPipelineBarrierBytes = 512, kKvPipelineSharedBytes = 16384;

/// The choices of a variant of kv_pipeline_sm90.
struct KvPipelineVariant {
  bool shared_ring, keys_ahead;
  int stages;
  int of_k, of_v;  // sub-stages of a tile
};

// ---- copy_sm90: one entry for each way to copy. 128 threads unless said otherwise ----

constexpr int kCopyThreads = 128;

/// bulk_copy: to[i] = from[i] + add, in chunks of kBulkChunk that pass through a ring of kBulkSlots; each CTA takes
/// every gridDim.x-th one.
constexpr int kBulkChunk = 1024, kBulkSlots = 3;
struct BulkCopyParams {
  const uint32_t* from;
  uint32_t* to;
  int32_t chunks;
  uint32_t add;
};

/// bulk_reduce: CTA b adds b * 256 + i to flat[i], and to the box of 8 rows of 32 at {x, y + 4 b} of `sums`.
struct BulkReduceParams {
  TensorMap sums;  // f32, box {32, 8}
  float* flat;     // [256]
  int32_t x, y;
};

/// cluster_exchange: four CTAs, with 256 words each in `from`. CTA r writes to `to`, one after another: what CTA r - 1
/// made of its words (3 w + rank), 8 words that CTA r + 1 sent (1000 rank + i), and all 1024 words of the cluster.
constexpr int kClusterCtas = 4, kClusterWords = 256, kSentWords = 8;
constexpr int kClusterOutputWords = kClusterWords + kSentWords + kClusterCtas * kClusterWords;
struct ClusterExchangeParams {
  const uint32_t* from;
  uint32_t* to;  // [CTA][kClusterOutputWords]
};

/// tensor_box: loads one box, writes out the bytes as they lie in shared memory, and stores the box if `store`.
struct TensorBoxParams {
  TensorMap from, to;
  uint32_t* dump;
  uint32_t bytes;  // of the box, a multiple of 16
  int32_t rank;
  int32_t at[5];
  int32_t store;  // to `to`, at the same place; ranks 2 and 3
};

/// cp_async_ring (256 threads) and cp_async_groups: to[i] = from[i] * factor[i / 4], where from[i] counts as 0 from
/// `valid` on. Chunks of kAsyncChunk words.
constexpr int kAsyncChunk = kCopyThreads * 4, kAsyncThreads = 2 * kCopyThreads;
struct AsyncCopyParams {
  const uint32_t* from;
  const uint32_t* factor;
  uint32_t* to;
  int32_t chunks, valid;
};

/// dependent_primary: middle[i] = 2 from[i] + 1; dependent_secondary, launched to overlap it: to[i] = from[i] +
/// middle[count - 1 - i].
struct DependentParams {
  const uint32_t* from;
  uint32_t* middle;
  uint32_t* to;
  int32_t count;  // a multiple of the block
};

}  // namespace kernelwright::test
