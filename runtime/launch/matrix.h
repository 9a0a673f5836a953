/// A matrix operand of a launch, as callers describe it.
#pragma once

#include <cstdint>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::detail {

/// A matrix in memory: `rows` rows of `columns` elements, `stride` elements apart. Or a batch of `count` of them, whose
/// first rows are `batch_stride` elements apart.
struct Matrix {
  DevicePtr address = 0;
  DType dtype = DType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::int64_t count = 1, batch_stride = 0;

  // Callers give these numbers. So each result is INT64_MAX if its product leaves 64 bits: fits_memory() refuses those.
  std::int64_t row_bytes() const { return (CheckedInt(columns) * bits_of(dtype)).or_most() / 8; }
  std::int64_t stride_bytes() const { return bytes_apart(stride); }
  std::int64_t batch_stride_bytes() const { return bytes_apart(batch_stride); }
  /// Bytes from the first element to behind the last.
  std::int64_t bytes() const {
    if (rows <= 0) return 0;
    const CheckedInt one = CheckedInt(rows - 1) * stride_bytes() + row_bytes();
    return (count > 1 ? CheckedInt(count - 1) * batch_stride_bytes() + one : one).or_most();
  }
  /// Whether such a matrix can exist at its address.
  bool fits_memory() const {
    return stride_bytes() <= kMostBytes && (count <= 1 || batch_stride_bytes() <= kMostBytes) &&
           is_span(address, static_cast<std::uint64_t>(bytes()));
  }
  /// Whether no two rows of a batch have an element in common.
  bool rows_are_apart() const {
    if (count <= 1 || rows <= 0) return true;
    if (rows == 1) return batch_stride >= columns;
    const bool behind = batch_stride >= stride;  // else the rows of all of them with one number lie side by side
    const std::int64_t near = behind ? stride : batch_stride, far = behind ? batch_stride : stride;
    return near >= columns && far >= (CheckedInt((behind ? rows : count) - 1) * near + columns).or_most();
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

 private:
  std::int64_t bytes_apart(std::int64_t elements) const {
    // Rounds to whole bytes first: strides of 4-bit elements may be odd.
    const int bits = bits_of(dtype);
    return bits >= 8 ? (CheckedInt(elements) * (bits / 8)).or_most() : elements / (8 / bits);
  }
};

}  // namespace kernelwright::detail
