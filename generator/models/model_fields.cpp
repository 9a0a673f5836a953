#include "kernelwright/generator/models/model_fields.h"

#include <cmath>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/reader.h"

namespace kernelwright {

const JsonValue* ModelFields::find(std::string_view field) const {
  const JsonValue* value = json_.find(field);
  return value && !value->is_null() ? value : nullptr;
}

std::optional<Fact> ModelFields::whole_from(std::string_view field, std::int64_t least) const {
  const std::string name(field);
  if (const JsonValue* value = find(field)) {
    if (!value->is_int64() || value->as_int() < least || value->as_int() > kMost)
      throw ConfigError(pointer(field), detail::found(*value) + " does not fit; it takes a whole number in [" +
                                            std::to_string(least) + ", " + std::to_string(kMost) + "]");
    return Fact(value->as_int(), pointer(field), name + " " + std::to_string(value->as_int()));
  }
  if (json_.find(field)) return std::nullopt;  // null is a value: it takes the default's place
  for (const FieldDefault& row : defaults_)
    if (row.field == field)
      return Fact(row.value, pointer(field),
                  name + " " + std::to_string(row.value) + " (default of " + std::string(model_type_) + ")");
  return std::nullopt;
}

std::optional<Fact> ModelFields::whole_if_given(std::string_view field) const { return whole_from(field, 1); }

std::optional<Fact> ModelFields::whole_above_zero(std::string_view field) const {
  std::optional<Fact> fact = whole_from(field, 0);
  return fact && fact->value() == 0 ? std::nullopt : fact;
}

Fact ModelFields::whole(std::string_view field) const {
  if (const auto fact = whole_if_given(field)) return *fact;
  throw ConfigError(pointer(field), "is missing; a config.json of model_type " + std::string(model_type_) + " has it");
}

bool ModelFields::flag(std::string_view field, bool otherwise) const {
  const JsonValue* value = find(field);
  if (!value) {
    for (const FieldDefault& row : defaults_)
      if (row.field == field) return row.value != 0;
    return otherwise;
  }
  if (!value->is_bool())
    throw ConfigError(pointer(field), detail::found(*value) + " does not fit; it takes true or false");
  return value->as_bool();
}

std::optional<double> ModelFields::number_if_given(std::string_view field) const {
  if (const JsonValue* value = find(field)) {
    if (!value->is_number() || !std::isfinite(value->as_double()) || value->as_double() <= 0)
      throw ConfigError(pointer(field), detail::found(*value) + " does not fit; it takes a number above 0");
    return value->as_double();
  }
  if (json_.find(field)) return std::nullopt;
  for (const FieldDefault& row : defaults_)
    if (row.field == field) return static_cast<double>(row.value);
  return std::nullopt;
}

std::string ModelFields::word(std::string_view field) const {
  const JsonValue* value = find(field);
  if (!value) return "";
  if (!value->is_string()) throw ConfigError(pointer(field), detail::found(*value) + " does not fit; it takes text");
  return value->as_string();
}

}  // namespace kernelwright
