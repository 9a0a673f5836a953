// The envelope of a config: version, kind, name, and the three parts that config_json_reader fills.
#include "kernelwright/generator/json/config_json.h"

#include <algorithm>
#include <concepts>
#include <filesystem>

#include "kernelwright/generator/json/reader.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/field_rules.h"

namespace kernelwright {
namespace {

using detail::found;
using detail::ViolationList;

constexpr std::int64_t kVersion = 1;
// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kFields =
    *new std::vector<std::string_view>{"version", "kind", "name", "problem", "schedule", "shapes"};
const std::vector<std::string_view>& kKinds =
    *new std::vector<std::string_view>{"attention", "gemm", "kv_write", "row_op", "route", "moe_combine"};

/// Whether a rule about `path` may depend on a value that could not be read. Such a value is in the object that has
/// `path` as a member, or it holds that object.
bool rests_on_unread(const std::string& path, const std::vector<Violation>& unread) {
  const std::string parent = path.substr(0, path.rfind('/'));
  return std::any_of(unread.begin(), unread.end(), [&](const Violation& violation) {
    return violation.path.starts_with(parent) || path.starts_with(violation.path);
  });
}

/// Reads the headers that a config names by a file, and resolves places of references, both relative to `folder`.
void read_source(PolicySource& source, const std::string& path, const std::filesystem::path& folder,
                 ViolationList& violations) {
  for (std::string* place : {&source.reference.library, &source.reference.array})
    if (!place->empty()) *place = std::filesystem::absolute(folder / *place).string();  // and the same read again
  if (source.file.empty() || !source.text.empty()) return;
  try {
    source.text = read_small_file((folder / source.file).string(), {"a header", "a text", lines{}.max_length});
    if (auto why = verdict(source.text, lines{}))
      violations.add(path + "/file", quoted_for_message(source.file) + " " + *why);
    if (source.text.empty()) violations.add(path + "/file", quoted_for_message(source.file) + " is empty");
  } catch (const ConfigError& error) {
    violations.add(path + "/file", error.what());
  }
}

void read_sources(Mask& mask, const std::string& path, const std::filesystem::path& folder, ViolationList& violations) {
  if (mask.kind == MaskKind::kSource) read_source(mask.source, path, folder, violations);
  for (std::size_t i = 0; i < mask.operands.size(); ++i)
    read_sources(mask.operands[i], pointer_to(path + "/operands", i), folder, violations);
}

/// Adds what contradicts itself, if all that it rests on could be read. Throws if anything is wrong.
template <class KindConfig>
void require_sound(const KindConfig& config, ViolationList& violations) {
  const std::vector<Violation> unread = violations.shown();
  for (Violation& violation : contradictions(config))
    if (!rests_on_unread(violation.path, unread)) violations.add(violation.path, std::move(violation.message));
  if (!violations.empty()) throw ConfigError(violations.take());
}

void read_problem(const JsonValue& json, auto& problem, ViolationList& violations) {
  if (const JsonValue* given = json.find("problem"))
    detail::read_into(*given, "/problem", problem, violations);
  else
    violations.add("/problem", "is missing; it says what to compute");
}

template <class KindConfig>
KindConfig read_kind(const JsonValue& json, std::string name, const std::filesystem::path* folder,
                     ViolationList& violations) {
  KindConfig config;
  config.name = std::move(name);
  read_problem(json, config.problem, violations);
  if constexpr (std::same_as<KindConfig, AttentionConfig>) {
    if (folder) {
      ScoreMod& mod = config.problem.score_mod;
      read_sources(config.problem.mask, "/problem/mask", *folder, violations);
      if (mod.kind == ScoreModKind::kSource) read_source(mod.source, "/problem/score_mod", *folder, violations);
    }
  }
  if (const JsonValue* schedule = json.find("schedule"))
    detail::read_into(*schedule, "/schedule", config.schedule, violations);
  if (const JsonValue* shapes = json.find("shapes")) detail::read_into(*shapes, "/shapes", config.shapes, violations);
  require_sound(config, violations);
  return config;
}

MoeConfig read_layer(const JsonValue& json, std::string name, ViolationList& violations) {
  MoeConfig config;
  config.name = std::move(name);
  read_problem(json, config.problem, violations);
  for (const char* field : {"schedule", "shapes"})
    if (json.find(field))
      violations.add(std::string("/") + field, "has no meaning for a layer of several kernels; leave it out");
  require_sound(config, violations);
  return config;
}

void read_version(const JsonValue& json, ViolationList& violations) {
  const JsonValue* version = json.find("version");
  if (!version)
    violations.add("/version", "is missing; this library reads version " + std::to_string(kVersion));
  else if (!version->is_int64() || version->as_int() != kVersion)
    violations.add("/version", found(*version) + " is not a version that this library reads; it reads version " +
                                   std::to_string(kVersion));
}

std::string read_name(const JsonValue& json, ViolationList& violations) {
  const JsonValue* name = json.find("name");
  if (!name)
    violations.add("/name", "is missing; a config has a name for reports and file names");
  else if (!name->is_string())
    violations.add("/name", found(*name) + " does not fit; it takes text");
  else if (auto why = name_verdict(name->as_string()))
    violations.add("/name", std::move(*why));
  else
    return name->as_string();
  return "";
}

bool is_layer(const JsonValue* kind) { return kind && kind->is_string() && kind->as_string() == "moe"; }

std::variant<Config, MoeConfig> read(const JsonValue& json, std::vector<Violation> duplicates,
                                     const std::filesystem::path* folder, bool takes_layers) {
  if (!json.is_object()) throw ConfigError("", found(json) + " is no config; a config is an object");
  ViolationList violations;
  for (Violation& duplicate : duplicates) violations.add(std::move(duplicate.path), std::move(duplicate.message));
  detail::refuse_unknown_keys(json, "", kFields, violations);
  read_version(json, violations);
  std::string name = read_name(json, violations);
  const JsonValue* kind = json.find("kind");
  if (kind && kind->is_string() && kind->as_string() == "attention")
    return read_kind<AttentionConfig>(json, std::move(name), folder, violations);
  if (kind && kind->is_string() && kind->as_string() == "gemm")
    return read_kind<GemmConfig>(json, std::move(name), folder, violations);
  if (kind && kind->is_string() && kind->as_string() == "kv_write")
    return read_kind<KvWriteConfig>(json, std::move(name), folder, violations);
  if (kind && kind->is_string() && kind->as_string() == "row_op")
    return read_kind<RowOpConfig>(json, std::move(name), folder, violations);
  if (kind && kind->is_string() && kind->as_string() == "route")
    return read_kind<RouteConfig>(json, std::move(name), folder, violations);
  if (kind && kind->is_string() && kind->as_string() == "moe_combine")
    return read_kind<MoeCombineConfig>(json, std::move(name), folder, violations);
  if (is_layer(kind) && takes_layers) return read_layer(json, std::move(name), violations);
  if (is_layer(kind))
    violations.add(
        "/kind", "\"moe\" is a layer of several kernels, which an engine prepares; here stands one of " + join(kKinds));
  else
    violations.add("/kind", (kind ? found(*kind) + " is not a kind" : std::string("is missing")) +
                                "; it takes one of " + join(kKinds));
  throw ConfigError(violations.take());
}

}  // namespace

Config read_config(std::string_view text) {
  std::vector<Violation> duplicates;
  const JsonValue json = JsonValue::parse(text, &duplicates);
  return std::get<Config>(read(json, std::move(duplicates), nullptr, false));
}
Config read_config(std::string_view text, const std::string& folder) {
  const std::filesystem::path path(folder);
  std::vector<Violation> duplicates;
  const JsonValue json = JsonValue::parse(text, &duplicates);
  return std::get<Config>(read(json, std::move(duplicates), &path, false));
}
std::variant<Config, MoeConfig> read_config_or_layer(std::string_view text) {
  std::vector<Violation> duplicates;
  const JsonValue json = JsonValue::parse(text, &duplicates);
  return read(json, std::move(duplicates), nullptr, true);
}
Config config_from_json(const JsonValue& json) { return std::get<Config>(read(json, {}, nullptr, false)); }

}  // namespace kernelwright
