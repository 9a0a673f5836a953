/// The block-scaled formats for quantisers: the scale of a block from its largest magnitude, and the factor that brings
/// a value to the scale of elements. verify/formats/block_formats.h defines the formats for the host, to the bit.
#pragma once

#include "contract/integers.h"
#include "contract/words.h"
#include "tile/narrow_float.cuh"

namespace kernelwright::policy {

/// kFormat: mxfp8, mxfp4 or nvfp4.
template <DType kFormat, int kArch>
struct BlockFormat {
  static constexpr bool kIsNvfp4 = kFormat == DType::kNvfp4;
  static constexpr int vector = scale_vector(kFormat);  // elements that share a scale
  static constexpr int element_bits = bits_of(kFormat);
  static constexpr uint32_t kNanScale = kIsNvfp4 ? 0x7f : 0xff;
  static constexpr uint32_t kInfinity = 0x7f800000;
  static constexpr int kLargestExponent = kFormat == DType::kMxfp8 ? 8 : 2;  // floor(log2) of the largest element

  /// The scale byte of a block, from the bits of its largest magnitude. If a value is not finite, these are the bits of
  /// infinity or NaN.
  __device__ __forceinline__ static uint32_t scale(uint32_t absmax) {
    if (absmax >= kInfinity) return kNanScale;
    if constexpr (kIsNvfp4) {
      return tile::e4m3_pair<kArch>(__fdiv_rn(__uint_as_float(absmax), 6.f), 0.f) & 0xff;
    } else {
      // The exponent as f32 stores it. Subnormals have 0; their scale is the smallest one in any case.
      const int exponent = static_cast<int>(absmax >> 23) - kLargestExponent;
      return exponent > 0 ? static_cast<uint32_t>(exponent) : 0;
    }
  }

  /// A value of a block with this scale, as elements are rounded from it.
  __device__ __forceinline__ static float scaled(float value, uint32_t scale_byte) {
    if (scale_byte == kNanScale || (kIsNvfp4 && scale_byte == 0)) return 0;
    if constexpr (kIsNvfp4)
      return __fdiv_rn(value, tile::ue4m3_value(scale_byte));
    else
      return value * __uint_as_float((254 - scale_byte) << 23);
  }
  /// Two such values as elements, in order from the lowest bit: 8 or 16 bits.
  __device__ __forceinline__ static uint32_t pair(float low, float high) {
    if constexpr (element_bits == 8)
      return tile::e4m3_pair<kArch>(low, high);
    else
      return tile::e2m1_pair<kArch>(low, high);
  }

  /// Eight values of a block with this scale as elements, in order: element_bits / 4 words.
  __device__ __forceinline__ static void elements(const float (&values)[8], uint32_t scale_byte,
                                                  uint32_t (&words)[element_bits / 4]) {
    if (scale_byte == kNanScale || (kIsNvfp4 && scale_byte == 0)) {
      for (uint32_t& word : words) word = 0;
      return;
    }
    float scaled[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (kIsNvfp4)
        scaled[i] = __fdiv_rn(values[i], tile::ue4m3_value(scale_byte));
      else  // exact, except where the result is less than half of any element
        scaled[i] = values[i] * __uint_as_float((254 - scale_byte) << 23);
    }
    if constexpr (element_bits == 8) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        words[i] = tile::e4m3_pair<kArch>(scaled[4 * i], scaled[4 * i + 1]) |
                   tile::e4m3_pair<kArch>(scaled[4 * i + 2], scaled[4 * i + 3]) << 16;
    } else {
      words[0] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) words[0] |= tile::e2m1_pair<kArch>(scaled[2 * i], scaled[2 * i + 1]) << 8 * i;
    }
  }
};

/// The same where the rounding of scales has a name. kRoundUp, of mxfp8 and mxfp4: the scale is the smallest power of
/// two with which no element passes the format's largest number. Else an element may, and saturates.
template <DType kFormat, int kArch, bool kRoundUp>
struct RoundedBlockFormat : BlockFormat<kFormat, kArch> {
  using Base = BlockFormat<kFormat, kArch>;

  __device__ __forceinline__ static uint32_t scale(uint32_t absmax) {
    if constexpr (!kRoundUp) return Base::scale(absmax);
    if (absmax >= Base::kInfinity) return Base::kNanScale;
    // What is above the mantissa of the largest element, 1.75 or 1.5, carries into the exponent.
    const uint32_t carried = absmax + (kFormat == DType::kMxfp8 ? 0x1fffffu : 0x3fffffu);
    const int exponent = static_cast<int>(carried >> 23) - Base::kLargestExponent;
    return exponent > 0 ? static_cast<uint32_t>(exponent) : 0;
  }
};

}  // namespace kernelwright::policy
