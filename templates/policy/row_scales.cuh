/// Scales of single rows, and rows of Q in f16 or in two terms of e4m3. Products of fp8 keys and values are of f16,
/// whatever the type of Q: fp8 becomes f16 exactly, in one instruction a pair, where bf16 takes four. Hopper's prefill
/// has products of Q and K in fp8 instead, where Q is bf16 (QueryTerms).
///
/// A bf16 row of Q that becomes f16 is first multiplied by a power of two that brings its largest element below 2^15.
/// The inverse, the row's factor, joins the softmax's scale: exact, because bf16 has fewer bits than f16. Elements
/// below 2^-31 of the largest one lose bits.
#pragma once

#include "contract/words.h"
#include "ptx/math.cuh"
#include "tile/element.cuh"

namespace kernelwright::policy {

/// The type of products, where the cache has another type than Q, or the same.
template <DType kQuery, DType kStored>
__device__ constexpr DType computed() {
  return kQuery == kStored ? kQuery : DType::kF16;
}

/// A scale for each row that a thread has, where a float is one scale for all rows. Exponentials and their sums are
/// multiplied by 2^shift, so that f16 holds weights down to 2^-(24 + shift) of the largest one.
template <int kRows>
struct RowScales {
  enum : int { shift = 7 };  // exponentials reach 2^8 by themselves, and f16 ends at 2^16
  float of[kRows];
};
/// What a score of row r is multiplied by, and the maximum, base 2, on which the row's exponentials count.
__device__ __forceinline__ float scale_of(float scale, int) { return scale; }
__device__ __forceinline__ float base2_maximum(float maximum, float scale, int) { return maximum * scale; }
template <int kRows>
__device__ __forceinline__ float scale_of(const RowScales<kRows>& scales, int r) {
  return scales.of[r];
}
template <int kRows>
__device__ __forceinline__ float base2_maximum(float maximum, const RowScales<kRows>& scales, int r) {
  return fmaf(maximum, scales.of[r], -static_cast<float>(RowScales<kRows>::shift));
}
/// The negative of it.
__device__ __forceinline__ float base2_offset(float maximum, float scale, int) { return -maximum * scale; }
template <int kRows>
__device__ __forceinline__ float base2_offset(float maximum, const RowScales<kRows>& scales, int r) {
  return -base2_maximum(maximum, scales, r);
}
/// The exponential of the maximum.
__device__ __forceinline__ float unit_of(float) { return 1; }
template <int kRows>
__device__ __forceinline__ float unit_of(const RowScales<kRows>&) {
  return 1 << RowScales<kRows>::shift;
}

/// The largest magnitude of two packed bf16 and `largest`. Magnitudes are in the order of their bits.
__device__ __forceinline__ uint32_t largest_of(uint32_t largest, uint32_t pair) {
  return max(largest, max(pair & 0x7fffu, pair >> 16 & 0x7fffu));
}
/// The exponent of a row's factor; exponents have a bias of 127, in bf16 as in f32. The factor and its inverse are
/// normal numbers.
__device__ __forceinline__ uint32_t factor_exponent(uint32_t largest) { return max(largest >> 7, 15u) - 14; }
__device__ __forceinline__ float factor_of(uint32_t exponent) { return __uint_as_float(exponent << 23); }
/// Two packed bf16 over the row's factor, as f16.
__device__ __forceinline__ uint32_t over_factor(uint32_t pair, uint32_t exponent) {
  const float inverse = __uint_as_float((254 - exponent) << 23);
  return tile::Element<DType::kF16>::pack(__uint_as_float(pair << 16) * inverse,
                                          __uint_as_float(pair & 0xffff0000u) * inverse);
}

/// Makes two terms of e4m3 of a bf16 row of Q: the row is (high + low) times its factor. bf16 has 8 significant bits,
/// and a term has 4. So the sum is exact for elements from 2^-9 of the row's largest one on. The others are off by at
/// most 2^-17 of the largest one. A row with NaN or an infinity becomes NaN: e4m3 has no infinity, and a softmax over
/// infinite scores is NaN.
class QueryTerms {
  const uint32_t exponent_;  // of the factor
  const float inverse_;

 public:
  /// `largest`: the row's largest magnitude, of largest_of(). It is brought to [2^7, 2^8).
  __device__ __forceinline__ explicit QueryTerms(uint32_t largest)
      : exponent_(max(largest >> 7, 8u) - 7),
        inverse_(__uint_as_float(largest >= 0x7f80u ? 0x7fc00000u : (254 - exponent_) << 23)) {}
  __device__ __forceinline__ float factor() const { return factor_of(exponent_); }
  /// Four packed bf16 become four bytes of either term.
  __device__ __forceinline__ void split(uint32_t first, uint32_t second, uint32_t& high, uint32_t& low) const {
    uint32_t high_second, low_second;
    split(first, high, low);
    split(second, high_second, low_second);
    high |= high_second << 16, low |= low_second << 16;
  }

 private:
  __device__ __forceinline__ void split(uint32_t pair, uint32_t& high, uint32_t& low) const {
    const float even = __uint_as_float(pair << 16) * inverse_, odd = __uint_as_float(pair & 0xffff0000u) * inverse_;
    high = ptx::cvt_rn_satfinite_e4m3x2_f32(even, odd);
    const uint32_t taken = ptx::cvt_rn_f16x2_e4m3x2(static_cast<uint16_t>(high));
    low = ptx::cvt_rn_satfinite_e4m3x2_f32(even - ptx::cvt_f32_f16(static_cast<uint16_t>(taken)),
                                           odd - ptx::cvt_f32_f16(static_cast<uint16_t>(taken >> 16)));
  }
};

/// The softmax's scale of a row that was divided by `factor`. Products of such rows and their sums are below 2^40 and,
/// unless they are 0, at least 2^-40. So the bounds change no weight: below the lower one all keys weigh the same, and
/// above the upper one the largest score has all the weight. They keep scale times product finite, and a sink divided
/// by the scale. A NaN or an infinity that the launch gives stays what it is.
__device__ __forceinline__ float scale_of_normalised(float factor, float exponent_scale) {
  const float scale = factor * exponent_scale;
  return scale < 0x1p-78f ? 0x1p-78f : scale > 0x1p78f && isfinite(exponent_scale) ? 0x1p78f : scale;
}

}  // namespace kernelwright::policy
