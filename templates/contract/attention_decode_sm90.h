/// attention_decode_sm90: kernel parameters and shared memory, in one place for the host and the kernel.
#pragma once

#include "contract/attention_params.h"
#include "contract/attention_portable.h"
#include "contract/attention_sm90.h"
#include "contract/integers.h"
#include "contract/tensor_map.h"

namespace kernelwright::contract {

/// The maps of k and v are those of attention_sm90 (contract/attention_sm90.h), with another box: a box has the rows of
/// one warp's share of a tile, block_n / num_warps. With paged keys, a box has the largest divisor that this number
/// shares with page_size.
struct HopperDecodeParams {
  TensorMap k, v;
  AttentionParams attention;
};

/// DecodeLayout with whole slabs. Behind everything lie mbarriers, one for the keys and one for the values of each
/// warp's slots: [num_warps][num_stages][2].
struct HopperDecodeLayout : DecodeLayout {
  int32_t barriers;
};

constexpr HopperDecodeLayout hopper_decode_layout(int32_t block_m, int32_t block_n, int32_t num_warps, int32_t depth_qk,
                                                  int32_t depth_v, int32_t num_stages, int32_t swizzle_bytes = 128) {
  HopperDecodeLayout layout{decode_layout(block_m, block_n, num_warps, padded_depth(depth_qk, swizzle_bytes),
                                          padded_depth(depth_v, swizzle_bytes), num_stages),
                            0};
  layout.barriers = align_up(layout.total, kBarrierBytes);
  layout.total = layout.barriers + num_warps * num_stages * 2 * kBarrierBytes;
  return layout;
}

}  // namespace kernelwright::contract
