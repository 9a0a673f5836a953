// Computes scales from the bits of absmax, and elements by float_formats.
#include "kernelwright/verify/formats/block_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/rows_verdict.h"

namespace kernelwright {
namespace {

constexpr int kScaleBias = 127;
constexpr std::size_t kLongest = 32;  // elements of a block
constexpr float kLargestElement = 6;  // of e2m1

int largest_exponent(DType format) { return format == DType::kMxfp8 ? 8 : 2; }

/// floor(log2(value)) of a finite value > 0.
int exponent_of(float value) { return std::ilogb(value); }

}  // namespace

std::uint8_t made_scale_byte(DType format, float absmax, bool round_up) {
  if (format == DType::kNvfp4) return static_cast<std::uint8_t>(encode_float(DType::kE4m3, absmax / kLargestElement));
  if (absmax == 0) return 0;
  int exponent = exponent_of(absmax) - largest_exponent(format);
  const double largest = format == DType::kMxfp8 ? 448 : kLargestElement;
  if (round_up && absmax > std::ldexp(largest, exponent)) ++exponent;
  return static_cast<std::uint8_t>(std::max(exponent, -kScaleBias) + kScaleBias);
}

std::uint8_t made_scale_byte_at(DType format, double absmax, bool round_up, int direction) {
  const float magnitude = direction == 0 ? static_cast<float>(absmax) : direction < 0 ? below(absmax) : above(absmax);
  return made_scale_byte(format, std::max(magnitude, 0.f), round_up);
}

float decode_scale(DType format, std::uint8_t byte) {
  if (format == DType::kNvfp4) return decode_float(DType::kE4m3, byte & 0x7fu);
  return byte == nan_scale(format) ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.f, byte - kScaleBias);
}

std::uint8_t encode_scale(DType format, float value) {
  if (format == DType::kNvfp4) return static_cast<std::uint8_t>(encode_float(DType::kE4m3, value));
  return static_cast<std::uint8_t>(exponent_of(value) + kScaleBias);
}

std::uint8_t quantize_block(DType format, std::span<const float> values, std::byte* to, float tensor_scale,
                            bool round_up) {
  std::array<float, kLongest> scaled{};
  const auto block = std::span(scaled).first(values.size());
  bool finite = true;
  float absmax = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    block[i] = tensor_scale == 1 ? values[i] : values[i] / tensor_scale;
    finite = finite && std::isfinite(block[i]);
    absmax = std::max(absmax, std::fabs(block[i]));
  }
  const std::uint8_t byte = finite ? made_scale_byte(format, absmax, round_up) : nan_scale(format);
  const float scale = decode_scale(format, byte);
  // The f32 quotient rounds to the same element as the exact quotient. A division by a power of two is exact where it
  // matters. A division by a scale of 4 bits never rounds a value onto the middle between two elements if it lies
  // beside the middle.
  for (float& value : block) value = !finite || scale == 0 ? 0 : value / scale;
  encode_row(format, block, to);
  return byte;
}

}  // namespace kernelwright
