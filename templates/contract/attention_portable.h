/// Shared memory of the portable attention kernels, in one place: validation and launch compute sizes from it, and the
/// kernels place data by it.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024.
struct AttentionLayout {
  int32_t queries;  // [block_m][head_dim.qk]; later the staged output, [block_m][head_dim.v]
  int32_t keys;     // slots of [block_n][head_dim.qk], 16 bits each
  int32_t values;   // slots of [block_n][head_dim.v]
  // Lies over keys and values once all are walked, if several warps own the same query rows; else empty.
  int32_t statistics;  // [num_warps_n][2][block_m] f32: row maxima, row sums
  int32_t partials;    // [block_m][head_dim.v] f32
  int32_t total;
};

constexpr int32_t align_up(int32_t value, int32_t to) { return (value + to - 1) / to * to; }
constexpr int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/// attention_portable. `slots`: num_stages, or 1 where stages are registers. `num_warps_n`: warps that own the same
/// rows.
constexpr AttentionLayout prefill_layout(int32_t block_m, int32_t block_n, int32_t depth_qk, int32_t depth_v,
                                         int32_t slots, int32_t num_warps_n) {
  AttentionLayout layout{};
  layout.queries = 0;
  layout.keys = align_up(block_m * larger(depth_qk, depth_v) * 2, 1024);
  layout.values = layout.keys + align_up(block_n * depth_qk * 2 * slots, 1024);
  layout.total = layout.values + align_up(block_n * depth_v * 2 * slots, 1024);
  layout.statistics = layout.partials = layout.keys;
  if (num_warps_n > 1) {
    layout.partials = layout.statistics + align_up(num_warps_n * 2 * block_m * 4, 1024);
    layout.total = larger(layout.total, layout.partials + block_m * depth_v * 4);
  }
  return layout;
}

/// attention_decode_portable. Each warp has its own ring: [slots][block_n / num_warps][depth] of keys, then of values.
/// An element of them has `kv_bytes` bytes; queries have 16 bits.
/// Once all keys are walked, two arrays take the place of the rings: the warps' partial outputs,
/// [num_warps][block_m][head_dim.v] f32, and their row statistics, [num_warps][1 + sums][block_m] f32.
struct DecodeLayout {
  int32_t queries;
  int32_t rings, ring_values,
      ring_bytes;                // per warp: offset of the first ring, offset of values within a ring, size of a ring
  int32_t statistics, partials;  // in place of the rings
  int32_t total;
};
constexpr DecodeLayout decode_layout(int32_t block_m, int32_t block_n, int32_t num_warps, int32_t depth_qk,
                                     int32_t depth_v, int32_t slots, int32_t kv_bytes = 2, int32_t sums = 1) {
  DecodeLayout layout{};
  const int32_t warp_keys = block_n / num_warps;
  layout.queries = 0;
  layout.rings = align_up(block_m * depth_qk * 2, 1024);
  layout.ring_values = align_up(warp_keys * depth_qk * kv_bytes * slots, 1024);
  layout.ring_bytes = layout.ring_values + align_up(warp_keys * depth_v * kv_bytes * slots, 1024);
  layout.statistics = layout.rings;
  layout.partials = layout.statistics + align_up(num_warps * (1 + sums) * block_m * 4, 1024);
  layout.total =
      larger(layout.rings + num_warps * layout.ring_bytes, layout.partials + num_warps * block_m * depth_v * 4);
  return layout;
}

/// For attention_decode_portable with stages of registers: whether heads are so wide that no tile of K and V fits into
/// the registers beside the accumulators. The kernel then loads keys when they are needed, and values after Q K^T.
constexpr bool decode_loads_late(int32_t depth_qk, int32_t depth_v) { return depth_qk + depth_v > 256; }

}  // namespace kernelwright::contract
