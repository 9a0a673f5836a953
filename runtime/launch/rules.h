/// The rules of a launch's arguments that all kinds share, each with its one sentence. A kind derives from
/// ArgumentRules and adds its own. A launch comes here only if it may break a rule; rules that hold make no text and
/// allocate nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/launch/matrix.h"

namespace kernelwright::detail {

class ArgumentRules {
 public:
  /// Every rule that was broken, in the order in which the rules were asked; paths begin with "/tensors".
  std::vector<Violation> broken() && { return std::move(violations_); }

 protected:
  /// `message()` makes the text, and is called only if the rule is broken.
  template <class Message>
  void bad(bool broken, std::string_view path, const Message& message) {
    if (broken) violations_.push_back({"/tensors" + std::string(path), message()});
  }
  void not_negative(std::string_view path, std::int64_t value);
  void sm_budget(int budget);
  void pdl(bool wanted, bool has_pdl, Arch arch);

  void not_null(std::string_view path, DevicePtr address);
  void aligned(std::string_view path, DevicePtr address, int bytes);
  void row_holds(std::string_view stride_path, const Matrix& matrix);      // a stride is a row or more
  void within_memory(std::string_view stride_path, const Matrix& matrix);  // asked of strides that hold a row
  /// All four, of the operand `path` whose stride is `path` + "_stride".
  void matrix(const std::string& path, const Matrix& matrix, int alignment);
  /// And a stride that keeps every row on the alignment.
  void rows_of(const std::string& path, const Matrix& matrix, int alignment);
  void span_within_memory(std::string_view path, DevicePtr address, std::uint64_t bytes);
  /// `purpose()` makes what follows "are needed": "to add 4 parts of k; see GemmKernel::workspace_bytes()".
  template <class Purpose>
  void workspace(DevicePtr address, std::uint64_t given, std::uint64_t needed, const Purpose& purpose) {
    bad(!address || given < needed, "/workspace",
        [&] { return too_small_workspace(address ? given : 0, needed, purpose()); });
    aligned("/workspace", address, 16);
    span_within_memory("/workspace", address, needed);
  }

 private:
  static std::string too_small_workspace(std::uint64_t given, std::uint64_t needed, const std::string& purpose);

  std::vector<Violation> violations_;
};

}  // namespace kernelwright::detail
