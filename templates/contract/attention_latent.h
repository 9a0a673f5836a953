/// What the kernels of latent attention that load by TMA share: their parameters and the ring of key tiles. The keys
/// are latent: values are the first head_dim.v elements of each key.
#pragma once

#include "contract/attention_latent_record.h"
#include "contract/attention_params.h"
#include "contract/attention_sm90.h"
#include "contract/integers.h"
#include "contract/tensor_map.h"

namespace kernelwright::contract {

/// The map of k is that of attention_sm90 (contract/attention_sm90.h) with the swizzle of 128 bytes. Its box has a
/// CTA's share of a tile: kLatentRows / cluster keys or, of pages, the largest divisor that this number shares with
/// page_size. q is read by addresses, and v is not read at all.
struct LatentParams {
  TensorMap k;
  AttentionParams attention;
};

/// Keys of 8 bits, which warps of the loading warpgroup convert to the queries' dtype. The maps' elements are bytes,
/// and a row of theirs is a key (contract/attention_latent_record.h). A box of k has 128 columns and the swizzle of 128
/// bytes; it has as many rows as one of LatentParams.
struct LatentBytesParams {
  TensorMap k;
  TensorMap k_scale;  // records: the same memory; a box has the 16 bytes of a key's scales, and no swizzle
  AttentionParams attention;
};

constexpr int32_t kLatentRows = 64;             // query rows of a CTA, and keys of a tile
constexpr int32_t kLatentSlabBytes = 64 * 128;  // a slab: 64 rows of 128 bytes
constexpr int32_t kLatentSlots = 2;             // one for tiles of even number, one for the others
constexpr int32_t kLatentParts = 4;             // of a slot, each with barriers of its own
constexpr int32_t kLatentPartSlabs = 2;         // of a part; the last part also has the slabs that no value is in
constexpr int32_t kLatentScaleBytes = kLatentRows * 16;  // of records: the scales of a slot

}  // namespace kernelwright::contract
