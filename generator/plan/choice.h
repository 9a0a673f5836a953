/// What a plan says of each resolved field: the value, its source and the reason.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

enum class ChosenBy { kModel, kSchedule, kRow, kNeighbour };
/// "model", "schedule", "row", "neighbour"
std::string_view to_string(ChosenBy by);

/// One resolved field: its value, the source of the value and the reason, for people.
struct Choice {
  std::string field, value, reason;
  ChosenBy by = ChosenBy::kModel;
};

/// The plan of a kind of config.
template <class KindOfConfig>
struct PlanOfKind;
template <class KindOfConfig>
using PlanOf = typename PlanOfKind<KindOfConfig>::type;

namespace detail {

/// Takes the schedule's value or the planner's, and keeps the reason.
class Resolver {
 public:
  explicit Resolver(std::vector<Choice>& choices) : choices_(choices) {}

  template <class T>
  T operator()(const char* field, const Auto<T>& asked, T planned, std::string reason) {
    const T value = asked.value_or(planned);
    choices_.push_back({field, text_of(value), asked.is_auto() ? std::move(reason) : "the schedule says so"});
    return value;
  }
  template <class T>
  void derived(const char* field, T value, std::string reason) {
    choices_.push_back({field, text_of(value), std::move(reason)});
  }

 private:
  static std::string text_of(int value) { return std::to_string(value); }
  static std::string text_of(double value);
  static std::string text_of(bool value) { return value ? "true" : "false"; }
  static std::string text_of(ClusterShape value) {
    return "[" + std::to_string(value.m) + ", " + std::to_string(value.n) + "]";
  }
  template <Enum E>
  static std::string text_of(E value) {
    return std::string(to_string(value));
  }
  std::vector<Choice>& choices_;
};

}  // namespace detail
}  // namespace kernelwright
