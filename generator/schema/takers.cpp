#include "kernelwright/generator/schema/takers.h"

#include <charconv>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/field_rules.h"
#include "kernelwright/generator/problem/score_mods.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/row_op/plan.h"
#include "kernelwright/generator/schema/taker_probes.h"

namespace kernelwright {

using namespace detail;

namespace {

template <class T>
bool set_word(T& value, std::string_view word) {
  if constexpr (is_auto_v<T>) {
    std::remove_cvref_t<decltype(value.value())> inner{};
    if (!set_word(inner, word)) return false;
    value = inner;
    return true;
  } else if constexpr (Enum<T>) {
    const auto entry = from_string<T>(word);
    if (entry) value = *entry;
    return entry.has_value();
  } else if constexpr (std::same_as<T, bool>) {
    value = word == "true";
    return word == "true" || word == "false";
  } else if constexpr (std::same_as<T, int> || std::same_as<T, double>) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc() && end == word.data() + word.size();
  } else if constexpr (std::same_as<T, ClusterShape>) {
    const std::size_t comma = word.find(", ");
    return word.starts_with('[') && word.ends_with(']') && comma != word.npos &&
           set_word(value.m, word.substr(1, comma - 1)) &&
           set_word(value.n, word.substr(comma + 2, word.size() - comma - 3));
  } else {
    return false;  // lists and texts
  }
}

/// Sets the field at `path`, names with dots between them. Returns false if there is no such field, or if it does not
/// take the word.
template <FieldStruct T>
bool set_field(T& of, std::string_view path, std::string_view word) {
  const std::string_view first = path.substr(0, path.find('.'));
  bool set = false;
  visit_fields(of, [&](const char* name, auto& member, const auto&, const char*) {
    if (first != name) return;
    if constexpr (FieldStruct<std::remove_cvref_t<decltype(member)>>) {
      if (first.size() < path.size()) set = set_field(member, path.substr(first.size() + 1), word);
    } else {
      set = first.size() == path.size() && set_word(member, word);
    }
  });
  return set;
}

template <class KindOfConfig>
bool set_field_of(KindOfConfig& config, std::string_view path, std::string_view word) {
  const std::size_t dot = path.find('.');
  if (dot == path.npos) return false;
  const std::string_view rest = path.substr(dot + 1);
  if (path.substr(0, dot) == "problem") return set_field(config.problem, rest, word);
  if (path.substr(0, dot) == "schedule") return set_field(config.schedule, rest, word);
  return false;
}

bool has_plan(const AttentionConfig& config, Arch arch) {
  plan_by_model(config.problem, config.schedule, arch);
  return true;
}
bool has_plan(const GemmConfig& config, Arch arch) {
  plan_by_model(config.problem, config.schedule, arch);
  return true;
}

bool has_plan(const KvWriteConfig& c, Arch arch) { return plan_kv_write(c.problem, c.schedule, arch), true; }
bool has_plan(const RowOpConfig& c, Arch arch) { return plan_row_op(c.problem, c.schedule, arch), true; }
bool has_plan(const RouteConfig& c, Arch arch) { return plan_route(c.problem, c.schedule, arch), true; }
bool has_plan(const MoeCombineConfig& c, Arch arch) { return plan_moe_combine(c.problem, c.schedule, arch), true; }

template <class KindOfConfig>
bool takes(const KindOfConfig& config, Arch arch) try {
  return contradictions(config).empty() && has_plan(config, arch);
} catch (const ConfigError&) {
  return false;
}

/// The first architecture that the family is written for. For a family that runs everywhere: the oldest and the newest.
std::vector<Arch> tried_on(Family family) {
  for (const ArchInfo& row : all_archs())
    if (row.own == family) return {row.arch};
  return {all_archs().front().arch, all_archs().back().arch};
}

template <class KindOfConfig>
bool family_takes(Family family, std::string_view path, std::string_view word) {
  const KindOfConfig kind;
  for (const auto& start : starts(kind))
    for (const auto& complete : completions(kind)) {
      KindOfConfig config = plain(kind, path);
      start(config);
      if (!set_field_of(config, path, word)) return false;
      complete(config);
      set_field_of(config, path, word);  // a completion may have changed it
      if (!config.schedule.family.is_auto() && config.schedule.family.value() != family) return false;
      config.schedule.family = family;
      std::vector<Arch> archs = tried_on(family);
      if (!config.schedule.arch.is_auto()) archs = {config.schedule.arch.value()};
      for (const Arch arch : archs)
        if (takes(config, arch)) return true;
    }
  return false;
}

}  // namespace

std::vector<Family> families_that_take(std::string_view kind, std::string_view path, std::string_view word) {
  std::vector<Family> families;
  // What the one family of a kind takes needs no name of a family.
  const bool of_kv_write = kind == "kv_write" && family_takes<KvWriteConfig>(Family::kPortable, path, word);
  const bool of_row_op = kind == "row_op" && family_takes<RowOpConfig>(Family::kPortable, path, word);
  const bool of_route = kind == "route" && family_takes<RouteConfig>(Family::kPortable, path, word);
  const bool of_moe_combine = kind == "moe_combine" && family_takes<MoeCombineConfig>(Family::kPortable, path, word);
  for (const auto& [family, name] : EnumTable<Family>::entries) {
    const bool taken = kind == "attention" ? family_takes<AttentionConfig>(family, path, word)
                       : kind == "gemm"    ? family_takes<GemmConfig>(family, path, word)
                                           : of_kv_write || of_row_op || of_route || of_moe_combine;
    if (taken) families.push_back(family);
  }
  return families;
}

std::vector<std::int64_t> probes(const range& rule) {
  std::vector<std::int64_t> values{rule.low};
  for (const std::int64_t value : {1, 2, 3, 4, 6, 8, 12, 16, 32, 48, 64, 96, 128, 160, 192, 256})
    if (value > values.back() && value < rule.high && (value - rule.low) % rule.step == 0) values.push_back(value);
  if (rule.high > values.back()) values.push_back(rule.high);
  return values;
}

std::string names_of(const std::vector<Family>& families) {
  if (families.empty()) return "no family";
  if (families.size() == kAllFamilies) return "all families";
  std::string names;
  for (const Family family : families) names.append(names.empty() ? "" : ", ").append(to_string(family));
  return names;
}

}  // namespace kernelwright
