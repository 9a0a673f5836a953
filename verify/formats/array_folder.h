/// A folder of .npy files that is read for one problem. Every array is checked before any is used, so that one message
/// lists everything that is wrong with the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright {

/// A dimension of an array: either a required value, with the words that say why, or any value.
struct Dim {
  std::optional<std::int64_t> wanted;
  std::string why;  // "head_dim.qk is 128"
  static Dim any(std::string what = {}) { return {std::nullopt, std::move(what)}; }
  /// "NAME is VALUE"
  static Dim exactly(std::int64_t value, const std::string& name);
};

class ArrayFolder {
 public:
  /// Throws ConfigError if `folder` is no folder.
  explicit ArrayFolder(std::string folder);

  std::string path(const std::string& name) const;
  /// Whether NAME.npy exists.
  bool there(const std::string& name) const;
  void fault(const std::string& name, std::string message);
  /// Reports a fault if NAME.npy exists although the problem does not read it.
  void unread(const std::string& name, bool is_read, const std::string& why);
  /// Reads NAME.npy if its shape is right. Otherwise reports what is wrong with it as a fault.
  template <class T>
  std::optional<NpyArray<T>> read(const std::string& name, const std::vector<Dim>& dims);
  /// Throws ConfigError with all faults, if there are any.
  void require_no_fault() const;

 private:
  const std::string folder_;
  std::vector<Violation> violations_;
};
extern template std::optional<NpyArray<float>> ArrayFolder::read<float>(const std::string&, const std::vector<Dim>&);
extern template std::optional<NpyArray<std::int32_t>> ArrayFolder::read<std::int32_t>(const std::string&,
                                                                                      const std::vector<Dim>&);

/// `values` as consecutive elements of `dtype`.
std::vector<std::byte> encode_all(DType dtype, const std::vector<float>& values);

/// Creates `folder` if it does not exist. Throws ConfigError.
void make_output_folder(const std::string& folder);

/// Writes elements of `dtype` as FOLDER/NAME.npy, in f32. Throws ConfigError.
void write_elements(const std::string& folder, const std::string& name, const std::vector<std::int64_t>& shape,
                    DType dtype, const std::vector<std::byte>& elements);
/// The same for rows of a matrix, which lie `stride` elements apart.
void write_rows(const std::string& folder, const std::string& name, const std::vector<std::int64_t>& shape, DType dtype,
                std::int64_t stride, const std::vector<std::byte>& rows);

}  // namespace kernelwright
