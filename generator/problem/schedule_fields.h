/// Inside of the generator: schedules of either kind, field by field.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright::detail {

/// Calls `pair` with the name and both values of each field of two schedules.
template <class Schedule, class Pair>
void visit_both(Schedule& a, Schedule& b, Pair&& pair) {
  visit_fields(a, [&](const char* name, auto& value, const auto&, const char*) {
    visit_fields(b, [&](const char* other_name, auto& other, const auto&, const char*) {
      if constexpr (std::is_same_v<decltype(value), decltype(other)>)
        if (std::string_view(name) == other_name) pair(name, value, other);
    });
  });
}

/// The fields that `schedule` gives.
template <class Schedule>
std::set<std::string> given_fields(Schedule schedule) {
  std::set<std::string> names;
  visit_fields(schedule, [&](const char* name, const auto& value, const auto&, const char*) {
    if (!value.is_auto()) names.insert(name);
  });
  return names;
}

/// `schedule` with its auto fields from `row`; `filled` gets their names.
template <class Schedule>
Schedule merged(Schedule schedule, Schedule row, std::set<std::string>& filled) {
  visit_both(schedule, row, [&](const char* name, auto& value, const auto& from) {
    if (!value.is_auto() || from.is_auto()) return;
    value = from;
    filled.insert(name);
  });
  return schedule;
}

/// How many fields two schedules give different values.
template <class Schedule>
int fields_apart(Schedule a, Schedule b) {
  int apart = 0;
  visit_both(a, b, [&](const char*, const auto& value, const auto& other) { apart += !(value == other); });
  return apart;
}

}  // namespace kernelwright::detail
