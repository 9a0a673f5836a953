/// The tensors that a model takes and gives: their names, dtypes and shapes, and the sizes that a request chooses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/problem/enums.h"
#include "triton_api.h"

namespace kernelwright::triton {

/// A dimension of a tensor: a number of the problem, or, with a name, a size that each request chooses.
struct Dimension {
  Dimension(int number) : extent(number) {}
  Dimension(const char* size) : name(size) {}
  std::int64_t extent = -1;
  std::string_view name;
};

struct Operand {
  std::string name;  // as in config.pbtxt and in requests
  DType dtype = DType::kBf16;
  std::vector<Dimension> shape;
  bool is_output = false;
  bool is_held = false;  // by the model's weights, so that no request gives it
};

/// The sizes of one request, by name: "m".
using Sizes = std::map<std::string_view, std::int64_t>;
using Shape = std::vector<std::int64_t>;

/// "[-1, 64]", as config.pbtxt has it.
std::string text_of(const Shape& shape);
/// "[m, 64]"
std::string text_of(const std::vector<Dimension>& shape);

/// Triton's type for elements of `dtype`; TRITONSERVER_TYPE_INVALID if it has none.
TRITONSERVER_DataType server_type(DType dtype);

/// Every way in which a model's configuration, as the server gives it in JSON, does not fit the operands.
std::vector<Violation> mismatches(const JsonValue& model_config, const std::vector<Operand>& operands);

/// Adds the sizes that `shape`, of a request's input `operand`, chooses. Throws ConfigError if it contradicts the
/// problem or a size that an earlier input has chosen.
void choose_sizes(Sizes& sizes, const Operand& operand, const Shape& shape);

/// The shape of `operand` with sizes that are chosen.
Shape shape_of(const Operand& operand, const Sizes& sizes);

/// Bytes of a contiguous tensor. Throws ConfigError if no memory has as many.
std::uint64_t bytes_of(const Operand& operand, const Shape& shape);

}  // namespace kernelwright::triton
