/// The place of a token's key and value in a cache, from a slot, or from its sequence and position.
#pragma once

#include "contract/kv_write.h"
#include "contract/words.h"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

struct CachePlace {
  int64_t page = 0;    // paged: the page. padded: the sequence. ragged: the row
  int64_t offset = 0;  // of the key in it
  int64_t row = 0;     // counted over the whole cache
  bool exists = false;
};

/// positions[index] as it lies in device memory, of 4 or 8 bytes. A conversion would wait for the load.
struct Position {
  uint32_t low, high;
};
__device__ __forceinline__ Position load_position(const contract::KvWriteParams& params, int64_t index) {
  const auto* const at = static_cast<const uint8_t*>(params.positions) + index * params.position_bytes;
  return {ptx::ld_global_u32_if(at, true), ptx::ld_global_u32_if(at + 4, params.position_bytes == 8)};
}
__device__ __forceinline__ int64_t value_of(const contract::KvWriteParams& params, const Position& position) {
  if (params.position_bytes == 8) return static_cast<int64_t>(uint64_t{position.high} << 32 | position.low);
  return static_cast<int32_t>(position.low);
}

/// Keys of a page, where kPageSize is a constant; else of a sequence.
template <KvLayoutKind kLayout, int kPageSize>
__device__ __forceinline__ int64_t keys_of_page(const contract::KvWriteParams& params) {
  if constexpr (kLayout == KvLayoutKind::kPaged)
    return kPageSize;
  else if constexpr (kLayout == KvLayoutKind::kRagged)
    return 1;
  else
    return params.kv_len;
}

/// What says where a token goes, as it lies in device memory.
struct TokenIndex {
  int64_t slot = 0;
  Position position{};
  int32_t sequence = 0;
};

template <CacheIndex kIndex>
__device__ __forceinline__ TokenIndex load_index(const contract::KvWriteParams& params, int64_t token) {
  TokenIndex index;
  if constexpr (kIndex == CacheIndex::kSlots) {
    index.slot = ptx::ld_global_s64(params.slot_mapping + token);
  } else {
    index.position = load_position(params, token);
    index.sequence = ptx::ld_global_s32(params.batch_indices + token);
  }
  return index;
}

template <KvLayoutKind kLayout, int kPageSize>
__device__ __forceinline__ CachePlace place_of_slot(const contract::KvWriteParams& params, int64_t slot) {
  const int64_t keys = keys_of_page<kLayout, kPageSize>(params);
  const int64_t pages = kLayout == KvLayoutKind::kPadded ? params.batch : params.num_pages;
  CachePlace place;
  place.exists = slot >= 0 && slot < pages * keys;
  if (!place.exists) return place;
  place.row = slot;
  place.page = static_cast<int64_t>(static_cast<uint64_t>(slot) / static_cast<uint64_t>(keys));
  place.offset = slot - place.page * keys;
  return place;
}

template <KvLayoutKind kLayout, int kPageSize>
__device__ __forceinline__ CachePlace place_of_position(const contract::KvWriteParams& params, int32_t sequence,
                                                        int64_t position) {
  CachePlace place;
  if (sequence < 0 || sequence >= params.batch || position < 0) return place;
  if constexpr (kLayout == KvLayoutKind::kPaged) {
    const uint64_t entry = static_cast<uint64_t>(position) / kPageSize;
    if (entry >= static_cast<uint64_t>(params.page_table_stride)) return place;
    place.page = ptx::ld_global_s32(params.page_table + static_cast<int64_t>(sequence) * params.page_table_stride +
                                    static_cast<int64_t>(entry));
    place.offset = position - static_cast<int64_t>(entry) * kPageSize;
    place.row = place.page * kPageSize + place.offset;
    place.exists = place.page >= 0 && place.page < params.num_pages;
  } else {
    place.page = sequence;
    place.offset = position;
    place.row = static_cast<int64_t>(sequence) * params.kv_len + position;
    place.exists = position < params.kv_len;
  }
  return place;
}

template <CacheIndex kIndex, KvLayoutKind kLayout, int kPageSize>
__device__ __forceinline__ CachePlace place_of(const contract::KvWriteParams& params, const TokenIndex& index) {
  if constexpr (kIndex == CacheIndex::kSlots)
    return place_of_slot<kLayout, kPageSize>(params, index.slot);
  else
    return place_of_position<kLayout, kPageSize>(params, index.sequence, value_of(params, index.position));
}

/// A scale of a head at `place`, or the first element of the head.
__device__ __forceinline__ int64_t cache_element(const CachePlace& place, const contract::Strides& strides, int head) {
  return place.page * strides.batch + place.offset * strides.token + head * strides.head;
}

}  // namespace kernelwright::policy
