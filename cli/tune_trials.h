/// The middle of `tune`: candidates are compiled in parallel, held to the reference, and raced on the device.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine_for.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/gemm/candidates.h"
#include "kernelwright/generator/tuned/row.h"
#include "kernelwright/runtime/tune/tuner.h"
#include "kernelwright/runtime/tune/tuning_log.h"

namespace kernelwright::cli {

struct TuneOptions {
  double budget_s = 120;
  std::uint64_t seed = 0;
  std::optional<std::size_t> candidates;  // at most, the model's choice among them; else as many as the kind has
  bool resume = false;
  std::string log;
  std::function<bool()> interrupted;
};

/// What tuning one config found, for launches that one row may speak for.
template <class KindOfConfig>
struct TuneResult {
  const NamedConfig* named = nullptr;
  std::string device;
  Arch arch = Arch::kSm80;
  TunedFor<KindOfConfig> launches;            // of the row
  std::vector<ShapeOf<KindOfConfig>> shapes;  // that were measured
  CandidateList<KindOfConfig> candidates;
  std::vector<Trial> trials;  // of candidates.kept, with the last verdict of each; an empty key: not tried yet
  std::size_t resumed = 0;    // of those: settled by the log
  std::size_t left = 0;       // of those: the budget was over before they were compiled and checked
  std::size_t verified = 0;
  Race race;  // entrants are indices of candidates.kept
  int clock_mhz = 0;
  std::string compiler;  // of the fastest kernel
  double seconds = 0;
  const KindOfConfig& config() const { return std::get<KindOfConfig>(named->config); }
  /// The model's own choice cannot be had: it does not compile, or its output is wrong. Then nothing was raced.
  bool model_failed() const { return !trials.empty() && trials[0].is_settled() && trials[0].round < 0; }
};

/// Shapes that one schedule is chosen for: all of an attention, of a GEMM those of one range of rows. Work without rows
/// is in none.
std::vector<std::vector<AttentionShape>> groups_of(std::vector<AttentionShape> shapes);
std::vector<std::vector<GemmShape>> groups_of(std::vector<GemmShape> shapes);

/// Tunes one config on `place` for `shapes`, a group. The log gets a line for each trial and round. An interruption is
/// no error: the race says so. Throws what the machine lacks, and DeviceError where a candidate has broken the GPU's
/// context (its trial is logged, so that resuming passes it by).
template <class KindOfConfig>
TuneResult<KindOfConfig> tune_config(const Place& place, const NamedConfig& named,
                                     const std::vector<ShapeOf<KindOfConfig>>& shapes,
                                     const std::vector<ShapeOf<KindOfConfig>>& checks, const TuneOptions& options);

}  // namespace kernelwright::cli
