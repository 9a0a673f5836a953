/// Storage types, and the conversion of 16 bytes of one type to another. The library has its own types, because no
/// vendor header reaches NVRTC.
#pragma once

#include "contract/words.h"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::tile {

template <DType kDType>
struct Element;  // Storage is the stored type; pack() rounds two f32

template <>
struct Element<DType::kF16> {
  using Storage = uint16_t;
  __device__ static uint32_t pack(float low, float high) { return ptx::cvt_rn_f16x2_f32(low, high); }
  __device__ static uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c) { return ptx::fma_rn_f16x2(a, b, c); }
  /// The sign bit of each half that is an infinity or a NaN.
  __device__ static uint32_t non_finite_bits(uint32_t pair) {
    return ((pair & 0x7fff7fffu) + 0x04000400u) & 0x80008000u;
  }
  /// The f32 of `bits`, which are an infinity or a NaN.
  __device__ static float non_finite(uint32_t bits) { return ptx::cvt_f32_f16(static_cast<uint16_t>(bits)); }
};
template <>
struct Element<DType::kBf16> {
  using Storage = uint16_t;
  __device__ static uint32_t pack(float low, float high) { return ptx::cvt_rn_bf16x2_f32(low, high); }
  __device__ static uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c) { return ptx::fma_rn_bf16x2(a, b, c); }
  __device__ static uint32_t non_finite_bits(uint32_t pair) {
    return ((pair & 0x7fff7fffu) + 0x00800080u) & 0x80008000u;
  }
  __device__ static float non_finite(uint32_t bits) { return __uint_as_float(bits << 16); }
};
template <>
struct Element<DType::kE4m3> {
  using Storage = uint8_t;
};
template <>
struct Element<DType::kE5m2> {
  using Storage = uint8_t;
};
template <>
struct Element<DType::kF32> {
  using Storage = float;
};

template <DType kDType>
using Storage = typename Element<kDType>::Storage;
template <DType kDType>
constexpr int kBytesOf = static_cast<int>(sizeof(Storage<kDType>));

/// Two floats as fp8, `low` in the low byte. Values beyond the largest number become the largest number.
template <DType kTo>
__device__ __forceinline__ uint16_t fp8_pair(float low, float high) {
  if constexpr (kTo == DType::kE5m2)
    return ptx::cvt_rn_satfinite_e5m2x2_f32(low, high);
  else
    return ptx::cvt_rn_satfinite_e4m3x2_f32(low, high);
}

/// A word of elements: the elements of `values` from `first` on, rounded.
template <DType kTo, int kCount>
__device__ __forceinline__ uint32_t pack_word(const float (&values)[kCount], int first) {
  if constexpr (kTo == DType::kF32) {
    return __float_as_uint(values[first]);
  } else if constexpr (kBytesOf<kTo> == 1) {
    return fp8_pair<kTo>(values[first], values[first + 1]) |
           uint32_t{fp8_pair<kTo>(values[first + 2], values[first + 3])} << 16;
  } else {
    return Element<kTo>::pack(values[first], values[first + 1]);
  }
}

/// Two neighbours at `from`: each infinity or NaN as f32, and 0 in place of each finite value.
template <DType kDType>
__device__ __forceinline__ void load_non_finite(float (&values)[2], const Storage<kDType>* from) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t bits = from[i];
    if constexpr (kDType == DType::kE4m3) {
      values[i] = (bits & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : 0.f;
    } else if constexpr (kDType == DType::kE5m2) {  // e5m2 is the upper byte of an f16
      values[i] = (bits & 0x7cu) == 0x7cu ? Element<DType::kF16>::non_finite(bits << 8) : 0.f;
    } else {
      values[i] = Element<kDType>::non_finite_bits(bits) != 0 ? Element<kDType>::non_finite(bits) : 0.f;
    }
  }
}

/// Two fp8 in the low half of `pair` to packed f16: exact for both formats.
template <DType kFp8, int kArch>
__device__ __forceinline__ uint32_t fp8_pair_to_f16(uint32_t pair) {
  if constexpr (kFp8 == DType::kE5m2) {
    return ptx::prmt(pair, 0, 0x1404);  // e5m2 is the upper byte of an f16
  } else if constexpr (kArch >= 89) {
    return ptx::cvt_rn_f16x2_e4m3x2(static_cast<uint16_t>(pair));
  } else {
    // The bits of an e4m3, moved below an f16's sign, read as the value times 2^-8. Subnormals come out right too.
    const uint32_t spread = ptx::prmt(pair, 0, 0x1404);  // each byte in the upper half of 16 bits
    const uint32_t bits = (spread & 0x80008000u) | ((spread & 0x7f007f00u) >> 1);
    uint32_t value = ptx::mul_f16x2(bits, 0x5c005c00u);                          // 2^8, twice
    if ((spread & 0x7f00u) == 0x7f00u) value = (value & 0xffff0000u) | 0x7fffu;  // S.1111.111 is NaN
    if ((spread & 0x7f000000u) == 0x7f000000u) value = (value & 0xffffu) | 0x7fff0000u;
    return value;
  }
}

/// Sixteen fp8 (16 bytes) to sixteen 16-bit elements (two vectors), in order.
template <DType kFp8, DType kTo, int kArch>
__device__ __forceinline__ void convert_fp8(const ptx::Vector16& from, ptx::Vector16 (&to)[2]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t half = fp8_pair_to_f16<kFp8, kArch>(i % 2 ? from.word[i / 2] >> 16 : from.word[i / 2] & 0xffffu);
    if constexpr (kTo == DType::kF16) {
      to[i / 4].word[i % 4] = half;
    } else {
      to[i / 4].word[i % 4] = ptx::cvt_rn_bf16x2_f32(ptx::cvt_f32_f16(static_cast<uint16_t>(half)),
                                                     ptx::cvt_f32_f16(static_cast<uint16_t>(half >> 16)));
    }
  }
}

}  // namespace kernelwright::tile
