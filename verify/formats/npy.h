/// .npy files (NumPy's array format, versions 1 and 2): little-endian numbers in C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/error.h"

namespace kernelwright {

template <class T>
struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<T> values;  // C order
};

/// Reads a file. Throws ConfigError, with `path` as the place, for a missing file, a directory, or a file that is no
/// .npy file. It also throws for a file that is cut short or longer than its shape, for another element type or byte
/// order, for Fortran order, and for more than `max_bytes`.
template <class T>
NpyArray<T> read_npy(const std::string& path, std::int64_t max_bytes = std::int64_t{1} << 36);

/// Writes a version 1 file. Throws ConfigError, with `path` as the place, if the file cannot be written.
template <class T>
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape, const std::vector<T>& values);

extern template NpyArray<float> read_npy<float>(const std::string&, std::int64_t);
extern template NpyArray<std::int32_t> read_npy<std::int32_t>(const std::string&, std::int64_t);
extern template void write_npy<float>(const std::string&, const std::vector<std::int64_t>&, const std::vector<float>&);
extern template void write_npy<std::int32_t>(const std::string&, const std::vector<std::int64_t>&,
                                             const std::vector<std::int32_t>&);

/// An array of any plain number, as its bytes.
struct NpyBytes {
  std::string descr;  // NumPy's word for the elements: "<f2"
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // C order
};

/// Reads floats, integers and bools of any size. Throws as read_npy() does.
NpyBytes read_npy_bytes(const std::string& path, std::int64_t max_bytes = std::int64_t{1} << 36);

/// Writes a version 1 file of elements that NumPy calls `descr`. Throws as write_npy() does.
void write_npy_bytes(const std::string& path, std::string_view descr, const std::vector<std::int64_t>& shape,
                     std::span<const std::byte> bytes);

/// "[2, 64, 8]"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace kernelwright
