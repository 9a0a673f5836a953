// kernelwright run: specialises, compiles or loads, launches twice into poisoned outputs, and compares with the fp64
// reference.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <variant>

#include "cli/engine_for.h"
#include "cli/exit_code.h"
#include "cli/hazards.h"
#include "cli/kinds.h"
#include "cli/targets.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/attention/arrays.h"
#include "kernelwright/verify/gemm/arrays.h"
#include "kernelwright/verify/kv_write/arrays.h"
#include "kernelwright/verify/moe_combine/arrays.h"
#include "kernelwright/verify/route/arrays.h"
#include "kernelwright/verify/row_op/arrays.h"

namespace kernelwright::cli {
namespace {

constexpr double kLongRunSeconds = 600;  // on the emulator: longer runs print a warning

/// One launch, compared and checked.
struct ShapeResult {
  std::string name;
  KernelSummary kernel;
  double operations = 0;
  bool repeats = false, guards_intact = false;
  double milliseconds = 0;
  bool right = false;     // according to the verdict
  std::string verdict;    // the verdict's text, if the result is not right
  std::string unchecked;  // why nothing was compared; `right` then has no meaning
  std::vector<std::string> cells;
  JsonValue errors;
  std::string fault;  // the fault that ended a launch on the emulator; then nothing was compared

  bool is_unchecked() const { return fault.empty() && !unchecked.empty(); }
  /// Whether nothing wrong was found.
  bool passed() const { return fault.empty() && (right || is_unchecked()) && repeats && guards_intact; }
  std::string word() const { return !passed() ? "failed" : is_unchecked() ? "not checked" : "ok"; }
  std::string reason() const {
    if (!fault.empty()) return fault;
    std::string text = verdict;
    const auto add = [&](const char* more) { text += (text.empty() ? "" : "; ") + std::string(more); };
    if (!repeats) add("two launches of the same inputs differ");
    if (!guards_intact) add("memory beside an output was written");
    return text;
  }
};

struct ConfigResult {
  const NamedConfig* named = nullptr;
  DeviceInfo device;
  double prepare_ms = 0;
  std::vector<std::string> heads;
  std::vector<ShapeResult> shapes;
  std::vector<emulator::KernelHazard> hazards;
  bool passed() const {
    return hazards.empty() &&
           std::all_of(shapes.begin(), shapes.end(), [](const auto& shape) { return shape.passed(); });
  }
  bool is_unchecked() const {
    return std::any_of(shapes.begin(), shapes.end(), [](const auto& shape) { return shape.is_unchecked(); });
  }
  const char* word() const { return !passed() ? "failed" : is_unchecked() ? "not checked" : "ok"; }
};

JsonValue to_json(const ConfigResult& result, bool with_hazards) {
  const KernelSummary kernel = result.shapes.empty() ? KernelSummary() : result.shapes.back().kernel;
  JsonValue shapes = JsonValue::array();
  for (const ShapeResult& shape : result.shapes) {
    JsonValue row = JsonValue::object();
    row.set("shape", shape.name)
        .set("verdict", shape.word())
        .set("launch_ms", shape.milliseconds)
        .set("operations", shape.operations)
        .set("repeats_bit_for_bit", shape.repeats)
        .set("errors", shape.errors);
    if (shape.kernel.key != kernel.key) row.set("key", shape.kernel.key).set("entry", shape.kernel.entry);
    if (!shape.passed() || shape.is_unchecked()) row.set("reason", shape.reason());
    shapes.push(std::move(row));
  }
  JsonValue object = JsonValue::object();
  object.set("config", result.named->name()).set("key", kernel.key).set("device", result.device.name);
  object.set("arch", kernel.arch).set("entry", kernel.entry);
  object.set("registers", kernel.registers).set("spill_bytes", kernel.spill_bytes);
  object.set("times", JsonValue::object().set("prepare_ms", result.prepare_ms).set("compile_ms", kernel.compile_ms));
  if (with_hazards) object.set("hazards", cli::to_json(result.hazards));
  return object.set("verdict", result.word()).set("shapes", std::move(shapes));
}

/// Prints consecutive shapes that one kernel serves in one table.
void print_text(const ConfigResult& result) {
  const Style style(stdout);
  fmt::print("{}", style.bold(result.named->name()));
  for (auto first = result.shapes.begin(); first != result.shapes.end();) {
    const KernelSummary& kernel = first->kernel;
    const auto last = std::find_if(first, result.shapes.end(),
                                   [&](const ShapeResult& shape) { return shape.kernel.key != kernel.key; });
    fmt::print("  {}\n",
               style.dim(fmt::format("{} on {}, {} registers, ready in {}", kernel.entry.empty() ? "?" : kernel.entry,
                                     result.device.name, kernel.registers, duration_text(result.prepare_ms))));
    std::vector<std::string> heads{"shape"};
    heads.insert(heads.end(), result.heads.begin(), result.heads.end());
    heads.insert(heads.end(), {"time", ""});
    Table table(std::move(heads));
    for (auto shape = first; shape != last; ++shape) {
      std::vector<std::string> cells{shape->name};
      cells.insert(cells.end(), shape->cells.begin(), shape->cells.end());
      cells.resize(1 + result.heads.size());  // a fault leaves no cells
      cells.insert(cells.end(), {duration_text(shape->milliseconds), shape->passed() && shape->is_unchecked()
                                                                         ? style.dim("not checked")
                                                                         : style.verdict(shape->passed())});
      table.row(std::move(cells));
    }
    fmt::print("{}", table.text(style));
    first = last;
  }
  for (const ShapeResult& shape : result.shapes)
    if (!shape.passed() || shape.is_unchecked()) fmt::print("  {}: {}\n", shape.name, style.bad(shape.reason()));
  fmt::print("{}", hazards_text(result.hazards));
}

template <class KindOfConfig>
ShapeResult run_case(const Place& place, const KindOfConfig& config, const typename Kind<KindOfConfig>::Kernel& kernel,
                     const typename Kind<KindOfConfig>::Case& call, std::string name, const Options& options) {
  ShapeResult result;
  result.name = std::move(name);
  result.operations = call.operations();
  result.kernel = summary_of(kernel, call);
  const double seconds = place.emulator ? emulated_seconds(2 * result.operations) : 0;  // every call is launched twice
  if (seconds > kLongRunSeconds)
    fmt::print(stderr,
               "kernelwright: {}: the emulator will take about {:.0f} minutes for {:.2g} operations; a smaller shape "
               "would do\n",
               result.name, seconds / 60, 2 * result.operations);
  typename Kind<KindOfConfig>::Output output;
  try {
    const SlowNotice notice(fmt::format("{} is running on {}{}", result.name, place.device.info().name,
                                        seconds > 5 ? fmt::format(", for about {:.0f} s", seconds) : ""));
    auto launched = launch_twice(place.device, call, kernel);
    result.repeats = launched.repeats;
    result.guards_intact = launched.guards_intact;
    result.milliseconds = launched.milliseconds;
    output = std::move(launched.output);
  } catch (const DeviceError& error) {
    if (!place.emulator) throw;
    result.fault = error.what();
    result.errors = cli::to_json(typename Kind<KindOfConfig>::Verdict());
    return result;
  }
  const typename Kind<KindOfConfig>::Verdict verdict = verify(call, output, {.seed = options.seed});
  result.right = verdict.passed;
  result.verdict = verdict.text;
  if constexpr (requires { verdict.unchecked; }) result.unchecked = verdict.unchecked;
  result.cells = verdict_cells(config, verdict);
  result.errors = cli::to_json(verdict);
  if (!options.outputs.empty()) write_output(call, output, options.outputs);
  return result;
}

/// The work of one config: shapes with drawn inputs, or one call that was read from files.
template <class KindOfConfig>
struct WorkOf {
  const KindOfConfig* config;
  std::vector<typename Kind<KindOfConfig>::Shape> shapes;
  std::optional<typename Kind<KindOfConfig>::Case> arrays;
  std::size_t size() const { return arrays ? 1 : shapes.size(); }
};
struct Work {
  const NamedConfig* named;
  std::variant<WorkOf<AttentionConfig>, WorkOf<GemmConfig>, WorkOf<KvWriteConfig>, WorkOf<RowOpConfig>,
               WorkOf<RouteConfig>, WorkOf<MoeCombineConfig>>
      of;
};

Work make_work(const NamedConfig& named, const Options& options) {
  require_valid(named, std::nullopt);
  return std::visit(
      [&]<class KindOfConfig>(const KindOfConfig& config) {
        WorkOf<KindOfConfig> work{&config, {}, std::nullopt};
        if (options.inputs.empty())
          work.shapes = choose_shapes(named.path, config, options.shapes, true);
        else
          work.arrays = read_case(config.problem, options.inputs);
        return Work{&named, std::move(work)};
      },
      named.config);
}

template <class KindOfConfig>
ConfigResult run_config(const Place& place, const NamedConfig& named, WorkOf<KindOfConfig>& work, HazardReview& review,
                        const Options& options) {
  ConfigResult result;
  result.named = &named;
  result.device = place.device.info();
  result.heads = verdict_heads(*work.config);
  const auto start = std::chrono::steady_clock::now();
  const auto kernel = prepare(place, named, *work.config);
  result.prepare_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  Progress progress(named.name(), work.size());
  if (work.arrays)
    result.shapes.push_back(run_case(place, *work.config, kernel, *work.arrays, options.inputs, options));
  for (const auto& shape : work.shapes) {
    result.shapes.push_back(
        run_case(place, *work.config, kernel, inputs_of(*work.config, shape, options.seed), shape.name, options));
    progress.step(shape.name);
  }
  if (place.emulator) result.hazards = review.judge(place.emulator->take_reports());
  return result;
}

// Obstacles to --outputs are reported before anything is launched. Nothing is created yet.
void check_output_folder(const std::string& folder) {
  std::error_code code;
  if (std::filesystem::exists(folder, code) && !std::filesystem::is_directory(folder, code))
    throw ConfigError(folder, "is no folder; a folder to write results to would do");
}

}  // namespace

int run(const Options& options) {
  Configs configs = read_configs(options);
  const bool from_files = !options.inputs.empty();
  if (from_files && configs.usable.size() != 1)
    throw ConfigError("--inputs", fmt::format("{} configs are named; one would do", configs.usable.size()));
  if (from_files && !options.shapes.empty())
    throw ConfigError("--shape", "the arrays of --inputs give the shape; leave it out");

  // Everything that can be wrong with the input is reported before any device is opened.
  std::vector<Work> work;
  for (const NamedConfig& named : configs.usable) work.push_back(make_work(named, options));
  if (!options.outputs.empty()) {
    const auto size = [](const Work& item) { return std::visit([](const auto& of) { return of.size(); }, item.of); };
    if (work.size() != 1 || size(work[0]) != 1)
      throw ConfigError("--outputs", "several shapes would be written to one folder; name one config and one --shape");
    check_output_folder(options.outputs);
  }

  HazardReview review(options);
  Machine machine(options);
  JsonValue results = JsonValue::array();
  bool passed = true, unchecked = false;
  for (Work& item : work) {
    const NamedConfig& named = *item.named;
    const Place place = machine.place_for(named);
    if (auto skipped = skipped_on(named, place.device.info().arch)) {
      configs.skipped.push_back(std::move(*skipped));
      continue;
    }
    const ConfigResult result =
        std::visit([&](auto& of) { return run_config(place, named, of, review, options); }, item.of);
    passed = passed && result.passed();
    unchecked = unchecked || result.is_unchecked();
    if (options.json)
      results.push(to_json(result, !options.hazards.empty()));
    else
      print_text(result);
  }
  review.finish();
  if (options.json) {
    if (results.elements().size() == 1 && configs.skipped.empty())
      fmt::print("{}\n", results.elements()[0].dump());
    else {
      JsonValue skipped = JsonValue::array();
      for (const SkippedConfig& config : configs.skipped)
        skipped.push(JsonValue::object().set("path", config.path).set("reason", config.reason));
      fmt::print("{}\n", JsonValue::object()
                             .set("verdict", !passed     ? "failed"
                                             : unchecked ? "not checked"
                                                         : "ok")
                             .set("configs", std::move(results))
                             .set("skipped", std::move(skipped))
                             .dump());
    }
  } else {
    print_skipped(configs.skipped);
  }
  if (unchecked)
    fmt::print(stderr,
               "kernelwright: some results were not compared with anything: their configs name sources without a "
               "\"reference\"\n");
  return passed ? kDone : kMismatch;
}

}  // namespace kernelwright::cli
