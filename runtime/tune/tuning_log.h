/// The tuner's log: a line of JSON for each trial and round, so that measurements survive an interruption.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright {

/// The outcome of a trial.
enum class TrialVerdict {
  kRight,     // compiled and equal to the reference; not timed yet
  kMeasured,  // timed in this round, and still in
  kSlower,    // timed, and out
  kWrong,     // its output differs from the reference's, or from run to run
  kSpills,    // its registers do not suffice
  kFailed,    // not compiled, not loaded or not launched
};
std::string_view to_string(TrialVerdict verdict);

struct Trial {
  std::string key;  // of the kernel, the parts of its keys and the shapes: equal keys mean equal measurements
  std::string device, config, arch;
  std::string schedule;  // one line of JSON
  TrialVerdict verdict = TrialVerdict::kMeasured;
  std::string reason;  // of kWrong, kSpills and kFailed
  int round = -1;      // -1: it was never timed
  int registers = 0, spill_bytes = 0;
  int clock_mhz = 0;  // of the SMs, after the round; 0: not known
  double mean_us = 0;
  struct Time {
    std::string shape;
    double us = 0;  // median
    std::size_t samples = 0;
  };
  std::vector<Time> times;
  std::string date;  // of the line, UTC

  /// Whether --resume need not try it again.
  bool is_settled() const { return verdict != TrialVerdict::kMeasured && verdict != TrialVerdict::kRight; }
};

/// Writes the trial as one line, without the newline, and reads it back. read_trial() throws ConfigError.
std::string write_trial(const Trial& trial);
Trial read_trial(std::string_view line);

/// Appends to a file. The system has every line whole before add() returns, so a killed process loses none.
class TuningLog {
 public:
  /// Opens `path` for appending. Existing lines stay, and a line that was cut off is ended. Throws ConfigError.
  explicit TuningLog(std::string path);
  ~TuningLog();
  TuningLog(const TuningLog&) = delete;
  TuningLog& operator=(const TuningLog&) = delete;
  void add(const Trial& trial);
  const std::string& path() const { return path_; }

  struct Contents {
    std::map<std::string, Trial> trials;  // by key: the last line of each
    std::size_t lines = 0, unreadable = 0;
  };
  /// What a log says about `device`. A missing file has no lines; an unreadable line is counted and skipped. Throws
  /// ConfigError if the file exists and cannot be read.
  static Contents read(const std::string& path, const std::string& device);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace kernelwright
