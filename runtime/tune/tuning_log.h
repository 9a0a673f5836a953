/// The tuner's log: a line of JSON for each trial and round, and one for each race that came to its end. Measurements
/// survive an interruption, and a report can be made of the log alone.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/tuned/row.h"
#include "kernelwright/runtime/tune/tuner.h"

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
  std::optional<RowRange> rows;  // of a GEMM: the range that is tuned
  std::string schedule;          // one line of JSON
  bool is_model = false;         // the schedule is the model's choice, with which the others are compared
  TrialVerdict verdict = TrialVerdict::kMeasured;
  std::string reason;  // of kWrong, kSpills and kFailed
  int round = -1;      // -1: it was never timed
  int registers = 0, spill_bytes = 0;
  int ctas_per_sm = 0;      // that an SM holds at once; 0: not known
  double predicted_us = 0;  // the geometric mean over shapes, by the planner's model; 0: it has none
  int clock_mhz = 0;        // of the SMs, after the round; 0: not known
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

/// What the race of one unit came to: one config on one device, and of a GEMM one range of rows.
struct UnitOutcome {
  std::string decision;  // "row", "pinned", "model" or "none"
  std::string config, device, arch;
  std::optional<RowRange> rows;
  Ratio best_over_model;
  std::string model_key, best_key;  // of the two trials that the ratio compares; "" if there was no race
  /// The least that a device of its class can do on a shape, one launch.
  struct Shape {
    std::string shape;
    double operations = 0, bytes = 0;
    double compute_us = 0, memory_us = 0;
  };
  std::vector<Shape> shapes;
  int clock_least_mhz = 0, clock_median_mhz = 0, clock_most_mhz = 0;  // of the SMs, during the race; 0: not known
  std::string gpu_id;                                                 // tells the GPU from others; "": not known
  std::vector<std::string> limits;                                    // what held the SM clock down: "power cap"
  double seconds = 0;
  std::string compiler, driver, kernelwright;
  bool times_mean_something = true;  // false on the emulator
  std::string date;                  // of the line, UTC
};
/// As write_trial() and read_trial().
std::string write_outcome(const UnitOutcome& outcome);
UnitOutcome read_outcome(std::string_view line);
/// Whether the line is an outcome's, by its first member.
bool is_outcome(std::string_view line);

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
  void add(const UnitOutcome& outcome);
  const std::string& path() const { return path_; }

  struct Contents {
    std::map<std::string, Trial> trials;  // by key: the last line of each
    std::size_t lines = 0, unreadable = 0;
  };
  /// The trials of `device`. A missing file has no lines; an unreadable line is counted and skipped. Throws
  /// ConfigError if the file exists and cannot be read.
  static Contents read(const std::string& path, const std::string& device);
  /// The last outcome of a unit in a log; nullopt if there is none. Throws as read() does.
  static std::optional<UnitOutcome> outcome_of(const std::string& path, const std::string& device,
                                               const std::string& config, const std::optional<RowRange>& rows);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace kernelwright
