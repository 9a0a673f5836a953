/// Which kernel families take a value of a field. No list here says so. The code plans configs that hold the value for
/// each family, so that validate() and the planner have the only rules. docs/config.md and the JSON Schema show the
/// result; they hold no word that no family takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/field_rules.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

/// The families that have a kernel for some config of `kind` ("attention", "gemm") whose field `path` is `word`:
/// {"attention", "problem.mask.kind", "causal"}, {"gemm", "schedule.swap_ab", "true"}, {"gemm", "schedule.stages",
/// "4"}. They come in the order of Family. The result is empty if no family does, if there is no such field, or if the
/// field has no such word.
std::vector<Family> families_that_take(std::string_view kind, std::string_view path, std::string_view word);

/// The whole numbers that are tried for a field of `rule`: its ends, and the usual ones between them.
std::vector<std::int64_t> probes(const range& rule);

/// The values that are tried for a field of type T: an enum's words, true and false, probes(), clusters of up to 8
/// CTAs, fractions. Empty for types without such values: texts and lists.
template <class T, class Rule>
std::vector<std::string> values_tried(const Rule& rule) {
  std::vector<std::string> values;
  if constexpr (is_auto_v<T>) {
    return values_tried<std::remove_cvref_t<decltype(T().value())>>(rule);
  } else if constexpr (Enum<T>) {
    for (const auto& [entry, word] : EnumTable<T>::entries) values.emplace_back(word);
  } else if constexpr (std::same_as<T, bool>) {
    values = {"true", "false"};
  } else if constexpr (std::same_as<T, ClusterShape>) {
    values = {"[1, 1]", "[1, 2]", "[1, 4]", "[1, 8]", "[2, 1]", "[2, 2]", "[2, 4]", "[4, 1]", "[4, 2]", "[8, 1]"};
  } else if constexpr (std::same_as<Rule, range>) {
    for (const std::int64_t value : probes(rule)) values.push_back(std::to_string(value));
  } else if constexpr (std::same_as<Rule, real_range>) {
    values = {"0", "0.25", "1"};
  }
  return values;
}

inline constexpr std::size_t kAllFamilies = EnumTable<Family>::entries.size();

/// "all families", "hopper, blackwell"; "no family" for none.
std::string names_of(const std::vector<Family>& families);

}  // namespace kernelwright
