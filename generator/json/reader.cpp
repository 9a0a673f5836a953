#include "kernelwright/generator/json/reader.h"

#include <algorithm>

#include "kernelwright/generator/json/field_reader.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/problem/field_rules.h"

namespace kernelwright::detail {

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& words) {
  const std::string_view meant = nearest(word, words);
  return meant.empty() ? "" : " (did you mean \"" + std::string(meant) + "\"?)";
}

std::string found(const JsonValue& value) {
  if (value.is_string()) return quoted_for_message(value.as_string());
  if (value.is_array()) return "an array of " + std::to_string(value.elements().size());
  if (value.is_object()) return "an object";
  return value.dump();
}

void refuse_unknown_keys(const JsonValue& json, const std::string& path, const std::vector<std::string_view>& fields,
                         ViolationList& violations) {
  for (const auto& [key, unused] : json.members()) {
    if (std::find(fields.begin(), fields.end(), key) != fields.end()) continue;
    violations.add(pointer_to(path, key),
                   "is not a field here" + did_you_mean(key, fields) + "; the fields are " + join(fields));
  }
}

void read_into(const JsonValue& json, const std::string& path, AttentionProblem& problem, ViolationList& violations) {
  FieldReader(violations).read(json, path, problem, any{});
}
void read_into(const JsonValue& json, const std::string& path, GemmProblem& problem, ViolationList& violations) {
  FieldReader(violations).read(json, path, problem, any{});
}
void read_into(const JsonValue& json, const std::string& path, KvWriteProblem& problem, ViolationList& violations) {
  FieldReader(violations).read(json, path, problem, any{});
}
void read_into(const JsonValue& json, const std::string& path, RowOpProblem& problem, ViolationList& violations) {
  FieldReader(violations).read(json, path, problem, any{});
}
void read_into(const JsonValue& json, const std::string& path, RouteProblem& problem, ViolationList& violations) {
  FieldReader(violations).read(json, path, problem, any{});
}
void read_into(const JsonValue& json, const std::string& path, MoeCombineProblem& problem, ViolationList& violations) {
  FieldReader(violations).read(json, path, problem, any{});
}
void read_into(const JsonValue& json, const std::string& path, MoeProblem& problem, ViolationList& violations) {
  FieldReader(violations).read(json, path, problem, any{});
}
void read_into(const JsonValue& json, const std::string& path, KvWriteSchedule& schedule, ViolationList& violations) {
  FieldReader(violations).read_schedule(json, path, schedule);
}
void read_into(const JsonValue& json, const std::string& path, RowOpSchedule& schedule, ViolationList& violations) {
  FieldReader(violations).read_schedule(json, path, schedule);
}
void read_into(const JsonValue& json, const std::string& path, RouteSchedule& schedule, ViolationList& violations) {
  FieldReader(violations).read_schedule(json, path, schedule);
}
void read_into(const JsonValue& json, const std::string& path, MoeCombineSchedule& schedule,
               ViolationList& violations) {
  FieldReader(violations).read_schedule(json, path, schedule);
}
void read_into(const JsonValue& json, const std::string& path, AttentionSchedule& schedule, ViolationList& violations) {
  FieldReader(violations).read_schedule(json, path, schedule);
}
void read_into(const JsonValue& json, const std::string& path, GemmSchedule& schedule, ViolationList& violations) {
  FieldReader(violations).read_schedule(json, path, schedule);
}
void read_into(const JsonValue& json, const std::string& path, std::vector<AttentionShape>& shapes,
               ViolationList& violations) {
  FieldReader(violations).read(json, path, shapes, any{});
}
void read_into(const JsonValue& json, const std::string& path, std::vector<GemmShape>& shapes,
               ViolationList& violations) {
  FieldReader(violations).read(json, path, shapes, any{});
}
void read_into(const JsonValue& json, const std::string& path, std::vector<KvWriteShape>& shapes,
               ViolationList& violations) {
  FieldReader(violations).read(json, path, shapes, any{});
}
void read_into(const JsonValue& json, const std::string& path, std::vector<RowOpShape>& shapes,
               ViolationList& violations) {
  FieldReader(violations).read(json, path, shapes, any{});
}
void read_into(const JsonValue& json, const std::string& path, std::vector<RouteShape>& shapes,
               ViolationList& violations) {
  FieldReader(violations).read(json, path, shapes, any{});
}
void read_into(const JsonValue& json, const std::string& path, std::vector<MoeCombineShape>& shapes,
               ViolationList& violations) {
  FieldReader(violations).read(json, path, shapes, any{});
}

}  // namespace kernelwright::detail
