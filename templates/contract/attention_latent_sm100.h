/// attention_latent_sm100: its shared memory and tensor memory, in one place for the host and the kernel. Its
/// parameters are LatentParams.
#pragma once

#include "contract/attention_latent.h"
#include "contract/integers.h"
#include "contract/shared_slab.h"

namespace kernelwright::contract {

// Warpgroup 0 computes softmax, warpgroup 1 corrects. In warpgroup 2, warp 8 multiplies Q and keys, 9 multiplies
// probabilities and values, 10 loads keys.
constexpr int32_t kBlackwellLatentThreads = 384;
constexpr int32_t kLatentScoreTiles = 2;                      // accumulators of scores, which tiles take in turn
constexpr int32_t kLatentOutputs = 2;                         // accumulators of the output, half of its columns each
constexpr int32_t kLatentLanes = 128;                         // of tensor memory
constexpr int32_t kLatentFolds = kLatentLanes / kLatentRows;  // lanes of a row

/// Columns of tensor memory. tcgen05.mma.ws folds an accumulator of 64 rows: row r is lane r with the first half of the
/// accumulator's columns, and lane 64 + r with the second half.
struct BlackwellLatentColumns {
  int32_t scores[kLatentScoreTiles];  // [kLatentRows / kLatentFolds] each
  int32_t outputs[kLatentOutputs];    // [output_columns] each
  int32_t output_columns;
  int32_t used;
  int32_t allocated;  // a power of two
};

/// `depth_v`: of values.
constexpr BlackwellLatentColumns blackwell_latent_columns(int32_t depth_v) {
  BlackwellLatentColumns columns{};
  columns.output_columns = depth_v / kLatentOutputs / kLatentFolds;
  for (int32_t i = 0; i < kLatentScoreTiles; ++i) columns.scores[i] = i * (kLatentRows / kLatentFolds);
  for (int32_t i = 0; i < kLatentOutputs; ++i)
    columns.outputs[i] = kLatentScoreTiles * (kLatentRows / kLatentFolds) + i * columns.output_columns;
  columns.used = columns.outputs[kLatentOutputs - 1] + columns.output_columns;
  columns.allocated = 32;
  while (columns.allocated < columns.used) columns.allocated *= 2;
  return columns;
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024. A tile is [slabs][64 rows][128
/// bytes], each slab swizzled. The output leaves through the place of Q.
struct BlackwellLatentLayout {
  int32_t queries;
  int32_t keys;            // kLatentSlots slots
  int32_t probabilities;   // of one tile: one slab
  int32_t maxima;          // [2 tiles][kLatentLanes] f32: largest scores; at the end [kLatentLanes] sums
  int32_t factors;         // [2 tiles][kLatentLanes] f32: factors by which the rows of the output are multiplied
  int32_t barriers;        // in the order of blackwell_latent_barriers()
  int32_t tensor_address;  // one word: address at which the tensor memory begins
  int32_t last;            // one word: whether this CTA merges
  int32_t total;
  int32_t slot;  // bytes of a slot
};

/// Indices of mbarriers, with the threads that arrive.
struct BlackwellLatentBarriers {
  int32_t key_full, key_empty;  // of each part of each slot: TMA; tcgen05.commit, by each CTA of a cluster
  int32_t query_full;           // [1] 4 warps of softmax and 4 of correction: Q has landed
  int32_t score_full;           // [kLatentScoreTiles] tcgen05.commit: scores can be read
  int32_t score_empty;          // [kLatentScoreTiles] 4 warps of softmax: scores have been read
  int32_t factor_full;          // [kLatentScoreTiles] 4 warps of softmax
  int32_t probability_ready;    // [1] 4 warps of softmax: P is ready; 4 of correction: O is rescaled
  int32_t output_full;          // [1] tcgen05.commit: the product with V has been added
  int32_t count;
};

constexpr BlackwellLatentBarriers blackwell_latent_barriers() {
  BlackwellLatentBarriers barriers{};
  barriers.key_full = 0;
  barriers.key_empty = barriers.key_full + kLatentSlots * kLatentParts;
  barriers.query_full = barriers.key_empty + kLatentSlots * kLatentParts;
  barriers.score_full = barriers.query_full + 1;
  barriers.score_empty = barriers.score_full + kLatentScoreTiles;
  barriers.factor_full = barriers.score_empty + kLatentScoreTiles;
  barriers.probability_ready = barriers.factor_full + kLatentScoreTiles;
  barriers.output_full = barriers.probability_ready + 1;
  barriers.count = barriers.output_full + 1;
  return barriers;
}

/// `depth`: of q and k, a multiple of 64.
constexpr BlackwellLatentLayout blackwell_latent_layout(int32_t depth) {
  BlackwellLatentLayout layout{};
  layout.slot = depth / 64 * kLatentSlabBytes;
  layout.queries = 0;
  layout.keys = layout.queries + layout.slot;
  layout.probabilities = layout.keys + kLatentSlots * layout.slot;
  layout.maxima = layout.probabilities + kLatentSlabBytes;
  layout.factors = layout.maxima + 2 * kLatentLanes * 4;
  layout.barriers = layout.factors + 2 * kLatentLanes * 4;
  layout.tensor_address = layout.barriers + blackwell_latent_barriers().count * kBarrierBytes;
  layout.last = layout.tensor_address + 4;
  layout.total = align_up(layout.last + 4, 16);
  return layout;
}

}  // namespace kernelwright::contract
