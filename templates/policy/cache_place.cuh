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

/// positions[index], of 4 or 8 bytes.
__device__ __forceinline__ int64_t position_at(const contract::KvWriteParams& params, int64_t index) {
  if (params.position_bytes == 8) return ptx::ld_global_s64(static_cast<const int64_t*>(params.positions) + index);
  return ptx::ld_global_s32(static_cast<const int32_t*>(params.positions) + index);
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

/// A scale of a head at `place`, or the first element of the head.
__device__ __forceinline__ int64_t cache_element(const CachePlace& place, const contract::Strides& strides, int head) {
  return place.page * strides.batch + place.offset * strides.token + head * strides.head;
}

}  // namespace kernelwright::policy
