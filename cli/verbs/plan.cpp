// kernelwright plan: a model's config.json in, the problems of one rank out.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/models/plan_file.h"
#include "kernelwright/generator/models/quantization.h"

namespace kernelwright::cli {
namespace {

ServingOptions serving_options(const Options& options) {
  ServingOptions serving{.tp = options.tp,
                         .ep = options.ep,
                         .kv = options.kv,
                         .kv_scales = options.kv_scales,
                         .max_seqs = options.max_seqs,
                         .max_tokens = options.max_tokens,
                         .server = options.server,
                         .page_size = options.page_size,
                         .name = options.name};
  if (!options.archs.empty()) serving.archs = parse_archs(options.archs);
  return serving;
}

/// "qkv 0-31; o 0-31"
std::string serves_text(const PlannedProblem& problem) {
  std::string text;
  for (const ServedLayer& served : problem.serves)
    text += fmt::format("{}{}{}{}", text.empty() ? "" : "; ", served.layer, served.layers.empty() ? "" : " ",
                        served.layers);
  return text;
}

void print_missing(const Style& style, const ModelPlan& plan) {
  for (const MissingLayer& layer : plan.missing)
    fmt::print("  {} {}{}{}: {}\n", style.dim("missing"), layer.layer, layer.layers.empty() ? "" : " ", layer.layers,
               layer.reason);
}

void print_explained(const ModelPlan& plan) {
  const Style style(stdout);
  fmt::print("{}: {} layers of {}\n", style.bold(plan.name), plan.layers, plan.type);
  for (const PlannedProblem& problem : plan.problems) {
    fmt::print("  {}  {}\n", style.bold(name_of(problem.config)), serves_text(problem));
    for (const std::string& line : problem.from) fmt::print("    {}\n", line);
  }
  print_missing(style, plan);
}

const char* kind_word(const Config& config) {
  return std::visit([]<class KindOfConfig>(const KindOfConfig&) { return kKindWord<KindOfConfig>; }, config);
}

void print_summary(const ModelPlan& plan, const std::string& file) {
  const Style style(stdout);
  Table table({"problem", "kind", "layers"});
  for (const PlannedProblem& problem : plan.problems)
    table.row({name_of(problem.config), kind_word(problem.config), serves_text(problem)});
  fmt::print("{}", table.text(style));
  print_missing(style, plan);
  fmt::print("{} problems in {}\n", plan.problems.size(), file);
}

void write_plan_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) throw ConfigError(path, "cannot be written");
}

/// What `read` returns. Its errors get the name of the file that they are about.
template <typename Read>
auto of_file(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const ConfigError& error) {
    throw in_file(path, error);
  }
}

/// The text of a config.json. ModelOpt may write its quantisation to a file of its own beside it: the text has that
/// too.
std::string read_config_json(const std::string& path) {
  std::string text = read_small_file(path, {.name = "a model's config", .is = "a JSON file"});
  const std::string other = std::filesystem::path(path).replace_filename("hf_quant_config.json").string();
  std::error_code code;
  if (!std::filesystem::exists(other, code)) return text;
  JsonValue json = of_file(path, [&] { return parse_model_json(text); });
  if (!json.is_object() || json.find("quantization_config")) return text;
  const std::string beside = read_small_file(other, {.name = "a model's quantisation", .is = "a JSON file"});
  return of_file(
      other, [&] { return json.set("quantization_config", quantization_config_of(parse_model_json(beside))).dump(); });
}

}  // namespace

int plan(const Options& options) {
  std::string path = options.model_file;
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) path += "/config.json";
  const std::string text = read_config_json(path);
  ModelPlan plan;
  try {
    plan = plan_model(text, serving_options(options));
  } catch (const ConfigError& error) {
    // The command line is no part of the file.
    if (error.violations()[0].path.starts_with("--")) throw;
    throw in_file(path, error);
  }
  if (!options.plan_file.empty()) write_plan_file(options.plan_file, write_plan(plan));
  if (options.json)
    fmt::print("{}\n", explain_plan(plan).dump());
  else if (options.explains)
    print_explained(plan);
  else if (options.plan_file.empty())
    fmt::print("{}", write_plan(plan));
  else
    print_summary(plan, options.plan_file);
  return kDone;
}

}  // namespace kernelwright::cli
