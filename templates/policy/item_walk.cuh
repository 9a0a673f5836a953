/// Which work items a persistent CTA takes, and in what order: one thread of the CTA walks them and tells the rest.
#pragma once

#include "contract/hopper_attention.h"
#include "policy/attention_item.cuh"

namespace kernelwright::policy {

/// See contract::ItemOrder.
class ItemWalk {
  const contract::HopperAttentionParams& params_;
  int heads_;  // that items count: query heads, or KV heads if packed
  unsigned unit_;
  bool back_ = false, second_ = false;

 public:
  __device__ ItemWalk(const contract::HopperAttentionParams& params, int heads)
      : params_(params), heads_(heads), unit_(blockIdx.x) {}

  /// False past the last item; else where the item lies, and on to the next.
  __device__ bool next(TileCoord& coord) {
    if (unit_ >= static_cast<unsigned>(params_.num_units)) return false;
    const contract::AttentionParams& attention = params_.attention;
    const bool couples = params_.item_order == contract::ItemOrder::kCouples;
    const unsigned m_blocks = attention.num_m_blocks, rows = couples ? (m_blocks + 1) / 2 : m_blocks;
    const unsigned pairs = static_cast<unsigned>(attention.batch) * heads_, section = attention.head_section;
    const unsigned first_pair = unit_ / (section * rows) * section;
    const unsigned in_section = min(section, pairs - first_pair);  // the last section may be short
    const unsigned rest = unit_ - first_pair * rows, row = rest / in_section;
    const unsigned pair = first_pair + rest % in_section;
    coord = TileCoord(static_cast<int>(second_ ? row : m_blocks - 1 - row), static_cast<int>(pair % heads_),
                      static_cast<int>(pair / heads_));
    second_ = couples && !second_ && row != m_blocks - 1 - row;
    if (!second_) advance();
    return true;
  }

 private:
  __device__ void advance() {
    if (params_.item_order == contract::ItemOrder::kSnake) {
      // Place b of one lap is place grid - 1 - b of the next.
      unit_ += back_ ? 1 + 2 * blockIdx.x : 2 * (gridDim.x - blockIdx.x) - 1;
      back_ = !back_;
    } else {
      unit_ += gridDim.x;
    }
  }
};

}  // namespace kernelwright::policy
