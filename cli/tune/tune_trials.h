/// The middle part of `tune`: candidates are compiled in parallel, compared with the reference, and raced on the
/// device.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/engine_for.h"
#include "cli/tune/unit_words.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/gemm/candidates.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/tuned/row.h"
#include "kernelwright/runtime/tune/tuner.h"
#include "kernelwright/runtime/tune/tuning_log.h"

namespace kernelwright::cli {

struct TuneOptions {
  double budget_s = 120;
  std::uint64_t seed = 0;
  std::optional<std::size_t> candidates;  // most candidates, including the model's choice; else as many as the kind has
  bool resume = false;
  std::string rival;       // a schedule's canonical text: it alone races the model's choice; "": all candidates do
  std::size_t copies = 0;  // of the model's choice, which alone race it: an A/A test; 0: candidates do
  std::string log;
  std::function<bool()> interrupted;
};

/// What tuning one config found, for launches to which one row may apply.
template <class KindOfConfig>
struct TuneResult {
  const NamedConfig* named = nullptr;
  std::string device;                         // the name of the device that it ran on
  const MachineClass* machine = nullptr;      // its class
  TunedFor<KindOfConfig> launches;            // of the row
  std::vector<ShapeOf<KindOfConfig>> shapes;  // the measured shapes
  CandidateList<KindOfConfig> candidates;
  std::vector<Trial> trials;  // in the order of candidates.kept, each with its last verdict; an empty key: not tried
                              // yet
  std::size_t resumed = 0;    // how many of those the log has settled
  std::size_t left = 0;       // how many of those were not compiled and checked within the budget
  std::size_t verified = 0;
  Race race;                        // entrants are indices of candidates.kept
  int clock_mhz = 0;                // after the last round; 0: not known
  std::string gpu_id;               // tells this GPU from others; "" on the emulator
  std::set<std::string> limits;     // what held the SM clock down during the race
  std::set<std::string> slowdowns;  // those that are a fault of the machine
  std::vector<int> clocks_mhz;      // of the SMs, a reading each pass of the race; empty: not known
  std::string compiler;             // that compiled the fastest kernel
  double seconds = 0;
  const KindOfConfig& config() const { return std::get<KindOfConfig>(named->config); }
  /// The model's own choice is not usable: it does not compile, or its output is wrong. Then there was no race.
  bool model_failed() const { return !trials.empty() && trials[0].is_settled() && trials[0].round < 0; }
};

/// Groups of shapes for which one schedule is chosen. For attention all shapes are one group; for a GEMM each range of
/// rows is a group. Work without rows is in no group.
std::vector<std::vector<AttentionShape>> groups_of(const AttentionConfig& config, std::vector<AttentionShape> shapes);
std::vector<std::vector<GemmShape>> groups_of(const GemmConfig& config, std::vector<GemmShape> shapes);

/// Tunes one config on `place` for `shapes`, a group. The log gets a line for each trial and round. An interruption is
/// no error: the race reports it. Throws if the machine lacks something. Throws DeviceError if a candidate has broken
/// the GPU's context; its trial is logged, so that a resumed run skips it.
template <class KindOfConfig>
TuneResult<KindOfConfig> tune_config(const Place& place, const NamedConfig& named,
                                     const std::vector<ShapeOf<KindOfConfig>>& shapes,
                                     const std::vector<ShapeOf<KindOfConfig>>& checks, const TuneOptions& options);

/// Compiles the candidates that tune_config() would race, into the cache, and returns how many compiled. Nothing is
/// launched, so the emulator is as good a place as a GPU of its architecture.
template <class KindOfConfig>
std::size_t compile_candidates(const Place& place, const NamedConfig& named,
                               const std::vector<ShapeOf<KindOfConfig>>& shapes, const TuneOptions& options);

}  // namespace kernelwright::cli
