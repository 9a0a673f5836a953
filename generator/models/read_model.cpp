// A config.json's envelope: which part describes the language model, its type, and what else the file has.
#include <algorithm>

#include "kernelwright/generator/json/field_reader.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/models/families.h"
#include "kernelwright/generator/models/model.h"

namespace kernelwright {
namespace {

using detail::FamilyRow;

DType read_dtype(const JsonValue& json, const JsonValue& text) {
  for (const JsonValue* object : {&json, &text})
    for (const char* field : {"dtype", "torch_dtype"}) {
      const JsonValue* value = object->find(field);
      if (!value || value->is_null()) continue;
      if (*value == JsonValue("float16")) return DType::kF16;
      // Servers run checkpoints of float32 in 16 bits.
      if (*value == JsonValue("bfloat16") || *value == JsonValue("float32")) return DType::kBf16;
      throw ConfigError(pointer_to("", field),
                        detail::found(*value) + " does not fit; it takes bfloat16, float16 or float32");
    }
  return DType::kBf16;
}

/// The part of the file that describes a language model of a known type, its place, and its type.
struct TextPart {
  const JsonValue* json;
  std::string path, type;
};
TextPart text_part(const JsonValue& json) {
  const auto type_of = [](const JsonValue& object) {
    const JsonValue* type = object.find("model_type");
    return type && type->is_string() ? type->as_string() : std::string();
  };
  const std::string type = type_of(json);
  if (const JsonValue* text = json.find("text_config"); text && !text->is_null()) {
    if (!text->is_object())
      throw ConfigError("/text_config", detail::found(*text) + " does not fit; it takes an object");
    const std::string own = type_of(*text);
    return {text, "/text_config", own.empty() ? type + "_text" : own};
  }
  return {&json, "", type};
}

/// Parts of a model beside its language model's layers.
void add_other_parts(const JsonValue& json, const ModelFields& fields, Model& model) {
  for (const char* part : {"vision", "audio"})
    if (const JsonValue* encoder = json.find(std::string(part) + "_config"); encoder && encoder->is_object())
      model.missing.push_back({std::string(part) + " encoder", "", "",
                               std::string(part) + "_config is not read; a plan has the language model alone"});
  if (const auto layers = fields.whole_above_zero("num_nextn_predict_layers"))
    model.missing.push_back({"multi-token prediction", layers_text({model.layers}), layers->formula(),
                             "its layers are not planned; a draft model has a plan of its own"});
  model.missing.push_back({"norms of hidden states, activations, sampling", "", "",
                           "a plan has attention, its cache, GEMMs and experts alone; the server's own kernels serve"});
}

}  // namespace

std::vector<std::string_view> known_model_types() {
  std::vector<std::string_view> types;
  for (const FamilyRow& row : detail::family_rows()) types.push_back(row.type);
  return types;
}

JsonValue parse_model_json(std::string_view text) {
  try {
    return JsonValue::parse(text);
  } catch (const ConfigError& error) {
    std::vector<Violation> violations = error.violations();
    const std::size_t colon = text.find_last_of(':');
    const std::size_t close = colon == text.npos || colon == 0 ? text.npos : text.rfind('"', colon - 1);
    const std::size_t open = close == text.npos || close == 0 ? text.npos : text.rfind('"', close - 1);
    if (violations[0].message.find("ends before it is complete") != std::string::npos && open != text.npos)
      violations[0].message += "; the file is cut short behind the field " +
                               quoted_for_message(text.substr(open + 1, close - open - 1)) + ", fetch it again";
    throw ConfigError(std::move(violations));
  }
}

Model read_model(const JsonValue& json, Sharding& sharding) {
  if (!json.is_object()) throw ConfigError("", detail::found(json) + " is no config.json, which is an object");
  const TextPart part = text_part(json);
  const auto rows = detail::family_rows();
  const auto row = std::ranges::find(rows, std::string_view(part.type), &FamilyRow::type);
  if (row == rows.end())
    throw ConfigError(part.path + "/model_type",
                      (part.type.empty() ? "is missing" : quoted_for_message(part.type) + " is not known here") +
                          detail::did_you_mean(part.type, known_model_types()) + "; it takes one of " +
                          join(known_model_types()));
  const ModelFields fields(*part.json, part.path, row->type, row->defaults);
  Model model{.type = std::string(row->type), .dtype = read_dtype(json, *part.json)};
  model.quantization = read_quantization(json);
  detail::fill_model(fields, *row, sharding, model);
  add_other_parts(json, fields, model);
  return model;
}

}  // namespace kernelwright
