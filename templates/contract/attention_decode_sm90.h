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
/// shares with page_size. fp8 keys and values are maps of bytes: a slab has twice as many columns.
struct HopperDecodeParams {
  TensorMap k, v;
  AttentionParams attention;
};

/// DecodeLayout with whole slabs. Behind everything lie mbarriers, one for the keys and one for the values of each
/// warp's slots: [num_warps][num_stages][2].
struct HopperDecodeLayout : DecodeLayout {
  int32_t barriers;
};

/// fp8 keys: the factors of policy/kv_operands.cuh, [block_m] f32, are the end of the layout.
constexpr int32_t query_factors(const HopperDecodeLayout& layout, int32_t block_m) {
  return layout.total - block_m * 4;
}

/// Columns of a row of keys or values in shared memory: whole slabs. `element_bytes`: 2, or 1 for fp8.
constexpr int32_t decode_columns(int32_t depth, int32_t element_bytes, int32_t swizzle_bytes) {
  return slabs_of(depth, element_bytes, swizzle_bytes) * slab_width(swizzle_bytes) / element_bytes;
}

constexpr HopperDecodeLayout hopper_decode_layout(int32_t block_m, int32_t block_n, int32_t num_warps, int32_t depth_qk,
                                                  int32_t depth_v, int32_t num_stages, int32_t swizzle_bytes = 128,
                                                  int32_t kv_bytes = 2, int32_t sums = 1) {
  HopperDecodeLayout layout{
      decode_layout(block_m, block_n, num_warps, decode_columns(depth_qk, kv_bytes, swizzle_bytes),
                    decode_columns(depth_v, kv_bytes, swizzle_bytes), num_stages, kv_bytes, sums),
      0};
  layout.barriers = align_up(layout.total, kBarrierBytes);
  layout.total = layout.barriers + num_warps * num_stages * 2 * kBarrierBytes + (kv_bytes == 1 ? block_m * 4 : 0);
  return layout;
}

}  // namespace kernelwright::contract
