#include "kernelwright/generator/models/plan_file.h"

#include <filesystem>
#include <set>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/json/field_reader.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/models/plan_parts.h"

namespace kernelwright {
namespace {

using detail::found;
using detail::ViolationList;

constexpr std::int64_t kPlanVersion = 1;
constexpr std::size_t kMostProblems = 1024;

JsonValue layers_to_json(const std::string& layer, const std::string& layers) {
  JsonValue json = JsonValue::object().set("layer", layer);
  return layers.empty() ? json : json.set("layers", layers);
}

JsonValue problem_to_json(const PlannedProblem& problem, bool explains) {
  const JsonValue config = config_to_json(problem.config);
  JsonValue json = JsonValue::object(), serves = JsonValue::array();
  for (const ServedLayer& served : problem.serves) serves.push(layers_to_json(served.layer, served.layers));
  for (const char* member : {"kind", "name"}) json.set(member, config.at(std::string("/") + member));
  json.set("serves", std::move(serves));
  if (problem.rows)
    json.set("rows", JsonValue::object().set("least", problem.rows->least).set("most", problem.rows->most));
  if (explains) {
    JsonValue from = JsonValue::array();
    for (const std::string& line : problem.from) from.push(line);
    json.set("from", std::move(from));
  }
  json.set("problem", config.at("/problem"));
  if (!problem.rows) json.set("shapes", config.at("/shapes"));  // a GEMM's follow from its rows
  return json;
}

JsonValue plan_to_json(const ModelPlan& plan, bool explains) {
  const ServingOptions& serving = plan.serving;
  JsonValue archs = JsonValue::array(), problems = JsonValue::array(), missing = JsonValue::array();
  for (const Arch arch : serving.archs) archs.push(to_string(arch));
  for (const PlannedProblem& problem : plan.problems) problems.push(problem_to_json(problem, explains));
  for (const MissingLayer& layer : plan.missing) {
    JsonValue json = layers_to_json(layer.layer, layer.layers);
    if (!layer.shape.empty()) json.set("shape", layer.shape);
    missing.push(json.set("reason", layer.reason));
  }
  JsonValue options = JsonValue::object().set("server", serving.server).set("tp", serving.tp).set("ep", serving.ep);
  options.set("kv", serving.kv);
  if (!serving.kv_scales.empty()) options.set("kv_scales", serving.kv_scales);
  options.set("page_size", serving.page_size.value_or(0));
  options.set("max_seqs", serving.max_seqs).set("max_tokens", serving.max_tokens).set("archs", std::move(archs));
  return JsonValue::object()
      .set("version", kPlanVersion)
      .set("kind", "plan")
      .set("name", plan.name)
      .set("model", JsonValue::object().set("type", plan.type).set("layers", plan.layers))
      .set("serving", std::move(options))
      .set("problems", std::move(problems))
      .set("missing", std::move(missing));
}

/// The config in one problem of a plan: what is the plan's own is taken out.
Config read_problem(const JsonValue& json) {
  if (!json.is_object()) throw ConfigError("", found(json) + " is no problem; a problem is an object");
  JsonValue members = JsonValue::object().set("version", 1);
  for (const auto& [key, value] : json.members())
    if (key != "serves" && key != "rows" && key != "from") members.set(key, value);
  Config config = config_from_json(members);
  auto* gemm = std::get_if<GemmConfig>(&config);
  const JsonValue* given = json.find("rows");
  if (!gemm && given) throw ConfigError("/rows", "belongs to a GEMM; leave it out");
  if (!gemm || !given) return config;
  ViolationList violations;
  RowRange rows;
  detail::FieldReader(violations).read(*given, "/rows", rows, any{});
  if (violations.empty() && rows.least > rows.most)
    violations.add("/rows/most", std::to_string(rows.most) + " is below least, " + std::to_string(rows.least));
  if (!violations.empty()) throw ConfigError(violations.take());
  if (gemm->shapes.empty()) gemm->shapes = detail::shapes_of(rows);
  return config;
}

std::vector<Config> configs_of(const JsonValue& json, std::vector<Violation> duplicates) {
  ViolationList violations;
  for (Violation& duplicate : duplicates) violations.add(std::move(duplicate.path), std::move(duplicate.message));
  detail::refuse_unknown_keys(json, "", {"version", "kind", "name", "model", "serving", "problems", "missing"},
                              violations);
  const JsonValue *version = json.find("version"), *problems = json.find("problems");
  if (!version || *version != JsonValue(kPlanVersion))
    violations.add("/version", (version ? found(*version) + " is not a version of plans that this library reads"
                                        : std::string("is missing")) +
                                   "; it reads version " + std::to_string(kPlanVersion));
  std::vector<Config> configs;
  std::set<std::string> names;
  if (!problems || !problems->is_array() || problems->elements().size() > kMostProblems) {
    violations.add("/problems", (problems ? found(*problems) + " does not fit" : std::string("is missing")) +
                                    "; it takes a list of at most " + std::to_string(kMostProblems) + " problems");
  } else {
    for (std::size_t i = 0; i < problems->elements().size(); ++i) try {
        configs.push_back(read_problem(problems->elements()[i]));
        if (!names.insert(name_of(configs.back())).second)
          violations.add(pointer_to("/problems", i) + "/name",
                         quoted_for_message(name_of(configs.back())) + " is the name of an earlier problem too");
      } catch (const ConfigError& error) {
        for (const Violation& violation : error.violations())
          violations.add(pointer_to("/problems", i) + violation.path, violation.message);
      }
  }
  if (!violations.empty()) throw ConfigError(violations.take());
  return configs;
}

bool is_plan_json(const JsonValue& json) {
  const JsonValue* kind = json.find("kind");
  return kind && *kind == JsonValue("plan");
}

}  // namespace

std::string write_plan(const ModelPlan& plan) { return plan_to_json(plan, false).dump() + "\n"; }

JsonValue explain_plan(const ModelPlan& plan) { return plan_to_json(plan, true); }

std::vector<Config> read_plan(std::string_view text) {
  std::vector<Violation> duplicates;
  const JsonValue json = JsonValue::parse(text, &duplicates);
  if (!is_plan_json(json)) throw ConfigError("/kind", "is not \"plan\", which the file of a plan has");
  return configs_of(json, std::move(duplicates));
}

std::vector<Config> read_config_or_plan_file(const std::string& path, bool& is_plan) {
  const std::string text = read_small_file(path);
  std::vector<Violation> duplicates;
  const JsonValue json = JsonValue::parse(text, &duplicates);
  is_plan = is_plan_json(json);
  if (is_plan) return configs_of(json, std::move(duplicates));
  return {read_config(text, std::filesystem::path(path).parent_path().string())};
}

}  // namespace kernelwright
