/// Inside of the generator: the walk over the fields of any struct that fills it from JSON.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernelwright/generator/json/reader.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/problem/field_rules.h"

namespace kernelwright::detail {

inline constexpr std::string_view kOrAuto = " or \"auto\"";

/// " (did you mean \"stages\"?)", or nothing where no word is close.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& words);

/// The walk. There is one read() for each kind of value. `or_auto` is appended to messages about values that may be
/// "auto".
class FieldReader {
 public:
  explicit FieldReader(ViolationList& violations) : violations_(violations) {}

  template <FieldStruct T>
  void read(const JsonValue& json, const std::string& path, T& value, any, std::string_view or_auto = "") {
    if (!json.is_object()) return wrong_type(json, path, "an object", or_auto);
    std::vector<std::string_view> fields;
    visit_fields(value, [&](const char* name, auto& member, const auto& rule, const char* doc) {
      fields.push_back(name);
      const std::string at = pointer_to(path, name);
      if (const JsonValue* found = json.find(name))
        read(*found, at, member, bare_rule(rule));
      else if constexpr (is_required_v<std::remove_cvref_t<decltype(rule)>>)
        violations_.add(at, std::string("is missing and has no default (") + doc + ")");
    });
    refuse_unknown_keys(json, path, fields, violations_);
  }

  template <class T, class Rule>
  void read(const JsonValue& json, const std::string& path, Auto<T>& value, const Rule& rule) {
    if (json.is_string() && json.as_string() == "auto") {
      value = {};
      return;
    }
    T given{};
    const bool was_clean = clean_;
    clean_ = true;
    read(json, path, given, rule, kOrAuto);
    if (clean_) value = Auto<T>(std::move(given));
    clean_ = clean_ && was_clean;
  }

  /// A struct that a config may have.
  template <class T>
  void read(const JsonValue& json, const std::string& path, std::optional<T>& value, any) {
    read(json, path, value.emplace(), any{});
  }

  void read(const JsonValue& json, const std::string& path, int& value, const range& rule,
            std::string_view or_auto = "") {
    if (!json.is_integer()) return wrong_type(json, path, describe(rule), or_auto);
    if (!json.is_int64())
      return add(path,
                 found(json) + " is outside [" + std::to_string(rule.low) + ", " + std::to_string(rule.high) + "]");
    if (auto why = verdict(json.as_int(), rule)) return add(path, std::move(*why));
    value = static_cast<int>(json.as_int());
  }

  void read(const JsonValue& json, const std::string& path, double& value, const real_range& rule,
            std::string_view or_auto = "") {
    if (!json.is_number()) return wrong_type(json, path, describe(rule), or_auto);
    if (auto why = verdict(json.as_double(), rule)) return add(path, std::move(*why));
    value = json.as_double();
  }

  void read(const JsonValue& json, const std::string& path, bool& value, any, std::string_view or_auto = "") {
    if (!json.is_bool()) return wrong_type(json, path, "true or false", or_auto);
    value = json.as_bool();
  }

  void read(const JsonValue& json, const std::string& path, std::string& value, const text& rule,
            std::string_view or_auto = "") {
    if (!json.is_string()) return wrong_type(json, path, describe(rule), or_auto);
    if (auto why = verdict(json.as_string(), rule)) return add(path, std::move(*why));
    value = json.as_string();
  }

  void read(const JsonValue& json, const std::string& path, std::string& value, const lines& rule,
            std::string_view or_auto = "") {
    if (!json.is_string()) return wrong_type(json, path, describe(rule), or_auto);
    if (auto why = verdict(json.as_string(), rule)) return add(path, std::move(*why));
    value = json.as_string();
  }

  template <Enum E>
  void read(const JsonValue& json, const std::string& path, E& value, any, std::string_view or_auto = "") {
    if (!json.is_string()) return wrong_type(json, path, "one of " + join(words_of<E>()), or_auto);
    if (const auto entry = from_string<E>(json.as_string())) {
      value = *entry;
      return;
    }
    add(path, found(json) + " is no " + std::string(EnumTable<E>::name) +
                  did_you_mean(json.as_string(), words_of<E>()) + "; it takes one of " + join(words_of<E>()) +
                  std::string(or_auto));
  }

  /// [m, n]
  void read(const JsonValue& json, const std::string& path, ClusterShape& value, any, std::string_view or_auto = "") {
    if (!json.is_array() || json.elements().size() != 2) return wrong_type(json, path, "two numbers, [m, n]", or_auto);
    read(json.elements()[0], pointer_to(path, 0), value.m, kClusterRule);
    read(json.elements()[1], pointer_to(path, 1), value.n, kClusterRule);
  }

  template <class T, class Rule>
  void read(const JsonValue& json, const std::string& path, std::vector<T>& value, const Rule& rule) {
    if (!json.is_array()) return wrong_type(json, path, "an array", "");
    if (json.elements().empty()) return value.clear();
    if (FieldStruct<T> && json.elements().size() > kMaxListedObjects)
      return add(path, found(json) + " does not fit; it takes at most " + std::to_string(kMaxListedObjects));
    if constexpr (std::same_as<T, Mask>) {
      if (mask_depth_ == kMaxMaskDepth)
        return add(path, "masks nest at most " + std::to_string(kMaxMaskDepth) + " deep");
      ++mask_depth_;
    }
    std::vector<T> elements(json.elements().size());
    for (std::size_t i = 0; i < elements.size(); ++i) read(json.elements()[i], pointer_to(path, i), elements[i], rule);
    value = std::move(elements);
    if constexpr (std::same_as<T, Mask>) --mask_depth_;
  }

  /// A whole schedule may be the word "auto".
  template <FieldStruct T>
  void read_schedule(const JsonValue& json, const std::string& path, T& schedule) {
    if (json.is_string() && json.as_string() == "auto") return;
    read(json, path, schedule, any{}, kOrAuto);
  }

 private:
  void add(const std::string& path, std::string message) {
    clean_ = false;
    violations_.add(path, std::move(message));
  }
  void wrong_type(const JsonValue& json, const std::string& path, std::string_view wanted, std::string_view or_auto) {
    add(path, found(json) + " does not fit; it takes " + std::string(wanted) + std::string(or_auto));
  }

  ViolationList& violations_;
  bool clean_ = true;  // no violation was added since the read of an Auto began
  int mask_depth_ = 0;
};

}  // namespace kernelwright::detail
