/// A run of eight neighbouring elements in a row of memory, which one thread reads. It reads whole vectors where they
/// are aligned and exist.
#pragma once

#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright::tile {

/// Element `upper` (0 or 1) of a word of two 16-bit elements.
template <DType kType>
__device__ __forceinline__ float element_of(uint32_t word, int upper) {
  static_assert(kType == DType::kF16 || kType == DType::kBf16);
  if constexpr (kType == DType::kBf16)
    return __uint_as_float(upper ? word & 0xffff0000u : word << 16);
  else
    return ptx::cvt_f32_f16(static_cast<uint16_t>(upper ? word >> 16 : word));
}

/// Eight elements of f16, bf16 or f32; elements that do not exist are 0.
template <DType kType>
class ElementRun {
  static constexpr int kBytes = kBytesOf<kType>, kVectors = kBytes / 2;
  static_assert(kBytes == 2 || kBytes == 4);

 public:
  static constexpr int count = 8;

  /// Reads from `from`, where `left` elements exist. Nothing past them is read.
  __device__ __forceinline__ void load(const void* from, int left) {
    const char* const bytes = static_cast<const char*>(from);
    if (left >= count && reinterpret_cast<uint64_t>(from) % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const ptx::Vector16 vector = ptx::ld_global_v4(bytes + i * 16);
#pragma unroll
        for (int j = 0; j < 4; ++j) words_[i * 4 + j] = vector.word[j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; i += 2) {
        if constexpr (kBytes == 2) {
          words_[i / 2] = ptx::ld_global_u16_if(bytes + i * 2, i < left) |
                          ptx::ld_global_u16_if(bytes + i * 2 + 2, i + 1 < left) << 16;
        } else {
          words_[i] = ptx::ld_global_u32_if(bytes + i * 4, i < left);
          words_[i + 1] = ptx::ld_global_u32_if(bytes + i * 4 + 4, i + 1 < left);
        }
      }
    }
  }
  /// Reads column `i` of eight rows; a row has `stride` elements, and `left` rows exist.
  __device__ __forceinline__ void load_strided(const void* from, int64_t stride, int left) {
    const char* const bytes = static_cast<const char*>(from);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const char* const at = bytes + i * stride * kBytes;
      if constexpr (kBytes == 4)
        words_[i] = ptx::ld_global_u32_if(at, i < left);
      else if (i % 2 == 0)
        words_[i / 2] = ptx::ld_global_u16_if(at, i < left);
      else
        words_[i / 2] |= ptx::ld_global_u16_if(at, i < left) << 16;
    }
  }

  /// Reads eight elements of `all`, each at a place of its own. `place(i)`: where element i is; less than 0: nowhere.
  template <class Place>
  __device__ __forceinline__ void load_each(const Place& place, const void* all) {
    const char* const bytes = static_cast<const char*>(all);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int64_t at = place(i);
      if constexpr (kBytes == 4)
        words_[i] = ptx::ld_global_u32_if(bytes + at * kBytes, at >= 0);
      else if (i % 2 == 0)
        words_[i / 2] = ptx::ld_global_u16_if(bytes + at * kBytes, at >= 0);
      else
        words_[i / 2] |= ptx::ld_global_u16_if(bytes + at * kBytes, at >= 0) << 16;
    }
  }

  __device__ __forceinline__ float value(int i) const {
    if constexpr (kType == DType::kF32)
      return __uint_as_float(words_[i]);
    else
      return element_of<kType>(words_[i / 2], i % 2);
  }

 private:
  uint32_t words_[count * kBytes / 4];
};

}  // namespace kernelwright::tile
