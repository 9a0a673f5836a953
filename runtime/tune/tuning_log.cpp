#include "kernelwright/runtime/tune/tuning_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/message.h"

namespace kernelwright {
namespace {

constexpr TrialVerdict kVerdicts[] = {TrialVerdict::kRight, TrialVerdict::kMeasured, TrialVerdict::kSlower,
                                      TrialVerdict::kWrong, TrialVerdict::kSpills,   TrialVerdict::kFailed};

void write_all(int descriptor, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw ConfigError(path, std::string("cannot be written: ") + std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// A clock is a whole number of MHz, or "unknown".
JsonValue clock_json(int mhz) { return mhz ? JsonValue(mhz) : JsonValue("unknown"); }
int read_clock(const JsonValue& clock) { return clock.is_int64() ? static_cast<int>(clock.as_int()) : 0; }

/// Rows are a member of a GEMM's lines alone.
void set_rows(JsonValue& json, std::optional<RowRange> rows) {
  if (rows) json.set("rows", JsonValue::object().set("least", rows->least).set("most", rows->most));
}
std::optional<RowRange> read_rows(const JsonValue& json) {
  const JsonValue* rows = json.find("rows");
  if (!rows) return std::nullopt;
  return RowRange{static_cast<int>(rows->at("/least").as_int()), static_cast<int>(rows->at("/most").as_int())};
}

/// Calls take(line) for each line of a log that is not empty. A missing file has none.
template <class Take>
void each_line(const std::string& path, const Take& take) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return;
  if (!std::filesystem::is_regular_file(path, code)) throw ConfigError(path, "is no file; a log of trials would do");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ConfigError(path, "cannot be read");
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) take(line);
}

/// Calls read(the line's JSON). What a line lacks is a ConfigError.
template <class Read>
auto read_line(std::string_view line, const Read& read) {
  try {
    return read(JsonValue::parse(line));
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError("", error.what());
  }
}

}  // namespace

std::string_view to_string(TrialVerdict verdict) {
  switch (verdict) {
    case TrialVerdict::kRight: return "right";
    case TrialVerdict::kMeasured: return "measured";
    case TrialVerdict::kSlower: return "slower";
    case TrialVerdict::kWrong: return "wrong";
    case TrialVerdict::kSpills: return "spills";
    case TrialVerdict::kFailed: return "failed";
  }
  return "?";
}

std::string write_trial(const Trial& trial) {
  JsonValue times = JsonValue::array();
  for (const Trial::Time& time : trial.times)
    times.push(JsonValue::object().set("shape", time.shape).set("us", time.us).set("samples", time.samples));
  JsonValue json = JsonValue::object();
  json.set("config", trial.config).set("device", trial.device).set("arch", trial.arch);
  set_rows(json, trial.rows);
  json.set("schedule", JsonValue::parse(trial.schedule)).set("is_model", trial.is_model);
  json.set("verdict", to_string(trial.verdict));
  if (!trial.reason.empty()) json.set("reason", trial.reason);
  json.set("round", trial.round).set("mean_us", trial.mean_us).set("times", std::move(times));
  json.set("registers", trial.registers).set("spill_bytes", trial.spill_bytes).set("ctas_per_sm", trial.ctas_per_sm);
  json.set("predicted_us", trial.predicted_us).set("clock_mhz", clock_json(trial.clock_mhz));
  return json.set("date", trial.date).set("key", trial.key).dump(-1);
}

Trial read_trial(std::string_view line) {
  return read_line(line, [](const JsonValue& json) {
    Trial trial;
    trial.key = json.at("/key").as_string();
    trial.device = json.at("/device").as_string();
    trial.config = json.at("/config").as_string();
    trial.arch = json.at("/arch").as_string();
    trial.rows = read_rows(json);
    trial.schedule = json.at("/schedule").dump(-1);
    const std::string& verdict = json.at("/verdict").as_string();
    bool known = false;
    for (const TrialVerdict one : kVerdicts)
      if (to_string(one) == verdict) trial.verdict = one, known = true;
    if (!known) throw ConfigError("/verdict", quoted_for_message(verdict) + " is no verdict of a trial");
    if (const JsonValue* reason = json.find("reason")) trial.reason = reason->as_string();
    trial.round = static_cast<int>(json.at("/round").as_int());
    trial.registers = static_cast<int>(json.at("/registers").as_int());
    trial.spill_bytes = static_cast<int>(json.at("/spill_bytes").as_int());
    // Older logs lack these three.
    if (const JsonValue* is_model = json.find("is_model")) trial.is_model = is_model->as_bool();
    if (const JsonValue* ctas = json.find("ctas_per_sm")) trial.ctas_per_sm = static_cast<int>(ctas->as_int());
    if (const JsonValue* predicted = json.find("predicted_us")) trial.predicted_us = predicted->as_double();
    trial.clock_mhz = read_clock(json.at("/clock_mhz"));
    trial.mean_us = json.at("/mean_us").as_double();
    for (const JsonValue& time : json.at("/times").elements())
      trial.times.push_back({time.at("/shape").as_string(), time.at("/us").as_double(),
                             static_cast<std::size_t>(time.at("/samples").as_int())});
    trial.date = json.at("/date").as_string();
    return trial;
  });
}

std::string write_outcome(const UnitOutcome& outcome) {
  JsonValue shapes = JsonValue::array();
  for (const UnitOutcome::Shape& shape : outcome.shapes)
    shapes.push(JsonValue::object()
                    .set("shape", shape.shape)
                    .set("operations", shape.operations)
                    .set("bytes", shape.bytes)
                    .set("compute_us", shape.compute_us)
                    .set("memory_us", shape.memory_us));
  const Ratio& ratio = outcome.best_over_model;
  JsonValue json = JsonValue::object();
  json.set("outcome", outcome.decision);
  json.set("config", outcome.config).set("device", outcome.device).set("arch", outcome.arch);
  set_rows(json, outcome.rows);
  json.set("best_over_model", JsonValue::object()
                                  .set("median", ratio.median)
                                  .set("low", ratio.low)
                                  .set("high", ratio.high)
                                  .set("pairs", ratio.pairs));
  json.set("model", outcome.model_key).set("best", outcome.best_key).set("shapes", std::move(shapes));
  json.set("clock_mhz", JsonValue::object()
                            .set("least", clock_json(outcome.clock_least_mhz))
                            .set("median", clock_json(outcome.clock_median_mhz))
                            .set("most", clock_json(outcome.clock_most_mhz)));
  JsonValue limits = JsonValue::array();
  for (const std::string& limit : outcome.limits) limits.push(limit);
  json.set("gpu_id", outcome.gpu_id).set("limits", std::move(limits));
  json.set("seconds", outcome.seconds).set("compiler", outcome.compiler).set("driver", outcome.driver);
  json.set("kernelwright", outcome.kernelwright).set("times_mean_something", outcome.times_mean_something);
  return json.set("date", outcome.date).dump(-1);
}

UnitOutcome read_outcome(std::string_view line) {
  return read_line(line, [](const JsonValue& json) {
    UnitOutcome outcome;
    outcome.decision = json.at("/outcome").as_string();
    outcome.config = json.at("/config").as_string();
    outcome.device = json.at("/device").as_string();
    outcome.arch = json.at("/arch").as_string();
    outcome.rows = read_rows(json);
    const JsonValue& ratio = json.at("/best_over_model");
    outcome.best_over_model = {ratio.at("/median").as_double(), ratio.at("/low").as_double(),
                               ratio.at("/high").as_double(), static_cast<std::size_t>(ratio.at("/pairs").as_int())};
    outcome.model_key = json.at("/model").as_string();
    outcome.best_key = json.at("/best").as_string();
    for (const JsonValue& shape : json.at("/shapes").elements())
      outcome.shapes.push_back({shape.at("/shape").as_string(), shape.at("/operations").as_double(),
                                shape.at("/bytes").as_double(), shape.at("/compute_us").as_double(),
                                shape.at("/memory_us").as_double()});
    outcome.clock_least_mhz = read_clock(json.at("/clock_mhz/least"));
    outcome.clock_median_mhz = read_clock(json.at("/clock_mhz/median"));
    outcome.clock_most_mhz = read_clock(json.at("/clock_mhz/most"));
    outcome.gpu_id = json.at("/gpu_id").as_string();
    for (const JsonValue& limit : json.at("/limits").elements()) outcome.limits.push_back(limit.as_string());
    outcome.seconds = json.at("/seconds").as_double();
    outcome.compiler = json.at("/compiler").as_string();
    outcome.driver = json.at("/driver").as_string();
    outcome.kernelwright = json.at("/kernelwright").as_string();
    outcome.times_mean_something = json.at("/times_mean_something").as_bool();
    outcome.date = json.at("/date").as_string();
    return outcome;
  });
}

bool is_outcome(std::string_view line) { return line.starts_with(R"({"outcome":)"); }

TuningLog::TuningLog(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    throw ConfigError(
        path_, std::string("cannot be written: ") + std::strerror(errno) + "; a file in a folder that exists would do");
  const off_t size = ::lseek(descriptor_, 0, SEEK_END);
  char last = '\n';
  // A process that died in the middle of a line must not spoil the next one's first line.
  if (size > 0 && ::pread(descriptor_, &last, 1, size - 1) == 1 && last != '\n') write_all(descriptor_, "\n", path_);
}

TuningLog::~TuningLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TuningLog::add(const Trial& trial) { write_all(descriptor_, write_trial(trial) + "\n", path_); }
void TuningLog::add(const UnitOutcome& outcome) { write_all(descriptor_, write_outcome(outcome) + "\n", path_); }

TuningLog::Contents TuningLog::read(const std::string& path, const std::string& device) {
  Contents contents;
  each_line(path, [&](const std::string& line) {
    ++contents.lines;
    if (is_outcome(line)) return;
    try {
      Trial trial = read_trial(line);
      if (trial.device == device) contents.trials.insert_or_assign(trial.key, std::move(trial));
    } catch (const ConfigError&) {
      ++contents.unreadable;
    }
  });
  return contents;
}

std::optional<UnitOutcome> TuningLog::outcome_of(const std::string& path, const std::string& device,
                                                 const std::string& config, const std::optional<RowRange>& rows) {
  std::optional<UnitOutcome> last;
  each_line(path, [&](const std::string& line) {
    if (!is_outcome(line)) return;
    try {
      UnitOutcome outcome = read_outcome(line);
      if (outcome.device == device && outcome.config == config && outcome.rows == rows) last = std::move(outcome);
    } catch (const ConfigError&) {
      // Cut off: the race is run again.
    }
  });
  return last;
}

}  // namespace kernelwright
