/// Inside of config_json and config_schema: a field's value as JSON.
#pragma once

#include <concepts>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/problem/field_rules.h"

namespace kernelwright::detail {

/// Turns any value of a field into JSON. Members of a struct that are at their default are left out, unless required.
template <class T>
JsonValue to_json(T& value) {
  if constexpr (Enum<T>) {
    return to_string(value);
  } else if constexpr (is_auto_v<T>) {
    if (value.is_auto()) return "auto";
    auto given = value.value();
    return to_json(given);
  } else if constexpr (is_optional_v<T>) {
    return value ? to_json(*value) : JsonValue();  // as its default, an absent one is left out
  } else if constexpr (is_list_v<T>) {
    JsonValue list = JsonValue::array();
    for (auto& element : value) list.push(to_json(element));
    return list;
  } else if constexpr (std::same_as<T, ClusterShape>) {
    return JsonValue::array({value.m, value.n});
  } else if constexpr (FieldStruct<T>) {
    std::vector<JsonValue> defaults;  // in the same order; a recursive struct has empty lists, so this ends
    T fresh{};
    visit_fields(fresh,
                 [&](const char*, auto& member, const auto&, const char*) { defaults.push_back(to_json(member)); });
    JsonValue object = JsonValue::object();
    std::size_t at = 0;
    visit_fields(value, [&](const char* name, auto& member, const auto& rule, const char*) {
      JsonValue json = to_json(member);
      const bool is_default = json == defaults[at++];
      if (is_required_v<std::remove_cvref_t<decltype(rule)>> || !is_default) object.set(name, std::move(json));
    });
    return object;
  } else {
    return value;
  }
}

}  // namespace kernelwright::detail
