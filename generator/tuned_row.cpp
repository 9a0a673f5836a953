#include "kernelwright/generator/tuned_row.h"

#include <algorithm>
#include <utility>

#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/config_json_reader.h"
#include "kernelwright/generator/config_json_value.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/field_rules.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kVersion = 1;

std::string mask_text(const Mask& mask) {
  std::string text(to_string(mask.kind));
  if (mask.operands.empty()) return text;
  text += "(";
  for (std::size_t i = 0; i < mask.operands.size(); ++i) text += (i ? "," : "") + mask_text(mask.operands[i]);
  return text + ")";
}

void check_version(const JsonValue& json, detail::ViolationList& violations) {
  const JsonValue* version = json.find("version");
  if (!version)
    violations.add("/version", "is missing; this library reads version " + std::to_string(kVersion));
  else if (!version->is_int64() || version->as_int() != kVersion)
    violations.add("/version", detail::found(*version) +
                                   " is not a version that this library reads; it reads version " +
                                   std::to_string(kVersion));
}

/// The fields without "version", which is no field of the row.
JsonValue without_version(const JsonValue& json) {
  JsonValue rest = JsonValue::object();
  for (const auto& [key, value] : json.members())
    if (key != "version") rest.set(key, value);
  return rest;
}

}  // namespace

std::string tuning_class(const AttentionProblem& problem) {
  std::string text(to_string(problem.dtype.q));
  const auto add = [&](std::string_view word) { text.append(" ").append(word); };
  if (problem.dtype.kv != problem.dtype.q) add(to_string(problem.dtype.kv));
  add(std::to_string(problem.head_dim.qk) + "/" + std::to_string(problem.head_dim.v));
  add(to_string(problem.kv_layout.kind));
  add(mask_text(problem.mask));
  if (problem.score_mod.kind != ScoreModKind::kNone) add(to_string(problem.score_mod.kind));
  if (problem.score_mod.kind == ScoreModKind::kExpr) add(problem.score_mod.expr.substr(0, 64));
  if (problem.scales != ScaleKind::kNone) add(to_string(problem.scales));
  if (problem.rope.width) add("rope" + std::to_string(problem.rope.width));
  if (problem.cache_length != CacheLength::kAccurate) add(to_string(problem.cache_length));
  add(problem.max_q_len > 0 ? "decode" : "prefill");
  return text;
}

std::string canonical_text(const AttentionProblem& problem) {
  AttentionProblem copy = problem;
  return detail::to_json(copy).dump(-1);
}

std::string canonical_text(const AttentionSchedule& schedule) {
  AttentionSchedule copy = schedule;
  return detail::to_json(copy).dump(-1);
}

TunedRow read_tuned_row(std::string_view text) {
  std::vector<Violation> duplicates;
  const JsonValue json = JsonValue::parse(text, &duplicates);
  if (!json.is_object()) throw ConfigError("", detail::found(json) + " is no tuned row; a row is an object");
  detail::ViolationList violations;
  for (Violation& duplicate : duplicates) violations.add(std::move(duplicate.path), std::move(duplicate.message));
  check_version(json, violations);
  TunedRow row;
  detail::read_into(without_version(json), "", row, violations);
  if (violations.empty()) {
    if (row.kind != "attention")
      violations.add("/kind", quoted_for_message(row.kind) + " rows are not read yet; it takes attention");
    if (row.schedule.family.is_auto()) violations.add("/schedule/family", "is missing; a row is of one kernel family");
    if (!row.schedule.arch.is_auto())
      violations.add("/schedule/arch", "has no meaning in a row; /arch says it, so leave it out");
    if (const std::string wanted = tuning_class(row.problem); row.tuning_class != wanted)
      violations.add("/class", quoted_for_message(row.tuning_class) + " is not the problem's; it takes " +
                                   quoted_for_message(wanted));
  }
  if (!violations.empty()) throw ConfigError(violations.take());
  return row;
}

std::string write_tuned_row(const TunedRow& row) {
  TunedRow copy = row;
  JsonValue json = JsonValue::object();
  json.set("version", kVersion);
  const JsonValue fields = detail::to_json(copy);
  for (const auto& [key, value] : fields.members()) json.set(key, value);
  return json.dump() + "\n";
}

}  // namespace kernelwright
