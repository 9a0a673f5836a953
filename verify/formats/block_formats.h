/// Block-scaled formats on the host: 32 (mxfp8, mxfp4) or 16 (nvfp4) elements of k, and the scale that multiplies them.
///
/// mxfp8 has elements e4m3 and mxfp4 has elements e2m1, both with scales ue8m0: byte x is 2^(x - 127), and 0xff is NaN.
/// nvfp4 has elements e2m1 and scales ue4m3: e4m3 without a sign, and 0x7f is NaN. contract/block_scales.h says where
/// scales lie.
///
/// Quantising a block uses f32 throughout. Every step is exact or rounds once, to nearest with ties to even, so every
/// machine gets the same bits:
///   mx     scale = 2^(floor(log2(absmax)) - emax), emax = 8 for e4m3 and 2 for e2m1, but at least 2^-127. Elements are
///          x / scale rounded. The largest may lie past the format's end, and saturates: absmax / scale is below
///          2^(emax + 1), so below 512 where 448 is the end, or 8 where 6 is. (OCP Microscaling Formats v1.0, 6.3.)
///   nvfp4  scale = absmax / 6 rounded to e4m3, at most 448. Elements are x / scale rounded, saturating; if the scale
///          is 0 they are 0 without a sign.
/// An mx scale that is rounded up is 2^ceil(log2(absmax / largest)) instead, at least 2^-127, where largest is 448 of
/// e4m3 and 6 of e2m1. No element saturates then.
/// In each format, a block of zeros has scale byte 0. A NaN or an infinity turns the block into NaN: the scale is NaN,
/// the elements are 0. -0, and a value that rounds to it, stays -0, except where nvfp4's scale is 0.
///
/// With a `tensor_scale` other than 1, x / tensor_scale, rounded to f32, is quantised; a GEMM's alpha multiplies by it
/// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// The value of a scale byte of `format`, a block-scaled one.
float decode_scale(DType format, std::uint8_t byte);
/// `value` as a scale byte: a power of two for ue8m0, rounded to e4m3 for ue4m3. `value` must be finite and above 0.
std::uint8_t encode_scale(DType format, float value);
/// The NaN of the scales of `format`.
constexpr std::uint8_t nan_scale(DType format) { return format == DType::kNvfp4 ? 0x7f : 0xff; }

/// The scale byte of a block whose largest magnitude is `absmax`, a finite number.
std::uint8_t made_scale_byte(DType format, float absmax, bool round_up = false);
/// The same of a largest magnitude that is known but for an error, whose end `direction` says: -1 the lower one, 1 the
/// upper one; 0: there is no error.
std::uint8_t made_scale_byte_at(DType format, double absmax, bool round_up, int direction);

/// Quantises one block, scale_vector(format) values, to consecutive elements at `to`. Returns the scale byte.
std::uint8_t quantize_block(DType format, std::span<const float> values, std::byte* to, float tensor_scale = 1,
                            bool round_up = false);

}  // namespace kernelwright
