#include "cli/tune/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/bound.h"
#include "kernelwright/generator/json/value.h"

namespace kernelwright::cli {
namespace {

constexpr std::size_t kMostListed = 8;

template <class KindOfConfig>
const CandidateOf<KindOfConfig>& candidate_of(const TuneResult<KindOfConfig>& result, const Standing& standing) {
  return result.candidates.kept[standing.entrant];
}

template <class Schedule>
Schedule without_arch(Schedule schedule) {
  schedule.arch = {};
  return schedule;
}

/// Whether two plans give the same kernel and the same launch wherever a row for `launches` applies.
bool lead_alike(const AttentionPlan& a, const AttentionPlan& b, const TunedFor<AttentionConfig>&) {
  return a.main == b.main && a.combine == b.combine && a.splits == b.splits;
}
bool lead_alike(const GemmPlan& a, const GemmPlan& b, const TunedFor<GemmConfig>& launches) {
  const GemmVariant &of_a = a.variant_for(launches.rows.most), &of_b = b.variant_for(launches.rows.most);
  return of_a.spec == of_b.spec && of_a.bands_of_n == of_b.bands_of_n;
}

void describe_launches(JsonValue&, const TunedFor<AttentionConfig>&) {}
void describe_launches(JsonValue& object, const TunedFor<GemmConfig>& launches) {
  RowRange rows = launches.rows;
  object.set("num_sms", launches.num_sms).set("rows", detail::to_json(rows));
}

/// The fastest trial except `than`, the model's choice included; null if there is none.
template <class KindOfConfig>
const Standing* next_best(const TuneResult<KindOfConfig>& result, std::size_t than) {
  for (const std::size_t i : result.race.order)
    if (result.race.standings[i].entrant != than && result.race.standings[i].mean_us() > 0)
      return &result.race.standings[i];
  return nullptr;
}

std::string interval_text(const Ratio& ratio) {
  if (ratio.low == 0) return fmt::format("{:.3f}", ratio.median);
  return fmt::format("{:.3f} ({:.3f} .. {:.3f})", ratio.median, ratio.low, ratio.high);
}

std::string_view decision_word(Decision decision) {
  switch (decision) {
    case Decision::kRow: return "row";
    case Decision::kPinned: return "pinned";
    case Decision::kNothing: return "model";
    case Decision::kSlowed: return "slowed";
    case Decision::kNone: return "none";
  }
  return "?";
}

/// "2 spill, 1 gives a wrong result"
std::string refusals_text(const std::vector<Trial>& trials) {
  std::map<TrialVerdict, int> counts;
  for (const Trial& trial : trials)
    if (!trial.key.empty()) ++counts[trial.verdict];
  std::string text;
  const auto add = [&](TrialVerdict verdict, const char* what) {
    if (counts[verdict]) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[verdict], what);
  };
  add(TrialVerdict::kSpills, "spilled registers");
  add(TrialVerdict::kWrong, "gave a wrong result");
  add(TrialVerdict::kFailed, "failed");
  return text;
}

/// The fields in which `schedule` differs from `base`.
template <class Schedule>
std::string differences(const Schedule& schedule, const Schedule& base) {
  Schedule mine = schedule, other = base;
  const std::string text = differing_fields(detail::to_json(mine), detail::to_json(other));
  return text.empty() ? "the model's choice" : text;
}

/// The config's name, with the class of the device where another class stands for the architecture: "mlp-h200".
std::string name_on_device(const std::string& config, Arch arch, DeviceClass device) {
  if (device == usual_machine(arch).device) return config;
  return fmt::format("{}-{}", config, to_string(device));
}

template <class KindOfConfig>
int median_clock_mhz(const TuneResult<KindOfConfig>& result) {
  std::vector<int> clocks = result.clocks_mhz;
  std::ranges::sort(clocks);
  return clocks.empty() ? 0 : clocks[clocks.size() / 2];
}

}  // namespace

template <class KindOfConfig>
Decision decide(const TuneResult<KindOfConfig>& result, const PlanOf<KindOfConfig>& current) {
  if (result.race.interrupted || result.model_failed() || !result.race.best()) return Decision::kNone;
  if (!result.slowdowns.empty()) return Decision::kSlowed;
  if (result.race.baseline_is_beaten()) return Decision::kRow;
  return lead_alike(current, result.candidates.kept[0].plan, result.launches) ? Decision::kNothing : Decision::kPinned;
}

std::string row_name(const TunedRow& row) { return name_on_device(row.provenance.config, row.arch, row.device); }
std::string row_name(const GemmTunedRow& row) {
  return fmt::format("{}-m{}", name_on_device(row.provenance.config, row.arch, row.device), row.launches.rows.most);
}
std::string row_name(const TuneResult<AttentionConfig>& result) {
  return name_on_device(result.named->name(), result.machine->arch, result.machine->device);
}
std::string row_name(const TuneResult<GemmConfig>& result) {
  return fmt::format("{}-m{}", name_on_device(result.named->name(), result.machine->arch, result.machine->device),
                     result.launches.rows.most);
}

template <class KindOfConfig>
TunedRowOf<KindOfConfig> row_of(const TuneResult<KindOfConfig>& result, Decision decision, const TuneMachine& machine) {
  const Standing& model = result.race.standings[0];
  const Standing& chosen = decision == Decision::kRow ? *result.race.best() : model;
  const Standing* runner_up = next_best(result, chosen.entrant);
  TunedRowOf<KindOfConfig> row;
  row.arch = result.machine->arch;
  row.device = result.machine->device;
  row.problem = result.config().problem;
  row.launches = result.launches;
  row.tuning_class = tuning_class(row.problem);
  row.schedule = without_arch(candidate_of(result, chosen).schedule);
  Provenance<KindOfConfig>& from = row.provenance;
  from.gpu = result.device;
  from.date = machine.date;
  from.kernelwright = machine.kernelwright;
  from.compiler = result.compiler;
  from.driver = machine.driver;
  from.config = result.named->name();
  from.trials = static_cast<int>(result.race.standings.size());
  from.clock_mhz = result.clock_mhz;
  from.speedup = decision == Decision::kRow ? result.race.best_over_baseline.median : 1;
  from.speedup_low = decision == Decision::kRow ? result.race.best_over_baseline.low : 1;
  from.model = without_arch(result.candidates.kept[0].schedule);
  if (runner_up) from.runner_up = without_arch(candidate_of(result, *runner_up).schedule);
  from.gpus = {{result.gpu_id.empty() ? kUnknownGpu : result.gpu_id, median_clock_mhz(result),
                cli::listed({result.limits.begin(), result.limits.end()})}};
  for (std::size_t s = 0; s < result.shapes.size(); ++s)
    from.shapes.push_back(
        {result.shapes[s], chosen.median_us(s), model.median_us(s), runner_up ? runner_up->median_us(s) : 0});
  return row;
}

template <class KindOfConfig>
UnitOutcome outcome_of(const TuneResult<KindOfConfig>& result, Decision decision, const TuneMachine& machine) {
  UnitOutcome outcome;
  outcome.decision = decision_word(decision);
  outcome.config = result.named->name();
  outcome.device = result.device;
  outcome.arch = to_string(result.machine->arch);
  outcome.rows = range_of(result.launches);
  outcome.best_over_model = result.race.best_over_baseline;
  if (!result.trials.empty()) outcome.model_key = result.trials[0].key;
  if (const Standing* best = result.race.best()) outcome.best_key = result.trials[best->entrant].key;
  for (const auto& shape : result.shapes) {
    const PredictedBound bound = predict(result.config().problem, shape, *result.machine);
    outcome.shapes.push_back({shape.name, bound.operations, bound.bytes, bound.compute_us, bound.memory_us});
  }
  if (!result.clocks_mhz.empty()) {
    outcome.clock_least_mhz = std::ranges::min(result.clocks_mhz);
    outcome.clock_median_mhz = median_clock_mhz(result);
    outcome.clock_most_mhz = std::ranges::max(result.clocks_mhz);
  }
  outcome.gpu_id = result.gpu_id;
  outcome.limits.assign(result.limits.begin(), result.limits.end());
  outcome.seconds = result.seconds;
  outcome.compiler = result.compiler;
  outcome.driver = machine.driver;
  outcome.kernelwright = machine.kernelwright;
  outcome.times_mean_something = !machine.emulator;
  outcome.date = utc_now();
  return outcome;
}

template <class KindOfConfig>
std::string report_text(const TuneResult<KindOfConfig>& result, Decision decision, const std::string& written,
                        const TuneMachine& machine, const Style& style) {
  const auto& candidates = result.candidates;
  std::string out = fmt::format(
      "{}  {}\n", style.bold(result.named->name()) + unit_name("", range_of(result.launches)),
      style.dim(fmt::format("{} combinations, {} feasible kernels, {} kept, {} checked{}{}, on {}{}", candidates.tried,
                            candidates.kept.size() + candidates.cut, candidates.kept.size(), result.verified,
                            result.resumed ? fmt::format(", {} settled by the log", result.resumed) : "",
                            result.left ? fmt::format(", {} left for --resume", result.left) : "", result.device,
                            result.clock_mhz ? fmt::format(" at {} MHz", result.clock_mhz) : "")));
  if (result.model_failed()) {
    const Trial& trial = result.trials[0];
    return out + fmt::format("  {}: {}\n", style.bad("the model's own choice " + std::string(to_string(trial.verdict))),
                             trial.reason);
  }
  std::vector<std::string> header{"", "schedule"};
  for (const auto& shape : result.shapes) header.push_back(shape.name);
  header.insert(header.end(), {"mean", "vs model", "registers", "rounds"});
  Table table(std::move(header));
  const Race& race = result.race;
  const double model_us = race.standings.empty() ? 0 : race.standings[0].mean_us();
  std::size_t rank = 0, listed = 0;
  for (const std::size_t i : race.order) {
    const Standing& standing = race.standings[i];
    ++rank;
    if (standing.mean_us() == 0 || (listed >= kMostListed && standing.entrant != 0)) continue;
    ++listed;
    std::vector<std::string> cells{std::to_string(rank),
                                   differences(candidate_of(result, standing).schedule, candidates.kept[0].schedule)};
    for (std::size_t s = 0; s < result.shapes.size(); ++s) cells.push_back(duration_text(standing.median_us(s) / 1e3));
    const Trial& trial = result.trials[standing.entrant];
    cells.insert(cells.end(), {duration_text(standing.mean_us() / 1e3),
                               fmt::format("{:.3f}", model_us / standing.mean_us()), std::to_string(trial.registers),
                               std::to_string(standing.out_in_round < 0 ? race.rounds : standing.out_in_round + 1)});
    table.row(std::move(cells));
  }
  if (listed) out += table.text(style);
  if (race.standings.size() > listed && listed)
    out += style.dim(fmt::format("  and {} more in the log\n", race.standings.size() - listed));
  if (const std::string refusals = refusals_text(result.trials); !refusals.empty())
    out += fmt::format("  refused: {}\n", refusals);
  switch (decision) {
    case Decision::kRow:
      out +=
          fmt::format("  {} x the model's choice, beyond noise\n", style.good(interval_text(race.best_over_baseline)));
      break;
    case Decision::kPinned:
    case Decision::kNothing:
      out += fmt::format("  {} x the model's choice: within noise, or less than 1 % or 0.2 us; the model stands{}\n",
                         interval_text(race.best_over_baseline),
                         decision == Decision::kPinned ? ", and a row keeps others away from it" : "");
      break;
    case Decision::kSlowed:
      out += fmt::format("  {}: the GPU was slowed down by {}, so no row is written; a cooler one would do\n",
                         style.bad("nothing was decided"),
                         cli::listed({result.slowdowns.begin(), result.slowdowns.end()}));
      break;
    case Decision::kNone: out += race.interrupted ? "  interrupted: nothing was decided\n" : "  nothing to compare\n";
  }
  if (!written.empty()) out += fmt::format("  row: {}\n", written);
  if (machine.emulator)
    out += style.bad("  these times are the emulator's: they say nothing about any GPU") + std::string("\n");
  return out;
}

template <class KindOfConfig>
JsonValue report_json(const TuneResult<KindOfConfig>& result, Decision decision, const std::string& written,
                      const TuneMachine& machine) {
  JsonValue rows = JsonValue::array();
  for (const std::size_t i : result.race.order) {
    const Standing& standing = result.race.standings[i];
    auto schedule = candidate_of(result, standing).schedule;
    JsonValue times = JsonValue::object();
    for (std::size_t s = 0; s < result.shapes.size(); ++s) times.set(result.shapes[s].name, standing.median_us(s));
    rows.push(JsonValue::object()
                  .set("schedule", detail::to_json(schedule))
                  .set("is_model", standing.entrant == 0)
                  .set("mean_us", standing.mean_us())
                  .set("times_us", std::move(times))
                  .set("out_in_round", standing.out_in_round)
                  .set("registers", result.trials[standing.entrant].registers));
  }
  JsonValue refused = JsonValue::array();
  for (const Trial& trial : result.trials)
    if (!trial.key.empty() && trial.round < 0 && trial.is_settled())
      refused.push(JsonValue::object()
                       .set("schedule", JsonValue::parse(trial.schedule))
                       .set("verdict", to_string(trial.verdict))
                       .set("reason", trial.reason));
  const Ratio& ratio = result.race.best_over_baseline;
  JsonValue object = JsonValue::object();
  object.set("config", result.named->name()).set("device", result.device).set("arch", to_string(result.machine->arch));
  describe_launches(object, result.launches);
  object.set("times_mean_something", !machine.emulator);
  object.set("clock_mhz", result.clock_mhz ? JsonValue(result.clock_mhz) : JsonValue("unknown"));
  object.set("combinations", result.candidates.tried).set("infeasible", result.candidates.infeasible);
  object.set("kept", result.candidates.kept.size()).set("checked", result.verified);
  object.set("resumed", result.resumed).set("left", result.left).set("interrupted", result.race.interrupted);
  object.set("decision", decision_word(decision)).set("row", written);
  object.set("best_over_model", JsonValue::object()
                                    .set("median", ratio.median)
                                    .set("low", ratio.low)
                                    .set("high", ratio.high)
                                    .set("pairs", ratio.pairs));
  return object.set("seconds", result.seconds).set("trials", std::move(rows)).set("refused", std::move(refused));
}

template Decision decide(const TuneResult<AttentionConfig>&, const AttentionPlan&);
template Decision decide(const TuneResult<GemmConfig>&, const GemmPlan&);
template TunedRow row_of(const TuneResult<AttentionConfig>&, Decision, const TuneMachine&);
template GemmTunedRow row_of(const TuneResult<GemmConfig>&, Decision, const TuneMachine&);
template UnitOutcome outcome_of(const TuneResult<AttentionConfig>&, Decision, const TuneMachine&);
template UnitOutcome outcome_of(const TuneResult<GemmConfig>&, Decision, const TuneMachine&);
template std::string report_text(const TuneResult<AttentionConfig>&, Decision, const std::string&, const TuneMachine&,
                                 const Style&);
template std::string report_text(const TuneResult<GemmConfig>&, Decision, const std::string&, const TuneMachine&,
                                 const Style&);
template JsonValue report_json(const TuneResult<AttentionConfig>&, Decision, const std::string&, const TuneMachine&);
template JsonValue report_json(const TuneResult<GemmConfig>&, Decision, const std::string&, const TuneMachine&);

}  // namespace kernelwright::cli
