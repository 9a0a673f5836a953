/// attention_latent_sm90: its shared memory and workspace, in one place for the host and the kernel. Its parameters are
/// LatentParams or LatentBytesParams.
#pragma once

#include "contract/attention_latent.h"
#include "contract/integers.h"
#include "contract/shared_slab.h"

namespace kernelwright::contract {

constexpr int32_t kLatentScratchBytes = 104;  // policy/even_shares.cuh
constexpr int32_t kLatentCutBytes = 24;  // parts, sequence, first team, part, and a ticket of policy/joint_merge.cuh

/// Balanced: parts of kLatentRows rows in the workspace, two for each CTA. The first is for a part that is not the
/// first of its sequence, the second for a first part; a CTA has one of each at most. Behind all parts come their LSEs,
/// and then kMeetingWords words for each CTA (contract/even_shares.h). Those of the CTA that has a sequence's first
/// part count.
constexpr int32_t kLatentPartRows = 2 * kLatentRows;

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024. A tile is [slabs][64 rows][128
/// bytes], each slab swizzled.
struct HopperLatentLayout {
  int32_t queries;        // the last slab of Q is held in registers, and odd probabilities take its place
  int32_t keys;           // kLatentSlots slots
  int32_t probabilities;  // of tiles of even number: one slab
  int32_t odd_probabilities;
  int32_t maxima;  // [2 warpgroups][64] f32
  int32_t sums;    // likewise; over the scales, which nobody reads once all tiles have been multiplied
  int32_t scales;  // of records: kLatentSlots slots of [64 keys][4] f32
  // `full` of each part of each slot, then `empty`; then one for each warpgroup's probabilities. Where keys are
  // converted, then `landed` of each part of each slot.
  int32_t barriers;
  int32_t last;     // one word: whether this CTA merges
  int32_t cuts;     // balanced: what the CTA merges at its end, at most two sequences
  int32_t scratch;  // balanced: in which the CTA finds its piece
  int32_t total;
  int32_t slot;  // bytes of a slot
};

/// `depth`: of q and k, a multiple of 64. `converts`: keys have 8 bits. `records`: they have scales of their own.
constexpr HopperLatentLayout hopper_latent_layout(int32_t depth, bool converts = false, bool records = false) {
  HopperLatentLayout layout{};
  const int32_t slabs = depth / 64;
  layout.slot = slabs * kLatentSlabBytes;
  layout.queries = 0;
  layout.keys = layout.queries + slabs * kLatentSlabBytes;
  layout.probabilities = layout.keys + kLatentSlots * layout.slot;
  layout.odd_probabilities = layout.queries + (slabs - 1) * kLatentSlabBytes;
  layout.maxima = layout.probabilities + kLatentSlabBytes;
  layout.sums = layout.maxima + 2 * kLatentRows * 4;
  layout.scales = layout.sums;
  layout.barriers = layout.sums + (records ? kLatentSlots * kLatentScaleBytes : 2 * kLatentRows * 4);
  layout.last = layout.barriers + ((converts ? 3 : 2) * kLatentSlots * kLatentParts + 2) * kBarrierBytes;
  layout.cuts = layout.last + 8;
  layout.scratch = layout.cuts + 2 * kLatentCutBytes;
  layout.total = layout.scratch + kLatentScratchBytes;
  return layout;
}

}  // namespace kernelwright::contract
