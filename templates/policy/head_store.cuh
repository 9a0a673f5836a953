/// Rounds a lane's part of a head, or quantises it with a scale, and stores it.
#pragma once

#include "policy/fp8_scale.cuh"
#include "policy/head_vector.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/narrow_float.cuh"

namespace kernelwright::policy {

/// Two values as an 8-bit format, `low` in the low byte. Values beyond the largest number become that number. A NaN
/// stays one.
template <DType kTo, int kArch>
__device__ __forceinline__ uint32_t fp8_pair_of(float low, float high) {
  if constexpr (kArch >= 89) {
    return tile::fp8_pair<kTo>(low, high);
  } else {
    constexpr int kExponent = kTo == DType::kE5m2 ? 5 : 4, kMantissa = 7 - kExponent;
    constexpr int kLowest = kTo == DType::kE5m2 ? -14 : -6;
    const auto code = [](float value) {
      const uint32_t number = tile::narrow_code<kExponent, kMantissa, kLowest>(value, kLargestFp8<kTo>);
      return value == value ? number : 0x7fu;
    };
    return code(low) | code(high) << 8;
  }
}

/// `x` as it is stored: 4 words of a 16-bit type, which ignores `factor`, or 2 words of `x` times `factor`.
template <DType kTo, int kArch>
__device__ __forceinline__ void pack_head_part(const HeadVector& x, float factor, uint32_t* words) {
  if constexpr (is_fp8(kTo)) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      words[i] = fp8_pair_of<kTo, kArch>(x[4 * i] * factor, x[4 * i + 1] * factor) |
                 fp8_pair_of<kTo, kArch>(x[4 * i + 2] * factor, x[4 * i + 3] * factor) << 16;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = tile::Element<kTo>::pack(x[2 * i], x[2 * i + 1]);
  }
}
template <int kWords>
__device__ __forceinline__ void store_words(void* to, const uint32_t* words) {
  static_assert(kWords == 2 || kWords == 4);
  if constexpr (kWords == 2)
    ptx::st_global_v2_u32(to, words[0], words[1]);
  else
    ptx::st_global_v4(to, {words[0], words[1], words[2], words[3]});
}

/// Stores the bytes of `x` times `factor` from `to` on, `stride` bytes apart.
template <DType kTo, int kArch>
__device__ __forceinline__ void store_head_column(uint8_t* to, int stride, const HeadVector& x, float factor) {
#pragma unroll
  for (int i = 0; i < kLaneElements; i += 2) {
    const uint32_t pair = fp8_pair_of<kTo, kArch>(x[i] * factor, x[i + 1] * factor);
    ptx::st_global_u8(to + i * stride, pair);
    ptx::st_global_u8(to + (i + 1) * stride, pair >> 8);
  }
}

}  // namespace kernelwright::policy
