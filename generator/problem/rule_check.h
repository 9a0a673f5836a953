/// Inside of the generator: rules of a config that need no kernel family.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/field_rules.h"
#include "kernelwright/generator/problem/problem.h"

namespace kernelwright::detail {

inline std::string in_quotes(std::string_view word) { return "\"" + std::string(word) + "\""; }

/// The place of a field, as a chain of steps on the stack. Its text is made only for a violation: making the text of
/// every field took half of the time of a plan.
struct FieldPlace {
  const FieldPlace* parent = nullptr;
  std::string_view step = {};  // of the root, the whole pointer
  std::size_t index = 0;       // of an element, where `step` is empty

  std::string pointer() const {
    if (parent == nullptr) return std::string(step);
    return step.empty() ? pointer_to(parent->pointer(), index) : pointer_to(parent->pointer(), step);
  }
};

/// Checks each field by its own rule. The JSON reader has done so already, but code may fill structs freely.
class RuleCheck {
 public:
  explicit RuleCheck(std::vector<Violation>& violations) : violations_(violations) {}

  template <FieldStruct T>
  void check(T& value, const FieldPlace& at, any) {
    visit_fields(value, [&](const char* name, auto& member, const auto& rule, const char*) {
      check(member, FieldPlace{&at, name}, bare_rule(rule));
    });
  }
  template <class T, class Rule>
  void check(Auto<T>& value, const FieldPlace& at, const Rule& rule) {
    if (value.is_auto()) return;
    T given = value.value();
    check(given, at, rule);
  }
  template <class T>
  void check(std::optional<T>& value, const FieldPlace& at, any rule) {
    if (value) check(*value, at, rule);
  }
  template <class T, class Rule>
  void check(std::vector<T>& list, const FieldPlace& at, const Rule& rule) {
    if (list.empty()) return;
    if (++depth_ > kMaxMaskDepth)
      violations_.push_back({at.pointer(), "masks nest at most " + std::to_string(kMaxMaskDepth) + " deep"});
    else
      for (std::size_t i = 0; i < list.size(); ++i) check(list[i], FieldPlace{&at, {}, i}, rule);
    --depth_;
  }
  template <Enum E>
  void check(E& value, const FieldPlace& at, any) {
    if (to_string(value) == "?")
      violations_.push_back({at.pointer(), std::to_string(static_cast<int>(value)) + " is no " +
                                               std::string(EnumTable<E>::name) + "; it takes one of " +
                                               join(words_of<E>())});
  }
  void check(ClusterShape& value, const FieldPlace& at, any) {
    check(value.m, FieldPlace{&at, {}, 0}, kClusterRule);
    check(value.n, FieldPlace{&at, {}, 1}, kClusterRule);
  }
  void check(bool&, const FieldPlace&, any) {}
  template <class T, class Rule>
  requires requires(T value, Rule rule) { verdict(value, rule); }
  void check(T& value, const FieldPlace& at, const Rule& rule) {
    if (auto why = verdict(value, rule)) violations_.push_back({at.pointer(), std::move(*why)});
  }

 private:
  std::vector<Violation>& violations_;
  int depth_ = 0;
};

/// Checks every field of a config by its own rule, also the name and the shapes' names.
template <class KindConfig>
void check_fields(KindConfig config, std::vector<Violation>& violations) {
  RuleCheck rules(violations);
  rules.check(config.problem, FieldPlace{nullptr, "/problem"}, any{});
  rules.check(config.schedule, FieldPlace{nullptr, "/schedule"}, any{});
  if (auto why = name_verdict(config.name); why && !config.name.empty())
    violations.push_back({"/name", std::move(*why)});
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < config.shapes.size(); ++i) {
    const std::string path = pointer_to("/shapes", i);
    rules.check(config.shapes[i], FieldPlace{nullptr, path}, any{});
    const std::string& name = config.shapes[i].name;
    if (auto why = name_verdict(name))
      violations.push_back({path + "/name", std::move(*why)});
    else if (!names.insert(name).second)
      violations.push_back(
          {path + "/name", quoted_for_message(name) + " names an earlier shape too; each needs its own"});
  }
}

/// Checks the schedule's family and arch, and the wanted arch, against each other.
template <class Schedule>
void check_family(const Schedule& schedule, std::vector<Violation>& violations) {
  if (schedule.family.is_auto() || schedule.arch.is_auto()) return;
  const Family family = schedule.family.value();
  if (!family_exists_on(family, schedule.arch.value()))
    violations.push_back({"/schedule/family", std::string(to_string(family)) + " kernels do not run on " +
                                                  std::string(to_string(schedule.arch.value())) + "; they run on " +
                                                  std::string(archs_of(family))});
}

/// Checks that `count` elements of `dtype`, a row of operand `of`, are whole 16 bytes. The field at `path` has the
/// count.
void check_row(const char* path, int count, DType dtype, const char* of, std::vector<Violation>& violations);

/// Checks values that lie in columns: a product of 8-bit values takes 16 keys of an element at once.
void check_v_layout(VLayout v_layout, DType kv, const KvLayout& layout, std::vector<Violation>& violations);

/// Checks what the cache that a GEMM writes goes with. The problem has one.
void check_kv_write(const GemmProblem& problem, std::vector<Violation>& violations);

/// Whether `value` is one of `values`.
template <class T>
bool is_one_of(const T& value, std::initializer_list<T> values) {
  for (const T& one : values)
    if (one == value) return true;
  return false;
}

/// Refuses a value beside `values`, with their words.
template <Enum E>
void takes(const char* path, E found, std::initializer_list<E> values, std::vector<Violation>& violations) {
  if (is_one_of(found, values)) return;
  std::string words;
  std::size_t left = values.size();
  for (const E value : values) words.append(to_string(value)).append(--left == 1 ? " or " : left > 0 ? ", " : "");
  violations.push_back({path, in_quotes(to_string(found)) + " does not fit; it takes " + words});
}

}  // namespace kernelwright::detail
