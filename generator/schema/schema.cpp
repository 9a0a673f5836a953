#include "kernelwright/generator/schema/schema.h"

#include "kernelwright/generator/json/value.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/schema/takers.h"

namespace kernelwright {
namespace {

using detail::to_json;

/// A field of a problem or a schedule; of a shape, with an empty path.
struct Place {
  std::string_view kind;
  std::string path;  // "problem.mask.kind"; "" in a shape, whose words no family chooses
  Place at(const char* name) const { return {kind, path.empty() ? "" : path + "." + name}; }
};

template <class T, class Rule>
JsonValue schema_of(T& value, const Rule& rule, const Place& place);

/// An object schema with the struct's fields.
template <FieldStruct T>
JsonValue object_schema(T& value, const Place& place) {
  JsonValue properties = JsonValue::object();
  JsonValue needed = JsonValue::array();
  visit_fields(value, [&](const char* name, auto& member, const auto& rule, const char* doc) {
    JsonValue schema = schema_of(member, bare_rule(rule), place.at(name));
    schema.set("description", doc);
    if (is_required_v<std::remove_cvref_t<decltype(rule)>>)
      needed.push(name);
    else if (JsonValue json = to_json(member); !json.is_object() && !json.is_array() && !json.is_null())
      schema.set("default", std::move(json));
    properties.set(name, std::move(schema));
  });
  JsonValue schema = JsonValue::object();
  schema.set("type", "object").set("properties", std::move(properties));
  if (!needed.elements().empty()) schema.set("required", std::move(needed));
  return schema.set("additionalProperties", false);
}

JsonValue rule_schema(const range& rule) {
  JsonValue schema = JsonValue::object();
  schema.set("type", "integer").set("minimum", rule.low).set("maximum", rule.high);
  if (rule.step > 1 && rule.low % rule.step == 0) schema.set("multipleOf", rule.step);
  return schema;
}

JsonValue reference(const char* definition) {
  return JsonValue::object({{"$ref", std::string("#/$defs/") + definition}});
}

template <Enum E>
JsonValue words_schema(bool or_auto, const Place& place) {
  JsonValue words = JsonValue::array();
  if (or_auto) words.push("auto");
  for (const auto& [entry, word] : EnumTable<E>::entries)
    if (place.path.empty() || !families_that_take(place.kind, place.path, word).empty()) words.push(word);
  return JsonValue::object({{"enum", std::move(words)}});
}

template <class T>
JsonValue auto_schema(Auto<T>&, const auto& rule, const Place& place) {
  if constexpr (Enum<T>) return words_schema<T>(true, place);
  T value{};
  return JsonValue::object(
      {{"anyOf", JsonValue::array({JsonValue::object({{"const", "auto"}}), schema_of(value, rule, place)})}});
}

template <class T, class Rule>
JsonValue schema_of(T& value, const Rule& rule, const Place& place) {
  if constexpr (is_auto_v<T>) {
    return auto_schema(value, rule, place);
  } else if constexpr (Enum<T>) {
    return words_schema<T>(false, place);
  } else if constexpr (is_list_v<T>) {
    typename T::value_type element{};
    return JsonValue::object({{"type", "array"}, {"items", schema_of(element, rule, place)}});
  } else if constexpr (std::same_as<T, ClusterShape>) {
    return JsonValue::object(
        {{"type", "array"}, {"items", rule_schema(kClusterRule)}, {"minItems", 2}, {"maxItems", 2}});
  } else if constexpr (std::same_as<T, Mask>) {
    return reference("mask");  // masks hold masks
  } else if constexpr (std::same_as<T, std::optional<KvWriteProblem>>) {
    return reference("kv_write/properties/problem");
  } else if constexpr (FieldStruct<T>) {
    return object_schema(value, place);
  } else if constexpr (std::same_as<T, bool>) {
    return JsonValue::object({{"type", "boolean"}});
  } else if constexpr (std::same_as<Rule, range>) {
    return rule_schema(rule);
  } else if constexpr (std::same_as<Rule, real_range>) {
    return JsonValue::object({{"type", "number"}, {"minimum", rule.low}, {"maximum", rule.high}});
  } else {
    return JsonValue::object({{"type", "string"}, {"maxLength", rule.max_length}});
  }
}

template <class KindConfig>
JsonValue config_schema(const char* kind) {
  KindConfig config;
  typename decltype(config.shapes)::value_type shape;
  const JsonValue auto_or_object =
      JsonValue::array({JsonValue::object({{"const", "auto"}}), object_schema(config.schedule, {kind, "schedule"})});
  JsonValue name = JsonValue::object({{"type", "string"}, {"pattern", "^[A-Za-z0-9._-]{1,64}$"}});
  JsonValue properties =
      JsonValue::object({{"version", JsonValue::object({{"const", 1}})},
                         {"kind", JsonValue::object({{"const", kind}})},
                         {"name", std::move(name)},
                         {"problem", object_schema(config.problem, {kind, "problem"})},
                         {"schedule", JsonValue::object({{"anyOf", auto_or_object}, {"default", "auto"}})},
                         {"shapes", JsonValue::object({{"type", "array"}, {"items", object_schema(shape, {})}})}});
  return JsonValue::object({{"type", "object"},
                            {"properties", std::move(properties)},
                            {"required", JsonValue::array({"version", "kind", "name", "problem"})},
                            {"additionalProperties", false}});
}

}  // namespace

std::string json_schema() {
  Mask mask;
  JsonValue definitions = JsonValue::object({{"attention", config_schema<AttentionConfig>("attention")},
                                             {"gemm", config_schema<GemmConfig>("gemm")},
                                             {"kv_write", config_schema<KvWriteConfig>("kv_write")},
                                             {"row_op", config_schema<RowOpConfig>("row_op")},
                                             {"route", config_schema<RouteConfig>("route")},
                                             {"moe_combine", config_schema<MoeCombineConfig>("moe_combine")},
                                             {"mask", object_schema(mask, {"attention", "problem.mask"})}});
  const JsonValue schema = JsonValue::object(
      {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
       {"title", "Kernelwright config"},
       {"description", "One problem, an optional schedule, and shapes to check, bench and tune with."},
       {"oneOf", JsonValue::array({reference("attention"), reference("gemm"), reference("kv_write"),
                                   reference("row_op"), reference("route"), reference("moe_combine")})},
       {"$defs", std::move(definitions)}});
  return schema.dump() + "\n";
}

}  // namespace kernelwright
