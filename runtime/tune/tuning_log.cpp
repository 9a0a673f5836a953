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
  json.set("schedule", JsonValue::parse(trial.schedule)).set("verdict", to_string(trial.verdict));
  if (!trial.reason.empty()) json.set("reason", trial.reason);
  json.set("round", trial.round).set("mean_us", trial.mean_us).set("times", std::move(times));
  json.set("registers", trial.registers).set("spill_bytes", trial.spill_bytes);
  json.set("clock_mhz", trial.clock_mhz ? JsonValue(trial.clock_mhz) : JsonValue("unknown"));
  return json.set("date", trial.date).set("key", trial.key).dump(-1);
}

Trial read_trial(std::string_view line) {
  try {
    const JsonValue json = JsonValue::parse(line);
    Trial trial;
    trial.key = json.at("/key").as_string();
    trial.device = json.at("/device").as_string();
    trial.config = json.at("/config").as_string();
    trial.arch = json.at("/arch").as_string();
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
    if (const JsonValue& clock = json.at("/clock_mhz"); clock.is_int64())
      trial.clock_mhz = static_cast<int>(clock.as_int());
    trial.mean_us = json.at("/mean_us").as_double();
    for (const JsonValue& time : json.at("/times").elements())
      trial.times.push_back({time.at("/shape").as_string(), time.at("/us").as_double(),
                             static_cast<std::size_t>(time.at("/samples").as_int())});
    trial.date = json.at("/date").as_string();
    return trial;
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError("", error.what());
  }
}

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

TuningLog::Contents TuningLog::read(const std::string& path, const std::string& device) {
  Contents contents;
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return contents;
  if (!std::filesystem::is_regular_file(path, code)) throw ConfigError(path, "is no file; a log of trials would do");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ConfigError(path, "cannot be read");
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    ++contents.lines;
    try {
      Trial trial = read_trial(line);
      if (trial.device == device) contents.trials.insert_or_assign(trial.key, std::move(trial));
    } catch (const ConfigError&) {
      ++contents.unreadable;
    }
  }
  return contents;
}

}  // namespace kernelwright
