/// Eight neighbouring elements of a row as a thread loads them, and as it stores them.
#pragma once

#include "policy/block_format.cuh"
#include "policy/head_store.cuh"
#include "policy/head_vector.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/element_run.cuh"

namespace kernelwright::policy {

/// Eight elements of f16, bf16 or f32; zeros where they do not exist.
template <DType kType>
struct RowWords {
  enum : int { kBytes = tile::kBytesOf<kType>, kVectors = kBytes / 2 };
  ptx::Vector16 vector[kVectors];

  /// Of data that is read once. kWhole: lanes side by side read all of a sector of 32 bytes at once. Otherwise the L1
  /// keeps it for the other half.
  template <bool kWhole>
  __device__ __forceinline__ void load_once(const tile::Storage<kType>* from, bool exists) {
    if constexpr (kWhole && kVectors == 1) {
      vector[0] = ptx::ld_global_once_v4_if(from, exists);
    } else {
      load(from, exists);
    }
  }
  __device__ __forceinline__ void load(const tile::Storage<kType>* from, bool exists) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vector[i] = ptx::ld_global_v4_if(from + 4 * i, exists);
  }
  __device__ __forceinline__ void store(tile::Storage<kType>* to) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) ptx::st_global_v4(to + 4 * i, vector[i]);
  }
  __device__ __forceinline__ float value(int i) const {
    if constexpr (kType == DType::kF32)
      return __uint_as_float(vector[i / 4].word[i % 4]);
    else
      return tile::element_of<kType>(vector[0].word[i / 2], i % 2);
  }
  __device__ __forceinline__ void unpack(HeadVector& x) const {
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[i] = value(i);
  }
  /// Rounds eight values.
  __device__ __forceinline__ void pack(const HeadVector& x) {
    if constexpr (kType == DType::kF32) {
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) vector[i / 4].word[i % 4] = __float_as_uint(x[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) vector[0].word[i] = tile::Element<kType>::pack(x[2 * i], x[2 * i + 1]);
    }
  }
};

/// Words that eight elements of a format fill.
template <DType kTo>
constexpr int kWordsOfEight = bits_of(kTo) / 4;

/// Eight values times `factor`, rounded, of a format without scales of its own.
template <DType kTo, int kArch>
__device__ __forceinline__ void pack_eight(const HeadVector& x, float factor, uint32_t* words) {
  if constexpr (is_fp8(kTo)) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      words[i] = fp8_pair_of<kTo, kArch>(x[4 * i] * factor, x[4 * i + 1] * factor) |
                 fp8_pair_of<kTo, kArch>(x[4 * i + 2] * factor, x[4 * i + 3] * factor) << 16;
  } else if constexpr (kTo == DType::kF32) {
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) words[i] = __float_as_uint(x[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = tile::Element<kTo>::pack(x[2 * i], x[2 * i + 1]);
  }
}

/// Stores kCount neighbouring words in the widest vectors, to which `to` is aligned.
template <int kCount>
__device__ __forceinline__ void store_words(char* to, const uint32_t (&words)[kCount]) {
  if constexpr (kCount == 1) {
    ptx::st_global_u32(to, words[0]);
  } else if constexpr (kCount == 2) {
    ptx::st_global_v2_u32(to, words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      ptx::st_global_v4(to + 4 * i, {words[i], words[i + 1], words[i + 2], words[i + 3]});
  }
}

/// The largest magnitude of some values, as bits: NaN is above infinity, and infinity above all numbers.
__device__ __forceinline__ uint32_t largest_of(const HeadVector& x, uint32_t largest) {
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const uint32_t magnitude = __float_as_uint(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}
/// The largest over the kLanes lanes that share something.
template <int kLanes>
__device__ __forceinline__ uint32_t largest_over(uint32_t largest) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, distance);
    largest = other > largest ? other : largest;
  }
  return largest;
}

/// The scale bytes of four neighbouring blocks in a word, the first one's in the low byte. kLanes lanes share a block.
template <int kLanes>
__device__ __forceinline__ uint32_t scales_of_four(uint32_t scale, int lane) {
  uint32_t word = scale << lane / kLanes % 4 * 8;
  word |= __shfl_xor_sync(kAllLanes, word, kLanes);
  return word | __shfl_xor_sync(kAllLanes, word, 2 * kLanes);
}

}  // namespace kernelwright::policy
