/// Which work items a persistent CTA takes, and in what order: one thread of the CTA walks them and tells the rest.
#pragma once

#include "contract/hopper_attention.h"
#include "policy/attention_item.cuh"

namespace kernelwright::policy {

/// Items come in laps of one per CTA, the longest first, and every other lap runs backwards: whoever had the longest
/// item of a lap has the shortest of the next, so that all CTAs end together without a counter in memory.
///
/// Under a causal mask the last query tiles are the longest. `m_chunk` of them of one (batch, head) pair stand side by
/// side, then as many of the next pair, and once all pairs have been seen the next m_chunk tiles: few enough that items
/// still come by length, and enough that several CTAs read the same keys at the same time, which halves what the memory
/// has to give. Without a mask m_chunk is all tiles: pair after pair.
class ItemWalk {
  const contract::HopperAttentionParams& params_;
  int heads_;  // that items count: query heads, or KV heads if packed
  unsigned item_;
  bool back_ = false;

 public:
  __device__ ItemWalk(const contract::HopperAttentionParams& params, int heads)
      : params_(params), heads_(heads), item_(blockIdx.x) {}

  /// False past the last item; else where the item lies, and on to the next.
  __device__ bool next(TileCoord& coord) {
    if (item_ >= static_cast<unsigned>(params_.num_items)) return false;
    const contract::AttentionParams& attention = params_.attention;
    const unsigned pairs = static_cast<unsigned>(attention.batch) * heads_, m_blocks = attention.num_m_blocks;
    const unsigned above = item_ / (pairs * params_.m_chunk) * params_.m_chunk;  // tiles of each pair that come before
    const unsigned chunk = min(static_cast<unsigned>(params_.m_chunk), m_blocks - above);  // the last may be short
    const unsigned rest = item_ - above * pairs, pair = rest / chunk;
    coord = TileCoord(static_cast<int>(m_blocks - 1 - above - rest % chunk), static_cast<int>(pair % heads_),
                      static_cast<int>(pair / heads_));
    // Place b of one lap is place grid - 1 - b of the next.
    item_ += back_ ? 1 + 2 * blockIdx.x : 2 * (gridDim.x - blockIdx.x) - 1;
    back_ = !back_;
    return true;
  }
};

}  // namespace kernelwright::policy
