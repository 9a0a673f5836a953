// kernelwright tune: measures which schedule is the fastest for each config, and writes a row where that schedule beats
// the planner's model. docs/tuning.md shows a session.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <variant>

#include "cli/engine_for.h"
#include "cli/exit_code.h"
#include "cli/targets.h"
#include "cli/terminal.h"
#include "cli/tune/row_folder.h"
#include "cli/tune/tune_report.h"
#include "cli/tune/tune_trials.h"
#include "cli/tune/tune_work.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/tuned/merge.h"
#include "kernelwright/runtime/cuda/cuda_backend.h"
#include "kernelwright/runtime/process/files.h"

namespace kernelwright::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may touch nothing else

/// While this object lives, the first Ctrl-C asks for an orderly end; the second ends the process as usual.
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

/// Where rows are written: to --output, else to $KERNELWRIGHT_TUNED_DIR, else to the repository's own folder if there
/// is one here. On the emulator only to --output: a row with the emulator's times must be an explicit wish.
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

/// What all configs share.
struct Session {
  const Options& options;
  const std::string folder;  // folder for rows; "": no row is written
  const TunedTable rows;
  TuneOptions tune;
  JsonValue results = JsonValue::array();
  std::vector<double> gains;  // of each group: the model's time over the row's, or 1
  std::vector<AnyTunedRow> to_confirm;
  int code = kDone;

  /// Whether --resume finds that the unit's race has ended, according to the log. Then its outcome is a result.
  bool is_done(const std::string& device, const std::string& config, const std::optional<RowRange>& unit_rows,
               const std::string& log) {
    if (!options.resume || options.units.empty()) return false;
    const std::optional<UnitOutcome> outcome = TuningLog::outcome_of(log, device, config, unit_rows);
    if (!outcome || outcome->decision == "none" || outcome->decision == "slowed") return false;
    gains.push_back(outcome->decision == "row" ? outcome->best_over_model.median : 1);
    if (options.json)
      results.push(JsonValue::parse(write_outcome(*outcome)).set("settled_by_log", true));
    else
      fmt::print("{}: done before, by {}\n", unit_name(config, unit_rows), log);
    return true;
  }
};

/// The row of --confirm for the unit, which another GPU of the kind measured; nullopt if there is none.
template <class KindOfConfig>
std::optional<TunedRowOf<KindOfConfig>> row_to_confirm(const Session& session, const Place& place,
                                                       const KindOfConfig& config,
                                                       const std::vector<ShapeOf<KindOfConfig>>& shapes) {
  for (const AnyTunedRow& any : session.to_confirm) {
    const auto* row = std::get_if<TunedRowOf<KindOfConfig>>(&any);
    if (row && row->problem == config.problem && row->provenance.gpu == place.device.info().name &&
        range_of(row->launches) == rows_of(config, shapes))
      return *row;
  }
  return std::nullopt;
}

/// Tunes one group of one config. Returns false if a person has interrupted it.
template <class KindOfConfig>
bool tune_group(Session& session, const Place& place, const TuneWork<KindOfConfig>& work,
                const std::vector<ShapeOf<KindOfConfig>>& shapes, const TuneOptions& tune_options) {
  const NamedConfig& named = *work.named;
  const auto& config = std::get<KindOfConfig>(named.config);
  const TuneMachine about{.driver = place.emulator ? "none" : driver_version(),
                          .kernelwright = KERNELWRIGHT_VERSION,
                          .date = today(),
                          .emulator = place.emulator != nullptr};
  TuneOptions options = tune_options;
  const std::optional<TunedRowOf<KindOfConfig>> first = row_to_confirm(session, place, config, shapes);
  if (!session.options.confirm.empty() && !first) return true;
  if (first && first->provenance.speedup_low <= 1) {
    // The row pins the model's choice: no schedule won, so there is nothing to race again.
    write_tuned_file(session.folder, row_name(*first), *first);
    return true;
  }
  if (first) options.rival = canonical_text(first->schedule);
  if (session.is_done(place.device.info().name, named.name(), rows_of(config, shapes), options.log)) return true;
  const auto result = tune_config<KindOfConfig>(place, named, shapes, work.checks, options);
  const Decision decision = decide(result, plan_for(named, config, *result.machine, session.rows));
  const bool has_row = decision == Decision::kRow || (decision == Decision::kPinned && !first);
  std::string written;
  if (has_row && !session.folder.empty()) {
    const auto row = row_of(result, decision, about);
    written = write_tuned_file(session.folder, row_name(result), first ? confirmed_row(*first, row) : row);
  }
  // After the row: a unit with an outcome is done, and its row must not be missing.
  TuningLog(options.log).add(outcome_of(result, decision, about));
  if (result.model_failed()) session.code = kMismatch;
  session.gains.push_back(decision == Decision::kRow ? result.race.best_over_baseline.median : 1);
  const Style style(stdout);
  if (session.options.json)
    session.results.push(report_json(result, decision, written, about));
  else
    fmt::print("{}{}\n", report_text(result, decision, written, about, style), style.dim("  log: " + tune_options.log));
  if (!result.race.interrupted) return true;
  fmt::print(stderr, "kernelwright: interrupted; {} has every trial so far, and --resume goes on from there\n",
             tune_options.log);
  session.code = kInterrupted;
  return false;
}

/// tune/NAME.tune.jsonl in the cache directory. Throws ConfigError if no such directory can be written.
std::string default_log(const Options& options, const NamedConfig& named) {
  const std::string directory = CubinCache(cache_options(options)).directory();
  if (directory.empty())
    throw ConfigError("--log", "is not given, and no cache directory is named for it; --log FILE would do");
  const std::string folder = directory + "/tune";
  // Checked one by one: neither is read or written if another user could have prepared it.
  for (const std::string& path : {directory, folder})
    if (const TrustedDirectory opened = open_trusted_directory(path, /*create=*/true, Trust::kOwnOnly); !opened.fd)
      throw ConfigError("--log", opened.reason + "; --log FILE would do");
  return folder + "/" + named.name() + (options.confirm.empty() ? ".tune.jsonl" : ".confirm.jsonl");
}

/// --compile-only: the candidates of each group.
template <class KindOfConfig>
void compile_one(Session& session, const Place& place, const TuneWork<KindOfConfig>& work) {
  const auto& config = std::get<KindOfConfig>(work.named->config);
  for (const auto& shapes : work.groups) {
    const std::size_t count = compile_candidates<KindOfConfig>(place, *work.named, shapes, session.tune);
    const std::string name = unit_name(work.named->name(), rows_of(config, shapes));
    if (session.options.json)
      session.results.push(JsonValue::object().set("unit", name).set("compiled", count));
    else
      fmt::print("{}: {} schedules are compiled\n", name, count);
  }
}

/// Tunes one config; its groups share its budget.
template <class KindOfConfig>
bool tune_one(Session& session, const Place& place, const TuneWork<KindOfConfig>& work) {
  require_valid(*work.named, place.device.info().arch);
  if (session.options.compiles_only) return compile_one(session, place, work), !g_interrupted;
  if (place.emulator)
    fmt::print(stderr, "{} {}\n", Style(stderr).bad("kernelwright:"),
               fmt::format("{} is the emulator: its times say nothing about any GPU. This tries the tuner, and {}",
                           place.device.info().name,
                           session.folder.empty() ? "writes no row" : "writes a row because --output asks for it"));
  TuneOptions tune_options = session.tune;
  tune_options.budget_s /= static_cast<double>(work.groups.size());
  tune_options.log = session.options.log.empty() ? default_log(session.options, *work.named) : session.options.log;
  for (const auto& shapes : work.groups)
    if (!tune_group(session, place, work, shapes, tune_options)) return false;
  return true;
}

/// What all groups gained together. One group's own report says it already.
void print_gains(const Session& session) {
  if (session.gains.size() < 2) return;
  double logs = 0;
  for (const double gain : session.gains) logs += std::log(gain);
  fmt::print("{} of {} groups of shapes gained; {:.3f} times as fast, geometric mean of all\n",
             std::ranges::count_if(session.gains, [](double gain) { return gain > 1; }), session.gains.size(),
             std::exp(logs / static_cast<double>(session.gains.size())));
}

/// Shares what is left of --total-budget between the configs that are left.
class TotalBudget {
 public:
  explicit TotalBudget(const std::string& text) : seconds_(text.empty() ? 0 : parse_seconds("--total-budget", text)) {}
  void give(TuneOptions& tune, std::size_t configs_left) const {
    if (seconds_ == 0) return;
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start_;
    tune.budget_s = std::max(seconds_ - gone.count(), kLeastShare) / static_cast<double>(configs_left);
  }

 private:
  static constexpr double kLeastShare = 1;  // second: a config that comes too late still has its model's choice timed
  double seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Why a kind has no rows; null where it has.
template <class KindOfConfig>
constexpr const char* kNoRows = nullptr;
template <>
constexpr const char* kNoRows<KvWriteConfig> =
    "\"kv_write\" has no rows to tune yet; its schedule takes num_warps and heads_per_lane, which bench compares";
template <>
constexpr const char* kNoRows<RowOpConfig> =
    "\"row_op\" has no rows to tune yet; its schedule takes vector, threads_per_row, ctas_per_row and rows_per_cta, "
    "which bench compares";
template <>
constexpr const char* kNoRows<RouteConfig> =
    "\"route\" has no rows to tune yet; its schedule takes warps, choice and counts, which bench compares";
template <>
constexpr const char* kNoRows<MoeCombineConfig> =
    "\"moe_combine\" has no rows to tune yet; its schedule takes threads, which bench compares";

/// --merge: the rows of several folders become those of --output.
int merge(const Options& options) {
  if (options.outputs.empty()) throw ConfigError("--merge", "needs --output DIR");
  std::vector<AnyTunedRow> rows;
  for (const std::string& folder : options.merge) {
    std::vector<AnyTunedRow> more = read_row_folder(folder);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  const std::vector<AnyTunedRow> merged = merge_rows(rows);
  for (const AnyTunedRow& row : merged)
    write_tuned_file(options.outputs, std::visit([](const auto& any) { return row_name(any); }, row), row);
  if (options.json)
    fmt::print("{}\n", JsonValue::object()
                           .set("read", rows.size())
                           .set("written", merged.size())
                           .set("folder", options.outputs)
                           .dump());
  else
    fmt::print("{} rows of {} folders became {}: {}\n", rows.size(), options.merge.size(), merged.size(),
               options.outputs);
  return kDone;
}

/// The units of --units and --shard, whose files become the configs of `options`. A shard may have none. Empty where
/// configs are named themselves.
std::vector<ListedUnit> choose_units(Options& options) {
  if (options.units.empty()) {
    if (!options.shard.empty()) throw ConfigError("--shard", "takes its part of --units, which is not given");
    if (options.configs.empty()) throw ConfigError("command line", "tune needs CONFIG, --units LIST or --merge DIR");
    return {};
  }
  if (!options.configs.empty()) throw ConfigError("--units", "names its configs itself; no CONFIG beside it would do");
  std::vector<ListedUnit> units = shard_of(read_unit_list(options.units), options.shard);
  options.configs = files_of(units);
  return units;
}

/// What there is to tune. Configs of a kind without rows are passed over. Throws ConfigError if nothing is left.
std::vector<AnyWork> work_of_all(Configs& configs, const Options& options) {
  std::vector<AnyWork> work;
  for (const NamedConfig& named : configs.usable)
    std::visit(
        [&]<class KindOfConfig>(const KindOfConfig& config) {
          if constexpr (kNoRows<KindOfConfig> != nullptr)
            configs.skipped.push_back({named.path, config.name, kNoRows<KindOfConfig>});
          else
            work.push_back(work_of(named, config, options));
        },
        named.config);
  if (work.empty() && !configs.skipped.empty() && configs.skipped.back().reason.ends_with("which bench compares"))
    throw in_file(configs.skipped.back().path, ConfigError("/kind", configs.skipped.back().reason));
  if (work.empty()) throw ConfigError("CONFIG", "no config is named that a kernel exists for");
  return work;
}

}  // namespace

int tune(const Options& given) {
  if (!given.merge.empty()) return merge(given);
  Options options = given;
  const std::vector<ListedUnit> units = choose_units(options);
  Configs configs;
  std::vector<AnyWork> work;
  if (!options.configs.empty()) {
    configs = read_configs(options);
    work = work_of_all(configs, options);
  }
  if (options.lists_units) return fmt::print("{}\n", to_json(units_of(work)).dump()), kDone;
  if (!options.units.empty()) work = listed_work(work, units);
  if (options.compiles_only) options.device = "emulator";  // nothing is launched
  Session session{options, row_folder(options), tuned_rows(options), {}};
  if (!options.confirm.empty() && session.folder.empty())
    throw ConfigError("--confirm", "needs --output DIR, for the rows that win again");
  if (!options.confirm.empty()) session.to_confirm = read_row_folder(options.confirm);
  session.tune.budget_s = parse_seconds("--budget", options.budget);
  session.tune.seed = options.seed;
  session.tune.resume = options.resume;
  if (options.candidates > 0) session.tune.candidates = static_cast<std::size_t>(options.candidates);
  session.tune.copies = static_cast<std::size_t>(options.copies);
  session.tune.interrupted = [] { return g_interrupted.load(); };
  // Times of the emulator have no meaning, so they are measured only on an explicit wish.
  if (options.device == "auto") make_cuda_backend();  // throws if there is no GPU

  Options by_model = options;
  by_model.no_tuned_rows = true;  // the model fills a candidate's auto fields
  Machine machine(by_model);
  const InterruptScope interrupts;
  const TotalBudget total(options.total_budget);
  for (const AnyWork& item : work) {
    total.give(session.tune, static_cast<std::size_t>(&work.back() - &item) + 1);
    const bool goes_on = std::visit(
        [&](const auto& one) {
          const Place place = machine.place_for(*one.named);
          if (auto skipped = skipped_on(*one.named, place.device.info().arch)) {
            configs.skipped.push_back(std::move(*skipped));
            return true;
          }
          return tune_one(session, place, one);
        },
        item);
    if (!goes_on) break;
  }
  const auto& results = session.results.elements();
  if (options.json)
    fmt::print("{}\n",
               results.size() == 1 ? results[0].dump() : JsonValue::object().set("configs", session.results).dump());
  else
    print_skipped(configs.skipped), print_gains(session);
  return session.code;
}

}  // namespace kernelwright::cli
