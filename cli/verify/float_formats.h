/// The small float formats on the host, one value at a time: f16, bf16, e4m3, e5m2 and f32. Round to nearest, ties to
/// even. Overflow follows PTX: f16 and bf16 go to infinity, the 8-bit formats saturate (cvt.rn.satfinite) and have one
/// NaN, 0x7f.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernelwright/generator/enums.h"

namespace kernelwright {

/// The bits of `value` in `dtype`, in the low end of the word. `dtype` is one of the five formats above.
std::uint32_t encode_float(DType dtype, float value);
/// The value of `bits`: exact, every one of the five formats is a subset of f32.
float decode_float(DType dtype, std::uint32_t bits);
/// The value of `value` once rounded to `dtype`.
float round_to(DType dtype, float value);

/// Bytes of one element of the five formats.
std::size_t bytes_of(DType dtype);

/// What rounding to a format costs.
struct FloatFormat {
  double unit_roundoff;  // relative error of rounding a value in the normal range: 2^-(significand bits)
  double half_smallest;  // absolute error of rounding below it: half of the smallest subnormal
  double largest;        // largest finite value
};
FloatFormat float_format(DType dtype);

/// Reads `count` consecutive elements at `from`, which needs no alignment.
void decode_row(DType dtype, const std::byte* from, std::size_t count, double* to);
/// Writes `values` as consecutive elements at `to`.
void encode_row(DType dtype, std::span<const float> values, std::byte* to);
/// Fills `bytes` (a whole number of elements) with NaN of `dtype`.
void fill_with_nan(DType dtype, std::span<std::byte> bytes);

}  // namespace kernelwright
