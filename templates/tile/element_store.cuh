/// Single elements of an accumulator to global memory, for rows of any alignment and length.
#pragma once

#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright::tile {

/// Whether two neighbours, the first at an even column, can be stored at once. The rows begin at `base` and have
/// `stride` elements.
template <DType kOut>
__device__ __forceinline__ bool stores_pairs(const void* base, int64_t stride) {
  return ((reinterpret_cast<uint64_t>(base) | static_cast<uint64_t>(stride * kBytesOf<kOut>)) &
          (2 * kBytesOf<kOut> - 1)) == 0;
}

/// Stores the first `count` of two neighbours, rounded, to `to`: both at once if `pairs` and both exist.
template <DType kOut>
__device__ __forceinline__ void store_elements(Storage<kOut>* to, float low, float high, int count, bool pairs) {
  if constexpr (kOut == DType::kF32) {
    if (pairs && count > 1) {
      *reinterpret_cast<float2*>(to) = make_float2(low, high);
    } else {
      if (count > 0) to[0] = low;
      if (count > 1) to[1] = high;
    }
  } else {
    constexpr int kBits = 8 * kBytesOf<kOut>;
    uint32_t both;
    if constexpr (kBits == 8)
      both = fp8_pair<kOut>(low, high);
    else
      both = Element<kOut>::pack(low, high);
    if (pairs && count > 1) {
      if constexpr (kBits == 8)
        *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(both);
      else
        *reinterpret_cast<uint32_t*>(to) = both;
    } else {
      if (count > 0) to[0] = static_cast<Storage<kOut>>(both);
      if (count > 1) to[1] = static_cast<Storage<kOut>>(both >> kBits);
    }
  }
}

}  // namespace kernelwright::tile
