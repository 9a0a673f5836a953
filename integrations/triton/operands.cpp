// Shapes of models and of requests.
#include "operands.h"

#include <algorithm>
#include <limits>

#include "kernelwright/generator/checked.h"

namespace kernelwright::triton {

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

std::string text_of(const std::vector<Dimension>& shape) {
  std::string text = "[";
  for (const Dimension& dimension : shape) {
    text += text.size() > 1 ? ", " : "";
    text += dimension.name.empty() ? std::to_string(dimension.extent) : std::string(dimension.name);
  }
  return text + "]";
}

namespace {

Shape dims_of(const JsonValue& tensor) {
  Shape dims;
  if (const JsonValue* list = tensor.find("dims"))
    for (const JsonValue& extent : list->elements()) dims.push_back(extent.as_int());
  return dims;
}

/// A chosen size may be -1, any number, or one number that requests then must have.
bool fits(const Shape& dims, const std::vector<Dimension>& shape) {
  return std::equal(dims.begin(), dims.end(), shape.begin(), shape.end(), [](std::int64_t given, const Dimension& own) {
    return own.name.empty() ? given == own.extent : given >= -1;
  });
}

void compare(std::vector<Violation>& found, const std::string& list, const JsonValue& tensor, const Operand& operand) {
  const std::string place = "/" + list + "/" + operand.name;
  const std::string wanted = std::string("TYPE_") + TRITONSERVER_DataTypeString(server_type(operand.dtype));
  if (const JsonValue* type = tensor.find("data_type"); !type || type->as_string() != wanted)
    found.push_back({place + "/data_type", (type ? type->as_string() + " is given; " : "is missing; ") + wanted +
                                               " is accepted, because the problem has " +
                                               std::string(to_string(operand.dtype))});
  if (const Shape dims = dims_of(tensor); !fits(dims, operand.shape)) {
    Shape accepted;
    for (const Dimension& dimension : operand.shape) accepted.push_back(dimension.extent);
    found.push_back({place + "/dims", text_of(dims) + " is given; " + text_of(accepted) +
                                          " is accepted, because the tensor is " + text_of(operand.shape)});
  }
  if (const JsonValue* reshape = tensor.find("reshape"); reshape && !reshape->is_null())
    found.push_back({place + "/reshape", "is not supported; give the tensor's own shape as dims"});
}

void compare_list(std::vector<Violation>& found, const JsonValue& config, const std::vector<Operand>& operands,
                  bool outputs) {
  const std::string list = outputs ? "output" : "input";
  const JsonValue* given = config.find(list);
  const JsonValue::Array tensors = given ? given->elements() : JsonValue::Array{};
  std::string names;
  for (const Operand& operand : operands) {
    if (operand.is_output != outputs || operand.is_held) continue;
    names += (names.empty() ? "" : ", ") + operand.name;
    const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const JsonValue& each) {
      return each.at("/name").as_string() == operand.name;
    });
    if (tensor == tensors.end())
      found.push_back({"/" + list, "lacks " + operand.name + " " + text_of(operand.shape)});
    else
      compare(found, list, *tensor, operand);
  }
  for (const JsonValue& tensor : tensors) {
    const std::string& name = tensor.at("/name").as_string();
    const auto operand = std::find_if(operands.begin(), operands.end(), [&](const Operand& each) {
      return each.is_output == outputs && each.name == name;
    });
    if (operand != operands.end() && operand->is_held)
      found.push_back({"/" + list + "/" + name, "is in the model's weights; leave it out here"});
    else if (operand == operands.end())
      found.push_back({"/" + list + "/" + name, "is no tensor of the problem, which has " + names});
  }
}

}  // namespace

TRITONSERVER_DataType server_type(DType dtype) {
  switch (dtype) {
    case DType::kF16: return TRITONSERVER_TYPE_FP16;
    case DType::kBf16: return TRITONSERVER_TYPE_BF16;
    case DType::kF32: return TRITONSERVER_TYPE_FP32;
    default: return TRITONSERVER_TYPE_INVALID;
  }
}

std::vector<Violation> mismatches(const JsonValue& model_config, const std::vector<Operand>& operands) {
  std::vector<Violation> found;
  if (const JsonValue* size = model_config.find("max_batch_size"); size && size->as_int() != 0)
    found.push_back({"/max_batch_size",
                     std::to_string(size->as_int()) + " is given; 0 is accepted, because dims are whole shapes here"});
  compare_list(found, model_config, operands, false);
  compare_list(found, model_config, operands, true);
  return found;
}

void choose_sizes(Sizes& sizes, const Operand& operand, const Shape& shape) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("/" + operand.name, text_of(shape) + " is given, and the tensor is " + text_of(operand.shape) +
                                              (why.empty() ? "" : ": " + why));
  };
  if (shape.size() != operand.shape.size()) refuse("");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const Dimension& dimension = operand.shape[i];
    if (dimension.name.empty()) {
      if (shape[i] != dimension.extent) refuse("");
      continue;
    }
    const std::string name(dimension.name);
    if (shape[i] < 0 || shape[i] > std::numeric_limits<std::int32_t>::max())
      refuse(name + " is outside [0, 2147483647]");
    if (const auto [chosen, is_new] = sizes.try_emplace(dimension.name, shape[i]);
        !is_new && chosen->second != shape[i])
      refuse(name + " is " + std::to_string(chosen->second) + " in another input");
  }
}

Shape shape_of(const Operand& operand, const Sizes& sizes) {
  Shape shape;
  for (const Dimension& dimension : operand.shape)
    shape.push_back(dimension.name.empty() ? dimension.extent : sizes.at(dimension.name));
  return shape;
}

std::uint64_t bytes_of(const Operand& operand, const Shape& shape) {
  CheckedSize bytes = operand.dtype == DType::kF32 ? 4 : 2;  // of the dtypes that server_type() has
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  if (!bytes.at_most(kMostBytes))
    throw ConfigError("/" + operand.name, text_of(shape) + " is more than any memory has");
  return bytes.or_most();
}

}  // namespace kernelwright::triton
