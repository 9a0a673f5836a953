// kernelwright tune: which schedule is the fastest for each config, measured; and a row for it where that beats the
// planner's model. docs/tuning.md has a session.
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "engine_for.h"
#include "exit_code.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/validate.h"
#include "kernelwright/runtime/cuda_backend.h"
#include "targets.h"
#include "terminal.h"
#include "tune_report.h"
#include "tune_trials.h"
#include "verbs.h"

namespace kernelwright::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may touch nothing else

/// While it lives the first Ctrl-C asks for an orderly end; the second ends the process as ever.
class InterruptScope {
 public:
  InterruptScope() {
    g_interrupted = false;
    struct sigaction action {};
    action.sa_handler = [](int) { g_interrupted = true; };
    action.sa_flags = SA_RESETHAND;
    ::sigaction(SIGINT, &action, &before_);
  }
  ~InterruptScope() { ::sigaction(SIGINT, &before_, nullptr); }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_ {};
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

/// A row is for its problem, whoever asks: fields that a config fixes are no part of it.
void require_open_schedule(const NamedConfig& named) {
  AttentionSchedule schedule = named.attention().schedule;
  std::vector<Violation> violations;
  visit_fields(schedule, [&](const char* name, const auto& value, const auto&, const char*) {
    if (value.is_auto() || std::string_view(name) == "arch" || std::string_view(name) == "family") return;
    violations.push_back(
        {std::string("/schedule/") + name, "is fixed, and tune is there to choose it; \"auto\" would do"});
  });
  if (!violations.empty()) throw in_file(named.path, ConfigError(std::move(violations)));
}

/// Where rows go: --output, else $KERNELWRIGHT_TUNED_DIR, else the repository's own folder where one is here.
/// On the emulator --output alone: a row of its times must be somebody's express wish.
std::string row_folder(const Options& options) {
  if (!options.outputs.empty() || options.device == "emulator") return options.outputs;
  if (!options.tuned_dir.empty()) return options.tuned_dir;
  if (const char* named = secure_getenv("KERNELWRIGHT_TUNED_DIR"); named && *named) return named;
  std::error_code code;
  if (std::filesystem::is_directory("configs/tuned", code)) return "configs/tuned";
  throw ConfigError("--output",
                    "is not given, and neither KERNELWRIGHT_TUNED_DIR nor ./configs/tuned names a folder "
                    "for rows; --output DIR would do");
}

}  // namespace

double parse_seconds(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const double factor = unit == "" || unit == "s" ? 1 : unit == "m" || unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (fault != std::errc() || factor == 0 || !(value > 0) || value * factor > 1e6)
    throw ConfigError("--budget", quoted_for_message(text) + " is no time; 120s, 5m or 1h would do");
  return value * factor;
}

int tune(const Options& options) {
  Configs configs = read_configs(options.configs);
  struct Work {
    const NamedConfig* named;
    std::vector<AttentionShape> shapes, checks;
  };
  std::vector<Work> work;
  for (const NamedConfig& named : configs.usable) {
    if (named.in_folder && !std::holds_alternative<AttentionConfig>(named.config)) {
      configs.skipped.push_back({named.path, named.name(), "kind gemm is nothing that tune takes yet"});
      continue;
    }
    const AttentionConfig& config = require_attention(named, "tune");
    require_valid(named, std::nullopt);
    require_open_schedule(named);
    work.push_back({&named, choose_shapes(named.path, config, options.shapes, false),
                    choose_shapes(named.path, config, {}, true)});
  }
  if (work.empty()) throw ConfigError("CONFIG", "no config is named that a kernel exists for");
  TuneOptions tune_options;
  tune_options.budget_s = parse_seconds(options.budget);
  tune_options.seed = options.seed;
  tune_options.resume = options.resume;
  tune_options.candidates = static_cast<std::size_t>(options.candidates);
  tune_options.interrupted = [] { return g_interrupted.load(); };
  const std::string folder = row_folder(options);
  // Times without a meaning are made on express wish alone.
  if (options.device == "auto") make_cuda_backend();  // throws where there is none

  Options by_model = options;
  by_model.no_tuned_rows = true;  // a candidate's auto fields are the model's
  Machine machine(by_model);
  const TunedTable rows = TunedTable::from_environment(options.tuned_dir);
  const Style style(stdout), loud(stderr);
  JsonValue results = JsonValue::array();
  int code = kDone;
  const InterruptScope interrupts;
  for (const Work& item : work) {
    const NamedConfig& named = *item.named;
    const Place place = machine.place_for(named);
    if (auto skipped = skipped_on(named, place.device.info().arch)) {
      configs.skipped.push_back(std::move(*skipped));
      continue;
    }
    require_valid(named, place.device.info().arch);
    TuneMachine about{.driver = place.emulator ? "none" : driver_version(),
                      .kernelwright = KERNELWRIGHT_VERSION,
                      .date = today(),
                      .emulator = place.emulator != nullptr};
    if (place.emulator)
      fmt::print(stderr, "{} {}\n", loud.bad("kernelwright:"),
                 fmt::format("{} is the emulator: its times say nothing about any GPU. This tries the tuner, and {}",
                             place.device.info().name,
                             folder.empty() ? "writes no row" : "writes a row because --output asks for it"));
    tune_options.log = options.log.empty() ? named.name() + ".tune.jsonl" : options.log;
    TuneResult result = tune_config(place, named, item.shapes, item.checks, tune_options);
    const Decision decision =
        decide(result, plan_attention(named.attention().problem, named.attention().schedule, result.arch, rows));
    const bool has_row = decision == Decision::kRow || decision == Decision::kPinned;
    const std::string written =
        has_row && !folder.empty() ? write_tuned_file(folder, named.name(), row_of(result, decision, about)) : "";
    if (result.model_failed()) code = kMismatch;
    if (options.json)
      results.push(report_json(result, decision, written, about));
    else
      fmt::print("{}{}\n", report_text(result, decision, written, about, style),
                 style.dim("  log: " + tune_options.log));
    if (result.race.interrupted) {
      fmt::print(stderr, "kernelwright: interrupted; {} has every trial so far, and --resume goes on from there\n",
                 tune_options.log);
      code = kInterrupted;
      break;
    }
  }
  if (options.json)
    fmt::print("{}\n", results.elements().size() == 1 ? results.elements()[0].dump()
                                                      : JsonValue::object().set("configs", std::move(results)).dump());
  else
    for (const SkippedConfig& config : configs.skipped)
      fmt::print("{} {}: {}\n", style.dim("skipped"), config.path, config.reason);
  return code;
}

}  // namespace kernelwright::cli
