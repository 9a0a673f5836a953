/// Inside of the generator: reads a config's parts from JSON, and finds what is wrong with them. field_reader.h has the
/// walk.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/moe.h"

namespace kernelwright::detail {

/// Collects violations, up to a bound: a file of nothing but mistakes must not fill the memory with messages.
class ViolationList {
 public:
  void add(std::string path, std::string message) {
    if (++count_ <= kMostShown) list_.push_back({std::move(path), std::move(message)});
  }
  bool empty() const { return count_ == 0; }
  const std::vector<Violation>& shown() const { return list_; }
  /// All of them, with a last entry that counts those left out.
  std::vector<Violation> take() {
    if (count_ > kMostShown) list_.push_back({"", "and " + std::to_string(count_ - kMostShown) + " more"});
    return std::move(list_);
  }

 private:
  static constexpr std::size_t kMostShown = 64;
  std::size_t count_ = 0;
  std::vector<Violation> list_;
};

/// Fill `problem`, `schedule` and `shapes` from the value at `path`. A field with a wrong value keeps its default, and
/// the fault is added to `violations`.
void read_into(const JsonValue& json, const std::string& path, AttentionProblem& problem, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, GemmProblem& problem, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, KvWriteProblem& problem, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, RowOpProblem& problem, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, RouteProblem& problem, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, MoeCombineProblem& problem, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, MoeProblem& problem, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, KvWriteSchedule& schedule, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, RowOpSchedule& schedule, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, RouteSchedule& schedule, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, MoeCombineSchedule& schedule, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, AttentionSchedule& schedule, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, GemmSchedule& schedule, ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, std::vector<AttentionShape>& shapes,
               ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, std::vector<GemmShape>& shapes,
               ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, std::vector<KvWriteShape>& shapes,
               ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, std::vector<RowOpShape>& shapes,
               ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, std::vector<RouteShape>& shapes,
               ViolationList& violations);
void read_into(const JsonValue& json, const std::string& path, std::vector<MoeCombineShape>& shapes,
               ViolationList& violations);

/// Adds a violation for each key of `json` that is not one of `fields`.
void refuse_unknown_keys(const JsonValue& json, const std::string& path, const std::vector<std::string_view>& fields,
                         ViolationList& violations);

/// `value` as a message shows it: a number or a word as written, an aggregate by its kind.
std::string found(const JsonValue& value);

}  // namespace kernelwright::detail
