/// The middle of `tune`: candidates are compiled in parallel, held to the reference, and raced on the device.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine_for.h"
#include "kernelwright/generator/candidates.h"
#include "kernelwright/runtime/tuner.h"
#include "kernelwright/runtime/tuning_log.h"

namespace kernelwright::cli {

struct TuneOptions {
  double budget_s = 120;
  std::uint64_t seed = 0;
  std::size_t candidates = 64;  // at most, the model's choice among them
  bool resume = false;
  std::string log;
  std::function<bool()> interrupted;
};

/// What tuning one config found.
struct TuneResult {
  const NamedConfig* named = nullptr;
  std::string device;
  Arch arch = Arch::kSm80;
  std::vector<AttentionShape> shapes;  // that were measured
  Candidates candidates;
  std::vector<Trial> trials;  // of candidates.kept, with the last verdict of each; an empty key: not tried yet
  std::size_t resumed = 0;    // of those: settled by the log
  std::size_t left = 0;       // of those: the budget was over before they were compiled and checked
  std::size_t verified = 0;
  Race race;  // entrants are indices of candidates.kept
  int clock_mhz = 0;
  std::string compiler;  // of the fastest kernel
  double seconds = 0;
  /// The model's own choice cannot be had: it does not compile, or its output is wrong. Then nothing was raced.
  bool model_failed() const { return !trials.empty() && trials[0].is_settled() && trials[0].round < 0; }
};

/// Tunes one config on `place`. The log gets a line for each trial and round. An interruption is no error: the race
/// says so. Throws what the machine lacks, and DeviceError where a candidate has broken the GPU's context (its trial is
/// logged, so that resuming passes it by).
TuneResult tune_config(const Place& place, const NamedConfig& named, const std::vector<AttentionShape>& shapes,
                       const std::vector<AttentionShape>& checks, const TuneOptions& options);

}  // namespace kernelwright::cli
