/// Judges a value by its field's rule, and words the verdict. The JSON reader and validate() share this code. A verdict
/// says what was found; nullopt means that the value is fine.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

struct IgnoreField {
  template <class... Arguments>
  void operator()(Arguments&&...) const {}
};

/// A struct with a visit_fields().
template <class T>
concept FieldStruct = requires(T& value) {
  visit_fields(value, IgnoreField{});
};

template <class T>
inline constexpr bool is_auto_v = false;
template <class T>
inline constexpr bool is_auto_v<Auto<T>> = true;

template <class T>
inline constexpr bool is_list_v = false;
template <class T>
inline constexpr bool is_list_v<std::vector<T>> = true;

template <class T>
inline constexpr bool is_optional_v = false;
template <class T>
inline constexpr bool is_optional_v<std::optional<T>> = true;

template <class R>
inline constexpr bool is_required_v = false;
template <class R>
inline constexpr bool is_required_v<required<R>> = true;

/// The rule without its `required`.
template <class R>
constexpr auto bare_rule(const R& rule) {
  if constexpr (is_required_v<R>)
    return rule.rule;
  else
    return rule;
}

inline constexpr int kMaxMaskDepth = 8;         // and/or within and/or
inline constexpr int kMaxListedObjects = 1024;  // shapes of a config, operands of a mask
inline constexpr range kClusterRule{1, 16};     // CTAs of a cluster along m or n
inline constexpr int kMaxNameLength = 64;

/// "a whole number in [16, 256] in steps of 16", "text of at most 64 bytes", "one of f16, bf16".
std::string describe(const range& rule);
std::string describe(const real_range& rule);
std::string describe(const text& rule);
std::string describe(const lines& rule);

std::optional<std::string> verdict(std::int64_t value, const range& rule);
std::optional<std::string> verdict(double value, const real_range& rule);
std::optional<std::string> verdict(const std::string& value, const text& rule);
std::optional<std::string> verdict(const std::string& value, const lines& rule);

/// Whether `name` is [A-Za-z0-9._-]{1,64} and no run of dots: fit for a file name and a kernel entry.
std::optional<std::string> name_verdict(std::string_view name);

/// The word of `words` that `word` most likely stands for, "" if none is close.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words);

template <Enum E>
std::vector<std::string_view> words_of() {
  std::vector<std::string_view> words;
  for (const auto& [entry, word] : EnumTable<E>::entries) words.push_back(word);
  return words;
}

}  // namespace kernelwright
