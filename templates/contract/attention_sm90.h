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
/// v are zeros: threads copy rows by the addresses and strides of `attention`. Where k and v have 8 bits and q has 16,
/// their maps have elements of 8 bits and raw_swizzle_bytes(): a box has the same columns and half the bytes. Where q
/// becomes two terms, k has swizzle_of_stored_keys() instead. Where all have 8 bits, so have the maps' elements. V in
/// columns is (key of a page, depth, head, page), and a box is (column_slab_bytes(), all of the depth, 1, 1), with a
/// swizzle of its own.
struct HopperAttentionParams {
  TensorMap q, k, v;
  AttentionParams attention;
  int32_t num_items;  // query tiles (those of all CTAs of a cluster count as one) x heads x batch
  int32_t m_chunk;    // consecutive tiles of one (batch, head) pair: see policy/item_walk.cuh
  // A word of the workspace, used by policy/item_queue.cuh. Any initial value is valid. Null unless the scheduler is
  // kQueued.
  uint64_t* queue;
};

/// Where a part of the head is rotary, q and k hold the other part. q_rope and k_rope hold the rotary part in the same
/// layouts and element type, with boxes of as many rows.
struct HopperRotaryParams : HopperAttentionParams {
  TensorMap q_rope, k_rope;
  int32_t rope_head_step;  // 1, or 0 if all KV heads share one rotary part
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

// The warps 1 to 3 make operands of what TMA brings to a ring of raw tiles, and write them to the slots that products
// read. Under 16-bit queries they convert fp8 keys and values. Under fp8 queries they transpose values: both operands
// of an fp8 product have k innermost, and keys are the k of P V.
enum : int32_t {  // not variables, which would be in every binary
  kConvertingWarps = 3,
  kSumRows = 8,  // rows of ones behind a transposed V: their products are the sums of probabilities
};
/// The swizzle of a raw tile whose converted rows have `swizzle_bytes`: its slabs have as many columns, of half the
/// bytes. `swizzle_bytes` is 32 at least.
constexpr int32_t raw_swizzle_bytes(int32_t swizzle_bytes) { return swizzle_bytes > 32 ? swizzle_bytes / 2 : 0; }
/// Slabs of a bf16 query's row that becomes two terms of 8 bits, each half of the row. A term is whole steps of a
/// product, so narrow slabs are even in number.
constexpr int32_t slabs_of_terms(int32_t depth, int32_t swizzle_bytes) {
  const int32_t slabs = slabs_of(depth, 2, swizzle_bytes);
  return swizzle_bytes > kStepBytes ? slabs : align_up(slabs, 2);
}
/// The swizzle of keys that such terms are multiplied by. Their rows have as many bytes as a term: the same slabs, or
/// slabs of half the bytes where a term ends within a slab.
constexpr int32_t swizzle_of_stored_keys(int32_t depth, int32_t swizzle_bytes) {
  return slabs_of_terms(depth, swizzle_bytes) % 2 == 0 ? swizzle_bytes : raw_swizzle_bytes(swizzle_bytes);
}
/// Slots of raw tiles, two steps of them: K and V in turn, or V alone. Large tiles last long, and one step does.
constexpr int32_t raw_slots(int32_t depth, bool with_keys) { return depth > 128 || !with_keys ? 2 : 4; }
/// Keys of a raw tile: all of a tile's or, of the largest V, half of them. Halves leave room for two slots of Q, and
/// one arrives while warps transpose the other. Rows of other swizzles are transposed in other pieces.
constexpr int32_t raw_keys(int32_t depth, int32_t block_n, int32_t swizzle_bytes, bool with_keys) {
  return !with_keys && block_n == 128 && depth > 192 && swizzle_bytes == 128 ? block_n / 2 : block_n;
}
/// Columns of a group of fp8 products with V, whose sums a thread holds beside the output: all of them, or as many as
/// registers are left for.
constexpr int32_t group_columns(int32_t depth_v) { return depth_v <= 128 ? depth_v : depth_v == 192 ? 64 : 32; }
/// The sums of probabilities come with the last group, and the others are as wide.
constexpr int32_t group_width(int32_t depth_v) { return group_columns(depth_v) + kSumRows; }
/// Columns of a product that the output itself sums: those of V, and the sums of probabilities where one instruction
/// has room for both.
constexpr int32_t summed_columns(int32_t depth_v) { return depth_v + kSumRows <= 256 ? depth_v + kSumRows : depth_v; }
/// Whether the upper halves of sums of runs lie in shared memory: beside a third math warpgroup, registers have no
/// room.
constexpr bool halves_in_shared(int32_t math_warpgroups) { return math_warpgroups > 2; }
/// Whether groups take the registers of scores, one after the other. A step is then `one_product` after the other, and
/// a group is as wide as the scores: ptxas keeps products of different widths in different registers. The sums of
/// probabilities are a product of their own.
constexpr bool shares_scores(bool one_product, int32_t block_n, int32_t depth_v) {
  return one_product && block_n >= 64 && depth_v % block_n == 0;
}

/// Whether both tiles of registers of groups that take turns lie in the registers of scores: each in a half of them.
/// Otherwise the second tile is behind those registers.
constexpr bool parts_lie_in_scores(int32_t block_n) { return block_n >= 128; }
/// The columns of such a group.
constexpr int32_t turn_columns(int32_t block_n) { return parts_lie_in_scores(block_n) ? block_n / 2 : block_n; }
/// Whether groups may take turns between two tiles of registers. A group multiplies in one of them while the sums of
/// the group before, in the other, are added to the output.
constexpr bool parts_take_turns(bool one_product, int32_t block_n, int32_t depth_v) {
  return shares_scores(one_product, block_n, depth_v) && depth_v >= 2 * turn_columns(block_n);
}

/// V in columns, [depth][keys] within a page: bytes of keys in a row of a slab. A slab is a box of all depths within
/// one page, and as wide as such boxes of a tile may be.
constexpr int32_t column_slab_bytes(int32_t block_n, int32_t page_size) {
  const int32_t box = hopper_kv_box_rows(block_n, page_size);
  return box % 128 == 0 ? 128 : box % 64 == 0 ? 64 : box % 32 == 0 ? 32 : kPieceBytes;
}
/// The swizzle of such slabs.
constexpr int32_t column_swizzle_bytes(int32_t slab) { return slab > kPieceBytes ? slab : 0; }
/// The slabs that converted columns have, an operand of 16 bits: as wide as the tile's keys allow, 32 bytes at least.
constexpr int32_t converted_slab_bytes(int32_t block_n) { return column_slab_bytes(2 * block_n, 0); }

/// The swizzle of a transposed V, whose rows are the keys of a tile: the widest whose slabs they fill.
constexpr int32_t transposed_swizzle_bytes(int32_t block_n, int32_t swizzle_bytes) {
  const int32_t filled = block_n % 128 == 0 ? 128 : block_n % 64 == 0 ? 64 : 32;
  return swizzle_bytes < filled ? swizzle_bytes : filled;
}

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
  int32_t halves;       // upper halves of sums of runs, 8-aligned: [4 sums of a thread][math thread] of 8 bytes
  int32_t total;
  // Bytes of one slot. A slot is whole groups of eight rows, so that the swizzle pattern begins anew in each slot.
  int32_t query_slot, key_slot, value_slot;
};

/// Indices of mbarriers: `full` of every slot, then `empty` of every slot, ring after ring.
struct HopperBarriers {
  int32_t query_full, query_empty;  // [q_stages] each
  int32_t key_full, key_empty;      // [kv_stages * qk_stages], slot * qk_stages + sub-stage
  int32_t value_full, value_empty;  // split: [kv_stages * mma_stages], likewise; shared: equal to the keys'
  int32_t gather_posted;            // if threads gather keys or make operands: [q_stages + 2]
  int32_t count;
};

/// What the layout of a hopper kernel follows from. `qk_stages`: sub-stages in which a tile of K arrives. `mma_stages`:
/// those of V, or of both if the ring is shared.
struct HopperShape {
  int32_t block_m, block_n, depth_qk, depth_v, q_stages, kv_stages;
  int32_t qk_stages = 1;
  bool shared_ring = false;
  bool gathers = false;  // threads copy K and V row by row
  int32_t mma_stages = 1, swizzle_bytes = 128;
  int32_t q_bytes = 2, kv_bytes = 2;  // of an element
  int32_t column_slab = 0;            // V in columns: column_slab_bytes()
  int32_t rope_depth = 0;             // part of depth_qk: columns that come from tensors of their own
  bool keeps_halves = false;          // upper halves of sums of runs lie here
  bool splits_q = false;              // a 16-bit query becomes two terms of fp8, whose products read K as it is stored

  /// Whether warps convert V, and whether they convert K.
  constexpr bool converts() const { return kv_bytes < q_bytes; }
  constexpr bool converts_keys() const { return converts() && !splits_q; }
  /// Whether products are of fp8.
  constexpr bool narrow() const { return q_bytes == 1; }
  constexpr bool transposes() const { return narrow() && column_slab == 0; }
  /// Whether an operand of V is [depth][keys]. Otherwise it is [keys][depth].
  constexpr bool keys_inside() const { return narrow() || column_slab > 0; }
  /// Whether threads make operands of K or V.
  constexpr bool restages() const { return converts() || transposes(); }
  /// Slots of messages to the threads that gather or make operands.
  constexpr int32_t told() const { return gathers || restages() ? q_stages + 2 : 0; }
  /// Columns of q and k in shared memory that a product reads. A rotary part begins with a slab of its own, behind the
  /// zeros that fill up the last slab of the plain part.
  constexpr int32_t score_depth() const {
    return rope_depth == 0 ? depth_qk : row_of(depth_qk - rope_depth, q_bytes) / q_bytes + rope_depth;
  }
  /// Bytes of a row of an operand: of q and k, of v as it lies in memory, and of v as [depth][keys].
  constexpr int32_t qk_row() const {
    return splits_q ? slabs_of_terms(depth_qk, swizzle_bytes) * slab_width(swizzle_bytes)
                    : row_of(score_depth(), q_bytes);
  }
  constexpr int32_t v_row() const { return row_of(depth_v, q_bytes); }
  constexpr int32_t keys_row() const { return block_n * q_bytes; }
  /// The swizzle of K as an operand, and the bytes of its row.
  constexpr int32_t key_swizzle() const {
    return splits_q ? swizzle_of_stored_keys(depth_qk, swizzle_bytes) : swizzle_bytes;
  }
  constexpr int32_t key_row() const { return splits_q ? qk_row() / 2 : qk_row(); }

 private:
  constexpr int32_t row_of(int32_t elements, int32_t bytes) const {
    return slabs_of(elements, bytes, swizzle_bytes) * slab_width(swizzle_bytes);
  }
};

constexpr HopperBarriers hopper_barriers(const HopperShape& shape) {
  HopperBarriers barriers{};
  const int32_t keys = shape.kv_stages * shape.qk_stages, values = shape.kv_stages * shape.mma_stages;
  barriers.query_full = 0;
  barriers.query_empty = shape.q_stages;
  barriers.key_full = 2 * shape.q_stages;
  barriers.key_empty = barriers.key_full + keys;
  barriers.value_full = shape.shared_ring ? barriers.key_full : barriers.key_empty + keys;
  barriers.value_empty = shape.shared_ring ? barriers.key_empty : barriers.value_full + values;
  barriers.gather_posted = barriers.value_empty + (shape.shared_ring ? keys : values);
  barriers.count = barriers.gather_posted + shape.told();
  return barriers;
}

constexpr HopperLayout hopper_layout(const HopperShape& shape) {
  HopperLayout layout{};
  const int32_t qk = shape.qk_row(), v = shape.v_row();
  layout.query_slot = shape.block_m * qk;
  layout.key_slot = shape.block_n * (shape.shared_ring ? larger(qk, v) : shape.key_row());
  layout.value_slot = shape.shared_ring     ? layout.key_slot
                      : shape.keys_inside() ? (shape.depth_v + (shape.narrow() ? kSumRows : 0)) * shape.keys_row()
                                            : shape.block_n * v;
  layout.queries = 0;
  layout.keys = layout.queries + shape.q_stages * layout.query_slot;
  layout.values = shape.shared_ring ? layout.keys : layout.keys + shape.kv_stages * layout.key_slot;
  layout.barriers = layout.values + shape.kv_stages * layout.value_slot;
  layout.items = align_up(layout.barriers + hopper_barriers(shape).count * kBarrierBytes, 16);
  layout.gathers = layout.items + (shape.q_stages + 2) * kItemBytes;
  layout.gather_rows = layout.gathers + (shape.gathers ? shape.told() * kGatherBytes : 0);
  layout.halves = layout.gather_rows + (shape.gathers ? 3 * shape.block_n * 8 : 0);
  layout.total = layout.halves + (shape.keeps_halves ? shape.block_m * (shape.depth_v + kSumRows) * 2 : 0);
  return layout;
}

/// Where warps make operands: the ring of raw tiles, behind the rest. Otherwise it has no slots.
struct HopperRawRing {
  int32_t slots, slot;                // how many, and the bytes of one
  int32_t keys;                       // of a slot
  int32_t tiles, full, empty, total;  // offsets of the slots, of a barrier each, and of the end of shared memory
};
constexpr HopperRawRing hopper_raw_ring(const HopperShape& shape) {
  HopperRawRing ring{};
  ring.total = hopper_layout(shape).total;
  if (!shape.restages()) return ring;
  ring.slots = raw_slots(larger(shape.depth_qk, shape.depth_v), shape.converts_keys());
  ring.keys = raw_keys(larger(shape.depth_qk, shape.depth_v), shape.block_n, shape.swizzle_bytes, shape.converts());
  ring.slot = ring.keys * (shape.transposes()      ? shape.v_row()
                           : shape.converts_keys() ? larger(shape.qk_row(), shape.v_row()) / 2
                                                   : shape.v_row() / 2);
  ring.full = align_up(ring.total, kBarrierBytes);
  ring.empty = ring.full + ring.slots * kBarrierBytes;
  ring.tiles = align_up(ring.empty + ring.slots * kBarrierBytes, 1024);
  ring.total = ring.tiles + ring.slots * ring.slot;
  return ring;
}

}  // namespace kernelwright::contract
