/// attention_sm90: kernel parameters and shared memory, in one place for the host and the kernel.
#pragma once

#include "contract/attention_params.h"
#include "contract/attention_portable.h"
#include "contract/integers.h"
#include "contract/shared_slab.h"
#include "contract/tensor_map.h"

namespace kernelwright::contract {

/// Three operands as rank-4 tensor maps of 16-bit elements, innermost first, with the Spec's swizzle:
///   padded  (depth, token, head, batch)
///   ragged  (depth, token, head, 1), the tokens of all sequences
///   paged   (depth, token of a page, head, page): k and v
/// Token coordinates count from the first token of the sequence if padded, and from the first token of all sequences if
/// ragged. Page -1 is outside every map: its boxes arrive as zeros, with their full byte count.
///
/// With packed heads q has rank 5, (depth, head of a group, token, KV head, batch), and a box has all heads of a group.
/// A box is one slab of slab_width() (contract/shared_slab.h): (columns, rows, 1, 1). The number of rows:
///   q   block_m
///   k   block_n / cluster, a CTA's share of a tile
///   v   block_n / (mma_stages * cluster), a CTA's share of a sub-stage
/// With paged keys, a box of k or v has another number of rows: the largest divisor of this number that page_size has
/// too. See hopper_kv_box_rows().
///
/// Where the launch does not know an extent, or the extent is zero, the kernel loads nothing past the sequence's
/// length. The output is stored row by row, because a tile may end within a sequence. Where hopper_gathers_kv(), k and
/// v are zeros: threads copy rows by the addresses and strides of `attention`.
struct HopperAttentionParams {
  TensorMap q, k, v;
  AttentionParams attention;
  int32_t num_items;  // query tiles (those of all CTAs of a cluster count as one) x heads x batch
  int32_t m_chunk;    // consecutive tiles of one (batch, head) pair: see policy/item_walk.cuh
  // A word of the workspace, used by policy/item_queue.cuh. Any initial value is valid. Null unless the scheduler is
  // kQueued.
  uint64_t* queue;
};

// Warpgroup 0 loads. Warpgroup 1 + i multiplies rows [64 i, 64 i + 64) of a tile.

constexpr int32_t kItemBytes = 64;       // message about a work item, from the loading warp to the other warps
constexpr int32_t kBarrierBytes = 8;     // an mbarrier
constexpr int32_t kMinPagedBoxRows = 8;  // a smaller box costs more than its rows are worth
constexpr int32_t kGatherBytes = 16;     // message about a work item, from the loading warp to the gathering warps

constexpr int32_t kMostMmaStages = 4;  // sub-stages of a slot

/// Rows of a box of K or V, given the `rows` of a tile or sub-stage that a CTA loads. A box lies within one page.
constexpr int32_t hopper_kv_box_rows(int32_t rows, int32_t page_size) {
  int32_t a = rows, b = page_size;
  while (b != 0) {
    const int32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;  // `rows` if keys are not paged: page_size is 0
}

/// Whether pages are too small for a box of block_n, a multiple of 16. Then threads gather K and V row by row.
constexpr bool hopper_gathers_kv(int32_t page_size) { return page_size % kMinPagedBoxRows != 0; }

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024. A tile is
/// [slabs][rows][slab bytes], each slab swizzled.
struct HopperLayout {
  int32_t queries;      // q_stages slots of [block_m][padded depth]
  int32_t keys;         // kv_stages slots
  int32_t values;       // kv_stages slots; a shared ring: equal to keys, its slots hold K and V in turn
  int32_t barriers;     // mbarriers, in the order of hopper_barriers()
  int32_t items;        // q_stages + 2 slots of kItemBytes, 16-aligned: one is written ahead, one is still being stored
  int32_t gathers;      // if threads gather keys: as many slots of kGatherBytes
  int32_t gather_rows;  // if threads gather keys: addresses of rows, [1 tile of K, 2 of V][block_n]
  int32_t total;
  // Bytes of one slot. A slot is whole groups of eight rows, so that the swizzle pattern begins anew in each slot.
  int32_t query_slot, key_slot, value_slot;
};

/// Indices of mbarriers: `full` of every slot, then `empty` of every slot, ring after ring.
struct HopperBarriers {
  int32_t query_full, query_empty;  // [q_stages] each
  int32_t key_full, key_empty;      // [kv_stages * qk_stages], slot * qk_stages + sub-stage
  int32_t value_full, value_empty;  // split: [kv_stages * mma_stages], likewise; shared: equal to the keys'
  int32_t gather_posted;            // if threads gather keys: [q_stages + 2]
  int32_t count;
};

/// `qk_stages`: sub-stages in which a tile of K arrives. `mma_stages`: those of V, or of both if the ring is shared.
constexpr HopperBarriers hopper_barriers(int32_t q_stages, int32_t kv_stages, int32_t qk_stages, bool shared_ring,
                                         bool gathers = false, int32_t mma_stages = 1) {
  HopperBarriers barriers{};
  const int32_t keys = kv_stages * qk_stages, values = kv_stages * mma_stages;
  barriers.query_full = 0;
  barriers.query_empty = q_stages;
  barriers.key_full = 2 * q_stages;
  barriers.key_empty = barriers.key_full + keys;
  barriers.value_full = shared_ring ? barriers.key_full : barriers.key_empty + keys;
  barriers.value_empty = shared_ring ? barriers.key_empty : barriers.value_full + values;
  barriers.gather_posted = barriers.value_empty + (shared_ring ? keys : values);
  barriers.count = barriers.gather_posted + (gathers ? q_stages + 2 : 0);
  return barriers;
}

constexpr HopperLayout hopper_layout(int32_t block_m, int32_t block_n, int32_t depth_qk, int32_t depth_v,
                                     int32_t q_stages, int32_t kv_stages, int32_t qk_stages, bool shared_ring,
                                     bool gathers = false, int32_t mma_stages = 1, int32_t swizzle_bytes = 128) {
  HopperLayout layout{};
  const int32_t qk = padded_depth(depth_qk, swizzle_bytes), v = padded_depth(depth_v, swizzle_bytes);
  layout.query_slot = block_m * qk * 2;
  layout.key_slot = block_n * (shared_ring ? larger(qk, v) : qk) * 2;
  layout.value_slot = shared_ring ? layout.key_slot : block_n * v * 2;
  layout.queries = 0;
  layout.keys = layout.queries + q_stages * layout.query_slot;
  layout.values = shared_ring ? layout.keys : layout.keys + kv_stages * layout.key_slot;
  layout.barriers = layout.values + kv_stages * layout.value_slot;
  layout.items = align_up(
      layout.barriers +
          hopper_barriers(q_stages, kv_stages, qk_stages, shared_ring, gathers, mma_stages).count * kBarrierBytes,
      16);
  layout.gathers = layout.items + (q_stages + 2) * kItemBytes;
  layout.gather_rows = layout.gathers + (gathers ? (q_stages + 2) * kGatherBytes : 0);
  layout.total = layout.gather_rows + (gathers ? 3 * block_n * 8 : 0);
  return layout;
}

}  // namespace kernelwright::contract
