/// attention_latent_portable: shared memory, in one place for the host and the kernel. Its parameters are
/// AttentionParams, whose v is not read: values are the first head_dim.v elements of each key.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

constexpr int32_t kLatentWarpKeys = 8;  // keys of a tile whose scores a warp computes

/// Byte offsets from the start of dynamic shared memory.
struct PortableLatentLayout {
  int32_t queries;  // [block_m][depth] of 16-bit elements
  int32_t keys;     // num_stages slots of [block_n][depth]; of keys that are converted, one slot
  int32_t raw;      // of keys that are converted: num_stages - 1 slots of [block_n][raw_key]
  int32_t scores;   // [2][block_m][score_stride] f32: tiles take turns
  int32_t total;
  int32_t slot;          // bytes of a slot of keys
  int32_t raw_slot;      // bytes of a slot of raw
  int32_t score_stride;  // f32 from row to row
};

/// `raw_key`: bytes of a key of 8-bit elements, which warps convert to the queries' dtype; 0: keys have that dtype.
constexpr PortableLatentLayout portable_latent_layout(int32_t block_m, int32_t block_n, int32_t depth,
                                                      int32_t num_stages, int32_t raw_key = 0) {
  PortableLatentLayout layout{};
  layout.slot = block_n * depth * 2;
  layout.score_stride = block_n + 8;  // pairs of eight rows meet no bank twice
  layout.queries = 0;
  layout.keys = block_m * depth * 2;
  layout.raw_slot = block_n * raw_key;
  layout.raw = layout.keys + (raw_key > 0 ? 1 : num_stages) * layout.slot;
  layout.scores = layout.raw + (num_stages - 1) * layout.raw_slot;
  layout.total = layout.scores + 2 * block_m * layout.score_stride * 4;
  return layout;
}

}  // namespace kernelwright::contract
