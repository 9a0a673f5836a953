// kernelwright run: specialise, compile or load, launch twice into poisoned outputs, compare with the fp64 reference.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "engine_for.h"
#include "exit_code.h"
#include "hazards.h"
#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine.h"
#include "kernelwright/verify/attention_arrays.h"
#include "kernelwright/verify/attention_bound.h"
#include "kernelwright/verify/attention_device.h"
#include "targets.h"
#include "terminal.h"
#include "verbs.h"

namespace kernelwright::cli {
namespace {

constexpr double kLongRunSeconds = 600;  // on the emulator: people are warned

struct ShapeResult {
  std::string name;
  LaunchedTwice launched;
  Verdict verdict;
  double operations = 0;
  std::string fault;  // what ended a launch on the emulator; then nothing was compared
  bool passed() const { return fault.empty() && verdict.passed && launched.repeats && launched.guards_intact; }
  std::string reason() const {
    if (!fault.empty()) return fault;
    std::string text = verdict.text;
    const auto add = [&](const char* more) { text += (text.empty() ? "" : "; ") + std::string(more); };
    if (!launched.repeats) add("two launches of the same inputs differ");
    if (!launched.guards_intact) add("memory beside an output was written");
    return text;
  }
};

struct ConfigResult {
  const NamedConfig* named = nullptr;
  AttentionKernel kernel;
  DeviceInfo device;
  double prepare_ms = 0;
  std::vector<ShapeResult> shapes;
  std::vector<emulator::KernelHazard> hazards;
  bool passed() const {
    if (!hazards.empty()) return false;
    for (const ShapeResult& shape : shapes)
      if (!shape.passed()) return false;
    return true;
  }
};

// JSON has no infinity: a ratio that is infinite is written as text.
JsonValue number(double value) { return std::isfinite(value) ? JsonValue(value) : JsonValue(fmt::format("{}", value)); }

JsonValue to_json(const ConfigResult& result, bool with_hazards) {
  JsonValue shapes = JsonValue::array();
  for (const ShapeResult& shape : result.shapes) {
    const Verdict& verdict = shape.verdict;
    JsonValue errors = JsonValue::object();
    errors.set("max_abs", number(verdict.max_error))
        .set("worst_over_bound", number(verdict.worst_ratio))
        .set("rms_over_expected", number(verdict.rms_ratio))
        .set("rms_limit", verdict.rms_limit)
        .set("lse_max_abs", number(verdict.max_lse_error))
        .set("lse_worst_over_bound", number(verdict.worst_lse_ratio))
        .set("not_finite", verdict.not_finite)
        .set("rows", verdict.rows)
        .set("sampled", verdict.sampled);
    JsonValue row = JsonValue::object();
    row.set("shape", shape.name)
        .set("verdict", shape.passed() ? "ok" : "failed")
        .set("launch_ms", shape.launched.milliseconds)
        .set("operations", shape.operations)
        .set("repeats_bit_for_bit", shape.launched.repeats)
        .set("errors", std::move(errors));
    if (!shape.passed()) row.set("reason", shape.reason());
    shapes.push(std::move(row));
  }
  const auto binary = result.kernel.binary();
  JsonValue object = JsonValue::object();
  object.set("config", result.named->config.name).set("key", result.kernel.key()).set("device", result.device.name);
  object.set("arch", to_string(result.kernel.plan().main.arch)).set("entry", binary ? binary->entry : "");
  object.set("registers", binary ? binary->usage.registers : 0);
  object.set("spill_bytes", binary ? binary->usage.spill_stores + binary->usage.spill_loads : 0);
  object.set(
      "times",
      JsonValue::object().set("prepare_ms", result.prepare_ms).set("compile_ms", binary ? binary->compile_ms : 0));
  if (with_hazards) object.set("hazards", cli::to_json(result.hazards));
  return object.set("verdict", result.passed() ? "ok" : "failed").set("shapes", std::move(shapes));
}

void print_text(const ConfigResult& result) {
  const Style style(stdout);
  const auto binary = result.kernel.binary();
  fmt::print(
      "{}  {}\n", style.bold(result.named->config.name),
      style.dim(fmt::format("{} on {}, {} registers, ready in {}", binary ? binary->entry : "?", result.device.name,
                            binary ? binary->usage.registers : 0, duration_text(result.prepare_ms))));
  Table table({"shape", "rows checked", "max error", "of bound", "rms", "lse of bound", "time", ""});
  for (const ShapeResult& shape : result.shapes) {
    const Verdict& verdict = shape.verdict;
    table.row({shape.name, fmt::format("{}{}", verdict.rows, verdict.sampled ? " sampled" : ""),
               fmt::format("{:.2e}", verdict.max_error), fmt::format("{:.3f}", verdict.worst_ratio),
               verdict.rms_limit > 0 ? fmt::format("{:.2f}", verdict.rms_ratio) : "-",
               result.named->config.problem.lse ? fmt::format("{:.3f}", verdict.worst_lse_ratio) : "-",
               duration_text(shape.launched.milliseconds), style.verdict(shape.passed())});
  }
  fmt::print("{}", table.text(style));
  for (const ShapeResult& shape : result.shapes)
    if (!shape.passed()) fmt::print("  {}: {}\n", shape.name, style.bad(shape.reason()));
  fmt::print("{}", hazards_text(result.hazards));
}

ShapeResult run_case(const Place& place, const AttentionKernel& kernel, const AttentionCase& call, std::string name,
                     std::uint64_t seed, AttentionOutput* output) {
  ShapeResult result;
  result.name = std::move(name);
  result.operations = call.operations();
  const double seconds = place.emulator ? emulated_seconds(2 * result.operations) : 0;  // it is launched twice
  if (seconds > kLongRunSeconds)
    fmt::print(stderr,
               "kernelwright: {}: the emulator will take about {:.0f} minutes for {:.2g} operations; a smaller shape "
               "would do\n",
               result.name, seconds / 60, 2 * result.operations);
  try {
    const SlowNotice notice(fmt::format("{} is running on {}{}", result.name, place.device.info().name,
                                        seconds > 5 ? fmt::format(", for about {:.0f} s", seconds) : ""));
    result.launched = launch_twice(place.device, call, kernel);
  } catch (const DeviceError& error) {
    if (!place.emulator) throw;
    result.fault = error.what();
    return result;
  }
  result.verdict = verify(call, result.launched.output, {.seed = seed});
  if (output) *output = result.launched.output;
  result.launched.output = {};  // large, and judged
  return result;
}

// What stands in the way of --outputs is told before anything is launched; nothing is made yet.
void check_output_folder(const std::string& folder) {
  std::error_code code;
  if (std::filesystem::exists(folder, code) && !std::filesystem::is_directory(folder, code))
    throw ConfigError(folder, "is no folder; a folder to write o.npy to would do");
}

}  // namespace

int run(const Options& options) {
  Configs configs = read_configs(options.configs);
  const bool from_files = !options.inputs.empty();
  if (from_files && configs.usable.size() != 1)
    throw ConfigError("--inputs", fmt::format("{} configs are named; one would do", configs.usable.size()));
  if (from_files && !options.shapes.empty())
    throw ConfigError("--shape", "the arrays of --inputs give the shape; leave it out");

  // Everything that can be wrong with the input is found before the machine is asked for anything.
  struct Work {
    const NamedConfig* named;
    std::vector<AttentionShape> shapes;
  };
  std::vector<Work> work;
  for (const NamedConfig& named : configs.usable) {
    require_valid(named, std::nullopt);
    work.push_back({&named, from_files ? std::vector<AttentionShape>(1) : choose_shapes(named, options.shapes, true)});
  }
  std::optional<AttentionCase> arrays;
  if (from_files) arrays = read_case(configs.usable[0].config.problem, options.inputs);
  if (!options.outputs.empty()) {
    if (work.size() != 1 || work[0].shapes.size() != 1)
      throw ConfigError("--outputs", "several shapes would be written to one folder; name one config and one --shape");
    check_output_folder(options.outputs);
  }

  Machine machine(options);
  JsonValue results = JsonValue::array();
  bool passed = true;
  for (const Work& item : work) {
    const NamedConfig& named = *item.named;
    const Place place = machine.place_for(named);
    if (auto skipped = skipped_on(named, place.device.info().arch)) {
      configs.skipped.push_back(std::move(*skipped));
      continue;
    }
    ConfigResult result;
    result.named = &named;
    result.device = place.device.info();
    const auto start = std::chrono::steady_clock::now();
    result.kernel = prepare(place, named);
    result.prepare_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    Progress progress(named.config.name, item.shapes.size());
    for (const AttentionShape& shape : item.shapes) {
      AttentionOutput output;
      const AttentionCase call =
          from_files ? std::move(*arrays) : make_inputs(named.config.problem, shape, {.seed = options.seed});
      result.shapes.push_back(run_case(place, result.kernel, call, from_files ? options.inputs : shape.name,
                                       options.seed, options.outputs.empty() ? nullptr : &output));
      const bool written = result.shapes.back().fault.empty() && !options.outputs.empty();
      if (written) write_output(call, output, options.outputs);
      progress.step(shape.name);
    }
    if (place.emulator) result.hazards = place.emulator->take_reports();
    passed = passed && result.passed();
    if (options.json)
      results.push(to_json(result, options.hazards));
    else
      print_text(result);
  }
  if (options.json) {
    if (results.elements().size() == 1 && configs.skipped.empty())
      fmt::print("{}\n", results.elements()[0].dump());
    else {
      JsonValue skipped = JsonValue::array();
      for (const SkippedConfig& config : configs.skipped)
        skipped.push(JsonValue::object().set("path", config.path).set("reason", config.reason));
      fmt::print("{}\n", JsonValue::object()
                             .set("verdict", passed ? "ok" : "failed")
                             .set("configs", std::move(results))
                             .set("skipped", std::move(skipped))
                             .dump());
    }
  } else {
    const Style style(stdout);
    for (const SkippedConfig& config : configs.skipped)
      fmt::print("{} {}: {}\n", style.dim("skipped"), config.path, config.reason);
  }
  return passed ? kDone : kMismatch;
}

}  // namespace kernelwright::cli
