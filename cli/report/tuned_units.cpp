#include "cli/report/tuned_units.h"

#include <algorithm>
#include <tuple>

#include "cli/tune/unit_words.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::cli {
namespace {

using UnitKey = std::tuple<std::string, std::string, int>;  // config, device, first row

int first_row(const std::optional<RowRange>& rows) { return rows ? rows->least : 0; }

bool is_timed(const TunedUnit::Entry& entry) { return !entry.rounds.empty() && entry.trial.mean_us > 0; }

/// Whether the schedule was still in the race when its last line was written.
bool is_finalist(const TunedUnit::Entry& entry) { return entry.trial.verdict == TrialVerdict::kMeasured; }

class Reader {
 public:
  void add(const Trial& trial) {
    TunedUnit& unit = of(trial.config, trial.device, trial.rows);
    const auto found = std::ranges::find(unit.entries, trial.key, [](const auto& entry) { return entry.trial.key; });
    TunedUnit::Entry& entry = found == unit.entries.end() ? unit.entries.emplace_back() : *found;
    entry.trial = trial;
    // A schedule that is out has a second line, with the verdict, at the end of the race.
    if (trial.round < 0 || trial.is_settled()) return;
    int& last = last_round_[&unit - result_.units.data()];
    // A race ends with an outcome. One that was killed has none: then its rounds begin anew.
    if (last < 0 || trial.round < last) ++unit.races;
    last = trial.round;
    entry.rounds.push_back({unit.races - 1, trial.round, trial.mean_us, trial.clock_mhz, trial.date});
  }

  void add(UnitOutcome outcome) {
    TunedUnit& unit = of(outcome.config, outcome.device, outcome.rows);
    last_round_[&unit - result_.units.data()] = -1;
    unit.outcome = std::move(outcome);
  }

  TunedUnits finish() {
    std::erase_if(result_.units, [](const TunedUnit& unit) { return unit.entries.empty(); });
    return std::move(result_);
  }

  TunedUnits& result() { return result_; }

 private:
  TunedUnit& of(const std::string& config, const std::string& device, const std::optional<RowRange>& rows) {
    const auto [at, is_new] = index_.try_emplace(UnitKey{config, device, first_row(rows)}, result_.units.size());
    if (is_new) result_.units.emplace_back(), last_round_.push_back(-1);
    return result_.units[at->second];
  }

  TunedUnits result_;
  std::map<UnitKey, std::size_t> index_;
  std::vector<int> last_round_;  // of each unit's race under way; -1: none is
};

JsonValue clock_or_null(int mhz) { return mhz ? JsonValue(mhz) : JsonValue(); }

JsonValue to_json(const TunedUnit& unit, const TunedUnit::Entry& entry, RaceDetail detail) {
  const Trial& trial = entry.trial;
  JsonValue times = JsonValue::array(), rounds = JsonValue::array();
  for (const Trial::Time& time : trial.times)
    times.push(JsonValue::object().set("shape", time.shape).set("us", time.us).set("samples", time.samples));
  for (const auto& round : entry.rounds) {
    if (detail != RaceDetail::kAll && !is_finalist(entry) && &round != &entry.rounds.back()) continue;
    rounds.push(JsonValue::object()
                    .set("race", round.race)
                    .set("round", round.round)
                    .set("mean_us", round.mean_us)
                    .set("clock_mhz", clock_or_null(round.clock_mhz))
                    .set("date", round.date));
  }
  JsonValue json = JsonValue::object();
  json.set("key", trial.key).set("label", unit.label(entry)).set("schedule", JsonValue::parse(trial.schedule));
  json.set("is_model", trial.is_model).set("verdict", to_string(trial.verdict)).set("reason", trial.reason);
  json.set("registers", trial.registers).set("spill_bytes", trial.spill_bytes).set("ctas_per_sm", trial.ctas_per_sm);
  json.set("predicted_us", trial.predicted_us).set("mean_us", trial.mean_us);
  return json.set("times", std::move(times)).set("rounds", std::move(rounds));
}

}  // namespace

std::string TunedUnit::name() const { return unit_name(first().config, first().rows); }

const TunedUnit::Entry* TunedUnit::find(std::string_view key) const {
  for (const Entry& entry : entries)
    if (entry.trial.key == key) return &entry;
  return nullptr;
}

const TunedUnit::Entry* TunedUnit::model() const {
  for (const Entry& entry : entries)
    if (entry.trial.is_model || (outcome && entry.trial.key == outcome->model_key)) return &entry;
  return nullptr;
}

const TunedUnit::Entry* TunedUnit::best() const {
  if (outcome) return find(outcome->best_key);
  const Entry* fastest = nullptr;
  for (const Entry& entry : entries)
    if (is_timed(entry) && is_finalist(entry) && !entry.trial.is_model &&
        (!fastest || entry.trial.mean_us < fastest->trial.mean_us))
      fastest = &entry;
  return fastest;
}

std::string TunedUnit::label(const Entry& entry) const {
  const Entry* base = model();
  if (base == &entry) return "the model's choice";
  return differing_fields(JsonValue::parse(entry.trial.schedule),
                          base ? JsonValue::parse(base->trial.schedule) : JsonValue::object());
}

TunedUnits read_tuned_units(std::string_view log) {
  Reader reader;
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t end = std::min(log.find('\n', at), log.size());
    const std::string_view line = log.substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    ++reader.result().lines;
    try {
      if (is_outcome(line))
        reader.add(read_outcome(line));
      else
        reader.add(read_trial(line));
    } catch (const ConfigError&) {
      ++reader.result().unreadable;
    }
  }
  return reader.finish();
}

JsonValue to_json(const TunedUnit& unit, RaceDetail detail) {
  JsonValue trials = JsonValue::array();
  for (const TunedUnit::Entry& entry : unit.entries)
    if (detail != RaceDetail::kFinalists || is_finalist(entry) || &entry == unit.model())
      trials.push(to_json(unit, entry, detail));
  JsonValue json = JsonValue::object();
  json.set("name", unit.name()).set("device", unit.first().device).set("arch", unit.first().arch);
  json.set("races", unit.races);
  json.set("outcome", unit.outcome ? JsonValue::parse(write_outcome(*unit.outcome)) : JsonValue());
  return json.set("trials", std::move(trials));
}

}  // namespace kernelwright::cli
