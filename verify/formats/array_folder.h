/// A folder of .npy files that is read for one problem: every array is judged before any is used, so that one message
/// has all that is wrong with the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright {

/// A dimension that an array must have, and the words for why; or one that it may choose.
struct Dim {
  std::optional<std::int64_t> wanted;
  std::string why;  // "head_dim.qk is 128"
  static Dim any(std::string what = {}) { return {std::nullopt, std::move(what)}; }
  /// "NAME is VALUE"
  static Dim exactly(std::int64_t value, const std::string& name);
};

class ArrayFolder {
 public:
  /// Throws ConfigError if `folder` is none.
  explicit ArrayFolder(std::string folder);

  std::string path(const std::string& name) const;
  /// Whether NAME.npy exists.
  bool there(const std::string& name) const;
  void fault(const std::string& name, std::string message);
  /// A fault if NAME.npy exists though the problem does not read it.
  void unread(const std::string& name, bool is_read, const std::string& why);
  /// NAME.npy if its shape is right; what is wrong with it is a fault.
  template <class T>
  std::optional<NpyArray<T>> read(const std::string& name, const std::vector<Dim>& dims);
  /// Throws ConfigError with all faults if there are any.
  void require_no_fault() const;

 private:
  const std::string folder_;
  std::vector<Violation> violations_;
};
extern template std::optional<NpyArray<float>> ArrayFolder::read<float>(const std::string&, const std::vector<Dim>&);
extern template std::optional<NpyArray<std::int32_t>> ArrayFolder::read<std::int32_t>(const std::string&,
                                                                                      const std::vector<Dim>&);

/// `values` as elements of `dtype`, one behind the other.
std::vector<std::byte> encode_all(DType dtype, const std::vector<float>& values);

/// Makes `folder` if it is not there. Throws ConfigError.
void make_output_folder(const std::string& folder);

/// Writes elements of `dtype` as FOLDER/NAME.npy, in f32. Throws ConfigError.
void write_elements(const std::string& folder, const std::string& name, const std::vector<std::int64_t>& shape,
                    DType dtype, const std::vector<std::byte>& elements);

}  // namespace kernelwright
