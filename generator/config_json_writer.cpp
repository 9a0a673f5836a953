// Config -> JSON, over the same field lists as the reader.
#include "kernelwright/generator/config_json.h"
#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/field_rules.h"

namespace kernelwright {
namespace {

template <FieldStruct T>
JsonValue to_json(T& value);

template <class T>
requires(!FieldStruct<T>) JsonValue to_json(T& value) {
  if constexpr (Enum<T>) {
    return to_string(value);
  } else if constexpr (is_auto_v<T>) {
    if (value.is_auto()) return "auto";
    auto given = value.value();
    return to_json(given);
  } else if constexpr (is_list_v<T>) {
    JsonValue list = JsonValue::array();
    for (auto& element : value) list.push(to_json(element));
    return list;
  } else if constexpr (std::same_as<T, ClusterShape>) {
    return JsonValue::array({value.m, value.n});
  } else {
    return value;
  }
}

template <FieldStruct T>
JsonValue to_json(T& value) {
  // The defaults' members, in the same order; a recursive struct has empty lists, so this ends.
  std::vector<JsonValue> defaults;
  T fresh{};
  visit_fields(fresh,
               [&](const char*, auto& member, const auto&, const char*) { defaults.push_back(to_json(member)); });
  JsonValue object = JsonValue::object();
  std::size_t at = 0;
  visit_fields(value, [&](const char* name, auto& member, const auto& rule, const char*) {
    JsonValue json = to_json(member);
    if (is_required_v<std::remove_cvref_t<decltype(rule)>> || json != defaults[at]) object.set(name, std::move(json));
    ++at;
  });
  return object;
}

template <class KindConfig>
JsonValue envelope(const char* kind, KindConfig config) {
  JsonValue json = JsonValue::object();
  json.set("version", 1).set("kind", kind).set("name", config.name).set("problem", to_json(config.problem));
  if (config.schedule != decltype(config.schedule){}) json.set("schedule", to_json(config.schedule));
  if (!config.shapes.empty()) json.set("shapes", to_json(config.shapes));
  return json;
}

}  // namespace

std::string write_config(const Config& config) {
  const auto* attention = std::get_if<AttentionConfig>(&config);
  const JsonValue json = attention ? envelope("attention", *attention) : envelope("gemm", std::get<GemmConfig>(config));
  return json.dump() + "\n";
}

}  // namespace kernelwright
