/// Codes of 8 bits times a scale, as elements of 16 bits.
#pragma once

#include "tile/element.cuh"

namespace kernelwright::tile {

/// As convert_fp8(), where each element is the product of its code and `scale`: computed in f32, then rounded.
template <DType kFp8, DType kTo, int kArch>
__device__ __forceinline__ void convert_scaled_fp8(const ptx::Vector16& from, float scale, ptx::Vector16 (&to)[2]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t pair = fp8_pair_to_f16<kFp8, kArch>(i % 2 ? from.word[i / 2] >> 16 : from.word[i / 2] & 0xffffu);
    to[i / 4].word[i % 4] = Element<kTo>::pack(ptx::cvt_f32_f16(static_cast<uint16_t>(pair)) * scale,
                                               ptx::cvt_f32_f16(static_cast<uint16_t>(pair >> 16)) * scale);
  }
}

}  // namespace kernelwright::tile
