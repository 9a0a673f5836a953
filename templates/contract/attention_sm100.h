/// attention_sm100: kernel parameters, shared memory and tensor memory, in one place for the host and the kernel.
#pragma once

#include "contract/attention_params.h"
#include "contract/attention_sm90.h"
#include "contract/integers.h"
#include "contract/shared_slab.h"
#include "contract/tensor_map.h"

namespace kernelwright::contract {

/// The maps of q, k and v are those of attention_sm90 (contract/attention_sm90.h), with these differences:
///   - A box of q has the rows of one query tile, kQueryTileRows. A CTA has num_q query tiles.
///   - A slab of 8-bit elements has twice the columns.
///   - In a pair, each CTA loads half of a tile: a box of k has half of the tile's keys, and v is loaded from the CTA's
///     first column on.
///   - Where hopper_gathers_kv(), k and v are zeros.
///   - Where a part of the head is rotary, q and k hold the other part. q_rope and k_rope hold the rotary part, in 16
///     bits and the same layouts.
struct BlackwellAttentionParams {
  TensorMap q, k, v;
  TensorMap q_rope, k_rope;  // zeros without a rotary part
  int32_t rope_head_step;    // 1, or 0 if all KV heads share one rotary part
  AttentionParams attention;
};

// Warpgroups 0 and 1 compute softmax: of query tiles 0 and 1 (num_q 2), or of every other key tile (num_q 1).
// Warpgroup 2 corrects. In warpgroup 3, warp 12 multiplies, 13 loads, 14 cleans values; or 14 and 15 gather keys and
// values.
constexpr int32_t kQueryTileRows = 128;     // lanes of tensor memory: each softmax thread has a row
constexpr int32_t kBlackwellThreads = 512;  // 4 warpgroups
constexpr int32_t kTensorColumns = 512;     // of an SM, 32 bits each
constexpr int32_t kBlackwellItemSlots = 2;  // slots for answers to a CTA that asked for its next item
constexpr int32_t kScoreTiles = 2;          // accumulators of scores, and of outputs, in use at a time
constexpr int32_t kScaleSlots = 4;          // tiles of key scales in flight

/// Numbers of a key that has scales: its scores are multiplied by kKeyFactor, their exponents grow by kKeyShift, and
/// its exponentials count kKeyWeight times in sums. (An enum, not variables, which would be in every binary.)
enum KeyNumber : int32_t { kKeyFactor, kKeyShift, kKeyWeight, kKeyNumbers };

/// The parameters from which the layouts below follow. Depths are in elements, of one head.
struct BlackwellShape {
  int32_t num_q;    // query tiles of a CTA
  int32_t block_n;  // keys of a tile
  int32_t depth_qk, depth_v;
  int32_t kv_stages;     // slots of a ring
  int32_t qk_stages;     // sub-stages of a tile of K, each with its own barriers
  bool shared_ring;      // one ring whose slots hold K and V in turn
  int32_t ctas = 1;      // CTAs that share each product: with 2, each holds half of K's keys and half of V's columns
  bool gathers = false;  // threads copy K and V row by row: see hopper_gathers_kv()
  bool queued = false;   // a CTA continues with items of CTAs that have not begun
  int32_t parts = 1;     // CTAs of a cluster that each take a part of an item's keys
  int32_t element_bytes = 2;  // of q, k and v
  int32_t rope_depth = 0;     // part of depth_qk: 16-bit columns that come from their own tensors
  bool token_scales = false;  // scales differ by key
  int32_t mma_stages = 1;     // sub-stages of a tile of V; if K and V share a slot, equal to qk_stages
  int32_t swizzle_bytes = 128;
  bool splits_keys = false;  // keys may be cut into parts that are merged in the workspace
};

/// Keys of a tile of K that lie in one CTA's shared memory.
constexpr int32_t blackwell_keys(const BlackwellShape& shape) { return shape.block_n / shape.ctas; }
/// Columns of V that one product makes, over all its CTAs. tcgen05.mma takes a multiple of 16, or of 32 for a pair.
constexpr int32_t blackwell_output_columns(const BlackwellShape& shape) {
  return align_up(shape.depth_v, 16 * shape.ctas);
}
/// Slabs per row in a CTA's shared memory: of q and k without the rotary part, of q and k with it, and of v.
constexpr int32_t plain_slabs(const BlackwellShape& shape) {
  return slabs_of(shape.depth_qk - shape.rope_depth, shape.element_bytes, shape.swizzle_bytes);
}
constexpr int32_t qk_slabs(const BlackwellShape& shape) {
  return plain_slabs(shape) + slabs_of(shape.rope_depth, 2, shape.swizzle_bytes);
}
constexpr int32_t v_slabs(const BlackwellShape& shape) {
  return slabs_of(blackwell_output_columns(shape) / shape.ctas, shape.element_bytes, shape.swizzle_bytes);
}

constexpr int32_t kPartColumns = 32, kPartRowBytes = kPartColumns * 4;  // of a part's output (split keys), f32
constexpr int32_t kPartSlabBytes = kQueryTileRows * kPartRowBytes;
constexpr int32_t kOutputBatchBytes = 16 * 4;  // of a row, that leave tensor memory at a time

/// Bytes of a row of queries in shared memory. These are the row's slabs, but at least what the output needs that
/// leaves through them: an output batch, or a slab of a part.
constexpr int32_t query_row_bytes(const BlackwellShape& shape) {
  const int32_t queries = qk_slabs(shape) * slab_width(shape.swizzle_bytes);
  return larger(queries, shape.splits_keys ? kPartRowBytes : kOutputBatchBytes);
}
/// Columns of tensor memory that an output takes.
constexpr int32_t output_columns(int32_t depth_v) { return align_up(depth_v, 64); }

/// Columns of tensor memory, all 128 lanes. Probabilities lie over the scores from which they are computed: two in a
/// column, or four of 8 bits.
struct BlackwellColumns {
  int32_t scores[kScoreTiles];   // [block_n] each
  int32_t outputs[kScoreTiles];  // [output_columns()] each
  int32_t used;
  int32_t allocated;  // a power of two
};

constexpr BlackwellColumns blackwell_columns(const BlackwellShape& shape) {
  BlackwellColumns columns{};
  const int32_t v = output_columns(shape.depth_v);
  for (int32_t i = 0; i < kScoreTiles; ++i) {
    columns.scores[i] = i * shape.block_n;
    columns.outputs[i] = kScoreTiles * shape.block_n + i * v;
  }
  columns.used = kScoreTiles * (shape.block_n + v);
  columns.allocated = 32;
  while (columns.allocated < columns.used) columns.allocated *= 2;
  return columns;
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024. A tile is [slabs][rows][slab bytes],
/// each slab swizzled. An output leaves through the slot of its queries, in several passes if its rows are longer. The
/// output of a part of split keys is f32 and leaves in slabs of 32 columns
/// (kernels/attention/sm100/attention_sm100_parts.cuh).
struct BlackwellLayout {
  int32_t queries;      // num_q slots of [kQueryTileRows][query_row_bytes()]
  int32_t keys;         // num_kv_stages slots
  int32_t values;       // num_kv_stages slots; a shared ring: equal to keys, its slots hold K and V in turn
  int32_t factors;      // [kScoreTiles][kQueryTileRows] f32: factors by which the rows of an output are multiplied
  int32_t statistics;   // num_q 1: [kScoreTiles][maximum, sum][kQueryTileRows] f32 of the accumulators that are merged
  int32_t published;    // parts > 1: [maximum, sum][kQueryTileRows] f32 of this CTA's part, for the other CTAs
  int32_t gather_rows;  // if threads gather keys: addresses of rows, [1 tile of K, 2 of V][block_n]
  int32_t items;        // if queued: kBlackwellItemSlots answers of 16 bytes
  int32_t key_scales;   // with token scales: [kScaleSlots][kKeyNumbers][block_n] f32
  int32_t barriers;     // mbarriers, in the order of blackwell_barriers()
  int32_t tensor_address;  // 4 bytes: address at which the tensor memory begins
  int32_t arrived_last;    // 4 bytes: whether this CTA merges the parts of split keys
  int32_t total;
  // Bytes of one slot. A slot is whole groups of eight rows, so that the swizzle pattern begins anew in each slot.
  int32_t query_slot, key_slot, value_slot;
};

/// Indices of mbarriers, [kScoreTiles] each unless a comment says otherwise, with the threads that arrive. In a pair,
/// only the first CTA waits on some barriers: queries, probabilities, clean values, and full slots of the rings. Both
/// CTAs arrive on these barriers of the first CTA.
struct BlackwellBarriers {
  int32_t query_full;         // TMA
  int32_t score_full;         // tcgen05.commit: scores can be read
  int32_t probability_ready;  // 4 warps of softmax: the first part of P is ready; 4 of correction: O is rescaled
  int32_t probability_rest;   // 4 warps of softmax: the rest of P is ready
  int32_t factor_full;        // 4 warps of softmax
  int32_t output_full;        // tcgen05.commit: the product with V has been added
  int32_t values_landed;      // [1] the multiplying thread: the first V has landed and must be cleaned
  int32_t values_clean;       // [1] the cleaning warp: rows of the first V that are no keys of the sequence are zeros
  int32_t scale_full, scale_empty;  // with token scales [kScaleSlots]: the scaling warp; 4 warps of each softmax
  int32_t key_full, key_empty;      // as hopper_barriers()
  int32_t value_full, value_empty;
  // If queued:
  int32_t query_empty;  // warps of softmax that stored the output of a slot of queries
  int32_t item_full;    // [kBlackwellItemSlots] an answer has landed
  int32_t item_empty;   // [kBlackwellItemSlots] all warps have read it
  int32_t count;
};

constexpr BlackwellBarriers blackwell_barriers(const BlackwellShape& shape) {
  BlackwellBarriers barriers{};
  const int32_t keys = shape.kv_stages * shape.qk_stages, values = shape.kv_stages * shape.mma_stages;
  barriers.query_full = 0;
  barriers.score_full = barriers.query_full + kScoreTiles;
  barriers.probability_ready = barriers.score_full + kScoreTiles;
  barriers.probability_rest = barriers.probability_ready + kScoreTiles;
  barriers.factor_full = barriers.probability_rest + kScoreTiles;
  barriers.output_full = barriers.factor_full + kScoreTiles;
  barriers.values_landed = barriers.output_full + kScoreTiles;
  barriers.values_clean = barriers.values_landed + 1;
  barriers.scale_full = barriers.values_clean + 1;
  barriers.scale_empty = barriers.scale_full + (shape.token_scales ? kScaleSlots : 0);
  barriers.key_full = barriers.scale_empty + (shape.token_scales ? kScaleSlots : 0);
  barriers.key_empty = barriers.key_full + keys;
  barriers.value_full = shape.shared_ring ? barriers.key_full : barriers.key_empty + keys;
  barriers.value_empty = shape.shared_ring ? barriers.key_empty : barriers.value_full + values;
  barriers.query_empty = barriers.value_empty + (shape.shared_ring ? keys : values);
  barriers.item_full = barriers.query_empty + (shape.queued ? kScoreTiles : 0);
  barriers.item_empty = barriers.item_full + (shape.queued ? kBlackwellItemSlots : 0);
  barriers.count = barriers.item_empty + (shape.queued ? kBlackwellItemSlots : 0);
  return barriers;
}

constexpr BlackwellLayout blackwell_layout(const BlackwellShape& shape) {
  BlackwellLayout layout{};
  const int32_t slab = slab_width(shape.swizzle_bytes);
  const int32_t key_bytes = blackwell_keys(shape) * qk_slabs(shape) * slab;
  const int32_t value_bytes = shape.block_n * v_slabs(shape) * slab;
  layout.query_slot = kQueryTileRows * query_row_bytes(shape);
  layout.key_slot = shape.shared_ring ? larger(key_bytes, value_bytes) : key_bytes;
  layout.value_slot = shape.shared_ring ? layout.key_slot : value_bytes;
  layout.queries = 0;
  layout.keys = layout.queries + shape.num_q * layout.query_slot;
  layout.values = shape.shared_ring ? layout.keys : layout.keys + shape.kv_stages * layout.key_slot;
  layout.factors = layout.values + shape.kv_stages * layout.value_slot;
  // With one query tile, the part of the second accumulator leaves through the slots of the keys.
  if (shape.splits_keys && shape.num_q == 1) layout.factors = larger(layout.factors, layout.keys + kPartSlabBytes);
  layout.statistics = layout.factors + kScoreTiles * kQueryTileRows * 4;
  layout.published = layout.statistics + (shape.num_q == 1 ? kScoreTiles * 2 * kQueryTileRows * 4 : 0);
  layout.gather_rows = layout.published + (shape.parts > 1 ? 2 * kQueryTileRows * 4 : 0);
  layout.items = layout.gather_rows + (shape.gathers ? 3 * shape.block_n * 8 : 0);
  layout.key_scales = layout.items + (shape.queued ? kBlackwellItemSlots * 16 : 0);
  layout.barriers = layout.key_scales + (shape.token_scales ? kScaleSlots * kKeyNumbers * shape.block_n * 4 : 0);
  layout.tensor_address = layout.barriers + blackwell_barriers(shape).count * kBarrierBytes;
  layout.arrived_last = layout.tensor_address + 4;
  layout.total = align_up(layout.arrived_last + 4, 16);
  return layout;
}

}  // namespace kernelwright::contract
