/// The small float formats on the host, one value at a time: f16, bf16, e4m3, e5m2, e2m1, tf32 and f32. They round to
/// nearest, ties to even. Overflow follows PTX: f16 and bf16 go to infinity. The 8-bit formats saturate
/// (cvt.rn.satfinite) and have one NaN, 0x7f. e2m1 saturates and has no NaN: NaN becomes 6.
///
/// mxfp8 stands for its elements, e4m3, and mxfp4 and nvfp4 for theirs, e2m1; block_formats.h has their scales. tf32
/// lies in memory as the f32 that it was given, and its value is that of the upper 19 bits, which products read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// The bits of `value` in `dtype`, in the low end of the word.
std::uint32_t encode_float(DType dtype, float value);
/// The value of `bits`. It is exact, because every format is a subset of f32.
float decode_float(DType dtype, std::uint32_t bits);
/// The value of `value` after rounding to `dtype`.
float round_to(DType dtype, float value);

/// Bytes of one element. Not for 4-bit elements, which lie two to a byte.
std::size_t bytes_of(DType dtype);
/// Bytes that `count` consecutive elements need, rounded up to whole bytes.
std::size_t bytes_of(DType dtype, std::size_t count);

/// The rounding errors of a format.
struct FloatFormat {
  double unit_roundoff;  // relative error of rounding a value in the normal range: 2^-(significand bits)
  double half_smallest;  // absolute error of rounding below that range: half of the smallest subnormal
  double largest;        // largest finite value
};
FloatFormat float_format(DType dtype);

/// Reads `count` consecutive elements at `from`, which may be unaligned. 4-bit elements begin in the low half of a
/// byte.
void decode_row(DType dtype, const std::byte* from, std::size_t count, double* to);
/// Writes `values` as consecutive elements at `to`. After an odd number of 4-bit elements, the last half byte is 0.
void encode_row(DType dtype, std::span<const float> values, std::byte* to);
/// Fills `bytes` (a whole number of elements) with NaN of `dtype`. e2m1 has no NaN, so it gets its largest value.
void fill_with_nan(DType dtype, std::span<std::byte> bytes);

}  // namespace kernelwright
