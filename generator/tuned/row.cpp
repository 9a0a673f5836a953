#include "kernelwright/generator/tuned/row.h"

#include <algorithm>
#include <utility>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/json/field_reader.h"
#include "kernelwright/generator/json/value.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/field_rules.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kVersion = 1;

/// What a source costs is its own: rows of one say nothing of another.
std::string source_text(const PolicySource& source) { return ":" + sha256(source.text).hex().substr(0, 16); }

std::string mask_text(const Mask& mask) {
  std::string text(to_string(mask.kind));
  if (mask.kind == MaskKind::kSource) text += source_text(mask.source);
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

template <class Fields>
std::string one_line(Fields fields) {
  return detail::to_json(fields).dump(-1);
}

void check_launches(const TunedFor<AttentionConfig>&, detail::ViolationList&) {}
void check_launches(const TunedFor<GemmConfig>& launches, detail::ViolationList& violations) {
  const RowRange rows = launches.rows;
  if (rows.least > rows.most)
    violations.add("/rows/most", std::to_string(rows.most) + " is less than /rows/least, " +
                                     std::to_string(rows.least) + "; it takes that or more");
}

template <class KindOfConfig>
TunedRowOf<KindOfConfig> read_row(const JsonValue& json, detail::ViolationList& violations) {
  TunedRowOf<KindOfConfig> row;
  detail::FieldReader(violations).read(without_version(json), "", row, any{});
  if (!violations.empty()) return row;
  if (arch_of(row.device) != row.arch)
    violations.add("/device", std::string(to_string(row.device)) + " is a device of " +
                                  std::string(to_string(arch_of(row.device))) + ", and /arch is " +
                                  std::string(to_string(row.arch)));
  check_launches(row.launches, violations);
  if (row.schedule.family.is_auto()) violations.add("/schedule/family", "is missing; a row is of one kernel family");
  if (!row.schedule.arch.is_auto())
    violations.add("/schedule/arch", "has no meaning in a row; /arch says it, so leave it out");
  if (const std::string wanted = tuning_class(row.problem); row.tuning_class != wanted)
    violations.add("/class", quoted_for_message(row.tuning_class) + " is not the problem's; it takes " +
                                 quoted_for_message(wanted));
  return row;
}

template <class KindOfConfig>
std::string write_row(TunedRowOf<KindOfConfig> row) {
  JsonValue json = JsonValue::object();
  json.set("version", kVersion);
  const JsonValue fields = detail::to_json(row);
  for (const auto& [key, value] : fields.members()) json.set(key, value);
  return json.dump() + "\n";
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
  if (problem.score_mod.kind == ScoreModKind::kSource) text += source_text(problem.score_mod.source);
  if (problem.scales != ScaleKind::kNone) add(to_string(problem.scales));
  if (problem.rope.width) add("rope" + std::to_string(problem.rope.width));
  if (problem.v_layout != VLayout::kRows) add(to_string(problem.v_layout));
  if (problem.cache_length != CacheLength::kAccurate) add(to_string(problem.cache_length));
  add(problem.max_q_len > 0 ? "decode" : "prefill");
  return text;
}

std::string tuning_class(const GemmProblem& problem) {
  std::string text = "gemm";
  const auto add = [&](std::string_view word) { text.append(" ").append(word); };
  const auto [a, b, d, c] = problem.dtype;
  add(to_string(a));
  if (b != a) add(to_string(b));
  if (d != a) add("to " + std::string(to_string(d)));
  add(to_string(problem.layout));
  if (problem.scales != ScaleKind::kNone) add(to_string(problem.scales));
  if (problem.fast_accumulation) add("fast");
  if (problem.batch_invariant) add("batch_invariant");
  if (const GemmGroups& groups = problem.groups; groups.any())
    add(std::to_string(groups.count) + " groups " + std::string(to_string(groups.kind)) +
        (groups.gather ? " gathered" : "") + (groups.scatter ? " scattered" : "") +
        (groups.pointers ? " pointers" : ""));
  return text + " " + std::to_string(problem.n) + " x " + std::to_string(problem.k);
}

std::string canonical_text(const AttentionProblem& problem) { return one_line(problem); }
std::string canonical_text(const GemmProblem& problem) { return one_line(problem); }
std::string canonical_text(const AttentionSchedule& schedule) { return one_line(schedule); }
std::string canonical_text(const GemmSchedule& schedule) { return one_line(schedule); }

AnyTunedRow read_tuned_row(std::string_view text) {
  std::vector<Violation> duplicates;
  const JsonValue json = JsonValue::parse(text, &duplicates);
  if (!json.is_object()) throw ConfigError("", detail::found(json) + " is no tuned row; a row is an object");
  detail::ViolationList violations;
  for (Violation& duplicate : duplicates) violations.add(std::move(duplicate.path), std::move(duplicate.message));
  check_version(json, violations);
  // The kind says which fields there are. One that is missing is told by the fields of attention.
  const JsonValue* kind = json.find("kind");
  const std::string word = kind && kind->is_string() ? kind->as_string() : kKindWord<AttentionConfig>;
  if (word != kKindWord<AttentionConfig> && word != kKindWord<GemmConfig>)
    throw ConfigError("/kind", quoted_for_message(word) + " rows are not read; it takes attention or gemm");
  AnyTunedRow row;
  if (word == kKindWord<GemmConfig>)
    row = read_row<GemmConfig>(json, violations);
  else
    row = read_row<AttentionConfig>(json, violations);
  if (!violations.empty()) throw ConfigError(violations.take());
  return row;
}

std::string write_tuned_row(const TunedRow& row) { return write_row(row); }
std::string write_tuned_row(const GemmTunedRow& row) { return write_row(row); }

}  // namespace kernelwright
