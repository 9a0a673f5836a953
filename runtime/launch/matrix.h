/// A matrix operand of a launch, as callers describe it.
#pragma once

#include <cstdint>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::detail {

/// A matrix in memory: `rows` rows of `columns` elements, `stride` elements apart.
struct Matrix {
  DevicePtr address = 0;
  DType dtype = DType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;

  // Callers give these numbers. So each result is INT64_MAX if its product leaves 64 bits: fits_memory() refuses those.
  std::int64_t row_bytes() const { return (CheckedInt(columns) * bits_of(dtype)).or_most() / 8; }
  std::int64_t stride_bytes() const {
    // Rounds to whole bytes first: strides of 4-bit elements may be odd.
    const int bits = bits_of(dtype);
    return bits >= 8 ? (CheckedInt(stride) * (bits / 8)).or_most() : stride / (8 / bits);
  }
  /// Bytes from the first element to behind the last.
  std::int64_t bytes() const { return rows > 0 ? (CheckedInt(rows - 1) * stride_bytes() + row_bytes()).or_most() : 0; }
  /// Whether such a matrix can exist at its address.
  bool fits_memory() const {
    return stride_bytes() <= kMostBytes && is_span(address, static_cast<std::uint64_t>(bytes()));
  }
  bool overlaps(const Matrix& other) const {
    return address < other.address ? other.address - address < static_cast<DevicePtr>(bytes())
                                   : address - other.address < static_cast<DevicePtr>(other.bytes());
  }
  /// Whether rows of both have bytes in common. With one stride, rows may lie side by side in one buffer.
  bool shares_rows_with(const Matrix& other) const {
    if (!overlaps(other)) return false;
    const std::int64_t stride_of_both = stride_bytes();
    if (stride_of_both != other.stride_bytes() || stride_of_both == 0) return true;
    const bool first = address < other.address;
    const auto distance = static_cast<std::int64_t>((first ? other.address - address : address - other.address) %
                                                    static_cast<DevicePtr>(stride_of_both));
    const std::int64_t low = first ? row_bytes() : other.row_bytes(), high = first ? other.row_bytes() : row_bytes();
    return distance < low || stride_of_both - distance < high;
  }
};

}  // namespace kernelwright::detail
