#include "cli/tune/tune_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "cli/kinds.h"
#include "cli/terminal.h"
#include "cli/tune/candidate_facts.h"
#include "cli/tune/race_view.h"
#include "cli/tune/timed_shape.h"
#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/value.h"

namespace kernelwright::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShareOfChecks = 0.5;  // share of the budget after which compiling and checking end, even if
                                        // candidates are left
constexpr std::size_t kMostAhead = 16;  // kernels that are compiled ahead of the kernel that is checked

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// One rival is looked for among all feasible schedules, whatever their estimates.
CandidateOptions candidate_options(const Place& place, const TuneOptions& options) {
  constexpr std::size_t kAll = 1 << 20;
  CandidateOptions chosen{.num_sms = place.device.info().num_sms, .most = options.candidates, .within = {}};
  if (options.copies > 0)
    chosen.most = 1;
  else if (!options.rival.empty())
    chosen.most = kAll, chosen.within = 1e9;
  return chosen;
}

template <class KindOfConfig>
class Tuning final : private Stopwatch {
  using Of = Kind<KindOfConfig>;
  using Shapes = std::vector<ShapeOf<KindOfConfig>>;

 public:
  Tuning(const Place& place, const NamedConfig& named, const Shapes& shapes, const Shapes& checks,
         const TuneOptions& options)
      : place_(place),
        named_(named),
        config_(std::get<KindOfConfig>(named.config)),
        checks_(checks),
        options_(options),
        log_(options.log),
        began_(Clock::now()) {
    result_.named = &named;
    result_.device = place.device.info().name;
    result_.machine = &machine_of(result_.device, place.device.info().arch.value());
    result_.launches = launches_of(config_, shapes, place.device.info());
    result_.shapes = shapes;
  }

  TuneResult<KindOfConfig> run() {
    result_.candidates = enumerate_candidates(config_.problem, config_.schedule, result_.machine->arch, result_.shapes,
                                              candidate_options(place_, options_));
    if (options_.copies > 0)
      keep_copies();
    else if (!options_.rival.empty())
      keep_rival();
    order_by_prediction(result_.candidates.kept, config_, result_.shapes);
    kernels_.resize(kept().size());
    result_.trials.resize(kept().size());
    read_log();
    check_all();
    if (!options_.interrupted() && !result_.model_failed()) race_all();
    result_.race.interrupted |= options_.interrupted();
    result_.seconds = seconds_since(began_);
    return std::move(result_);
  }

 private:
  /// A copy is the kernel of the model's choice itself, so it needs no check of its own.
  void keep_copies() {
    auto& candidates = result_.candidates.kept;
    candidates.resize(1, candidates.at(0));
    candidates.resize(1 + options_.copies, candidates[0]);
    for (std::size_t i = 1; i < candidates.size(); ++i) checked_before_.insert(i);
  }

  void keep_rival() {
    auto& candidates = result_.candidates.kept;
    const auto is_rival = [&](const auto& candidate) {
      auto schedule = candidate.schedule;
      schedule.arch = {};
      return canonical_text(schedule) == options_.rival;
    };
    const auto found = std::find_if(candidates.begin() + 1, candidates.end(), is_rival);
    if (found == candidates.end())
      throw ConfigError("--confirm",
                        fmt::format("{}: the row's schedule is no candidate here but the model's choice; a "
                                    "row of this build would do: {}",
                                    named_.name(), options_.rival));
    std::iter_swap(candidates.begin() + 1, found);
    candidates.erase(candidates.begin() + 2, candidates.end());
  }

  const std::vector<CandidateOf<KindOfConfig>>& kept() const { return result_.candidates.kept; }

  /// Equal keys mean the same machine code, the same launch, and times on the same shapes.
  std::string key_of(const CandidateOf<KindOfConfig>& candidate) const {
    DigestBuilder digest;
    add_to_key(digest, place_.engine.store(), candidate.plan);
    Shapes shapes = result_.shapes;
    digest.field(detail::to_json(shapes).dump(-1));
    return digest.finish().hex();
  }

  void read_log() {
    if (!options_.resume) return;
    const TuningLog::Contents known = TuningLog::read(options_.log, result_.device);
    for (std::size_t i = 0; i < kept().size(); ++i) {
      const auto found = known.trials.find(key_of(kept()[i]));
      if (found == known.trials.end()) continue;
      // Times of another process cannot be paired with today's, so candidates that were still in the race start again.
      // A candidate that was found wrong stays out. The model's choice always takes part, because the others are
      // compared with it.
      if (found->second.is_settled() && !(i == 0 && found->second.verdict == TrialVerdict::kSlower)) {
        result_.trials[i] = found->second;
        ++result_.resumed;
      } else {
        checked_before_.insert(i);
      }
    }
  }

  Trial trial_of(std::size_t i) const {
    Trial trial;
    trial.key = key_of(kept()[i]);
    trial.device = result_.device;
    trial.config = named_.name();
    trial.arch = to_string(result_.machine->arch);
    trial.rows = range_of(result_.launches);
    trial.schedule = canonical_text(kept()[i].schedule);
    trial.is_model = i == 0;
    trial.predicted_us = predicted_us(kept()[i]);
    trial.date = utc_now();
    if (const auto binary = binary_of(kernels_[i])) {
      trial.ctas_per_sm =
          ctas_per_sm(*result_.machine, kept()[i].plan, config_.problem, result_.shapes.at(0), binary->usage);
      trial.registers = binary->usage.registers;
      trial.spill_bytes = binary->usage.spill_stores + binary->usage.spill_loads;
    }
    return trial;
  }

  void settle(std::size_t i, TrialVerdict verdict, std::string reason) {
    Trial trial = trial_of(i);
    trial.verdict = verdict;
    trial.reason = std::move(reason);
    log_.add(trial);
    result_.trials[i] = std::move(trial);
  }

  bool time_is_left() const { return seconds_since(began_) < options_.budget_s * kShareOfChecks; }

  /// Compiles on the engine's threads, a batch ahead, and checks one candidate after another. Two candidates always get
  /// their turn: the model's choice, and one to compare with it.
  void check_all() {
    std::vector<std::size_t> todo;
    for (std::size_t i = 0; i < kept().size(); ++i)
      if (result_.trials[i].key.empty()) todo.push_back(i);
    std::vector<typename Of::Case> cases;
    for (const auto& shape : checks_) cases.push_back(inputs_of(config_, shape, options_.seed));
    Progress progress("checking", todo.size());
    // As many as there are cores to compile them: the verb waits for compiles that are running when the time is over.
    const std::size_t ahead = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2, kMostAhead);
    std::size_t posted = 0;
    for (std::size_t at = 0; at < todo.size(); ++at) {
      if (options_.interrupted() || (at > 1 && !time_is_left())) {
        result_.left += todo.size() - at;
        return;
      }
      for (; posted < std::min(todo.size(), at + ahead) && (posted < 2 || time_is_left()); ++posted)
        prepare_candidate(todo[posted]);
      if (posted == at) continue;  // the time ended just now; the next iteration reports it
      check(todo[at], cases);
      progress.step(fmt::format("{} {}", named_.name(), at));
    }
  }

  void prepare_candidate(std::size_t i) {
    kernels_[i] = place_.engine.prepare(config_.problem, kept()[i].schedule,
                                        {.device = place_.device.ordinal(), .background = true});
  }

  void check(std::size_t i, const std::vector<typename Of::Case>& cases) {
    try {
      kernels_[i].wait();
    } catch (const CompileError& error) {
      return settle(i, TrialVerdict::kFailed, error.what());
    } catch (const DeviceError& error) {
      return settle(i, TrialVerdict::kFailed, error.what());
    }
    const auto binary = binary_of(kernels_[i]);
    if (const int spilled = binary->usage.spill_stores + binary->usage.spill_loads; spilled > 0 && i > 0)
      return settle(i, TrialVerdict::kSpills, fmt::format("{} bytes", spilled));
    if (!checked_before_.count(i))
      for (std::size_t c = 0; c < cases.size(); ++c) try {
          const auto launched = launch_twice(place_.device, cases[c], kernels_[i]);
          typename Of::VerdictOptions sampling;
          sampling.seed = options_.seed;
          const auto verdict = verify(cases[c], launched.output, sampling);
          std::string why = verdict.text;
          if (why.empty() && !launched.repeats) why = "two launches of the same inputs differ";
          if (why.empty() && !launched.guards_intact) why = "memory beside an output was written";
          if (!why.empty()) return settle(i, TrialVerdict::kWrong, checks_[c].name + ": " + why);
        } catch (const DeviceError& error) {
          settle(i, TrialVerdict::kFailed, checks_[c].name + ": " + error.what());
          if (!place_.emulator) throw;  // a GPU's context does not survive such an error
          return;
        }
    if (!checked_before_.count(i)) settle(i, TrialVerdict::kRight, "");  // an interruption does not lose the check
    ++result_.verified;
    entrants_.push_back(i);
  }

  void race_all() {
    if (entrants_.empty() || entrants_[0] != 0) return;  // the model's choice was not checked in time
    flusher_ = std::make_unique<Flusher>(place_.device);
    const std::vector<std::size_t> others(entrants_.begin() + 1, entrants_.end());
    RaceOptions race_options;
    race_options.budget_s = std::max(0.0, options_.budget_s - seconds_since(began_));
    RaceView view(stderr, unit_name(named_.name(), range_of(result_.launches)));
    const auto label = [this](const Standing& standing) { return label_of(standing.entrant); };
    race_options.on_round = [&](int round, const std::vector<const Standing*>& in) {
      log_round(round, in);
      view.round(round, in, label);
    };
    race_options.on_pass = [&](int round, int pass, const std::vector<const Standing*>& in) {
      // Right after work on the GPU, because an idle GPU would report another clock. The GPU idles meanwhile, and the
      // next sample is slower. So a reading comes between passes, which begin with each kernel as often.
      if (const std::optional<GpuReading> reading = place_.device.reading()) take(*reading);
      view.pass(round, pass, in, seconds_since(began_) / std::max(options_.budget_s, 1e-3), label);
    };
    result_.race = race(0, others, result_.shapes.size(), *this, race_options);
    result_.left += result_.race.left;
    settle_standings();
    if (const Standing* best = result_.race.best())
      if (const auto binary = binary_of(kernels_[best->entrant])) result_.compiler = binary->compiler;
    if (const auto binary = binary_of(kernels_[0]); result_.compiler.empty() && binary)
      result_.compiler = binary->compiler;
    shapes_on_device_.clear();
  }

  std::string label_of(std::size_t i) const {
    if (i == 0) return "the model's choice";
    auto schedule = kept()[i].schedule, model = kept()[0].schedule;
    return differing_fields(detail::to_json(schedule), detail::to_json(model));
  }

  Trial trial_of(const Standing& standing, int round) const {
    Trial trial = trial_of(standing.entrant);
    trial.round = round;
    trial.mean_us = standing.mean_us();
    for (std::size_t s = 0; s < result_.shapes.size(); ++s)
      trial.times.push_back({result_.shapes[s].name, standing.median_us(s), standing.samples[s].size()});
    trial.clock_mhz = result_.clock_mhz;
    return trial;
  }

  void log_round(int round, const std::vector<const Standing*>& in) {
    result_.clock_mhz = clock_in_round_;
    for (const Standing* standing : in) {
      if (standing->mean_us() == 0) continue;  // interrupted before its first pass was complete
      result_.trials[standing->entrant] = trial_of(*standing, round);
      log_.add(result_.trials[standing->entrant]);
    }
    clock_in_round_ = 0;
  }

  /// Candidates that are out are settled. Finalists race again if the user resumes.
  void settle_standings() {
    for (const Standing& standing : result_.race.standings) {
      if (standing.out_in_round < 0 || standing.entrant == 0) continue;
      Trial& trial = result_.trials[standing.entrant];
      trial.verdict = TrialVerdict::kSlower;
      log_.add(trial);
    }
  }

  double measure(std::size_t entrant, std::size_t shape) override {
    if (shapes_on_device_.size() <= shape) shapes_on_device_.resize(result_.shapes.size());
    auto& timed = shapes_on_device_[shape];
    if (!timed)
      timed = std::make_unique<TimedShape<KindOfConfig>>(place_.device, config_, result_.shapes[shape], options_.seed,
                                                         *flusher_);
    double us = 0;
    try {
      us = timed->sample(entrant, kernels_[entrant]);
    } catch (const DeviceError& error) {
      settle(entrant, TrialVerdict::kFailed, result_.shapes[shape].name + ": " + error.what());
      throw;
    }
    return us;
  }
  void take(const GpuReading& reading) {
    clock_in_round_ = reading.sm_clock_mhz;
    result_.clocks_mhz.push_back(reading.sm_clock_mhz);
    result_.limits.insert(reading.limits.begin(), reading.limits.end());
    result_.slowdowns.insert(reading.slowdowns.begin(), reading.slowdowns.end());
    // A log may leave the house, so it does not name the GPU.
    if (result_.gpu_id.empty() && !reading.uuid.empty()) result_.gpu_id = sha256(reading.uuid).hex().substr(0, 16);
  }
  double now_s() override { return seconds_since(began_) - race_began(); }
  bool interrupted() override { return options_.interrupted(); }
  double race_began() {
    if (race_began_ < 0) race_began_ = seconds_since(began_);
    return race_began_;
  }

  const Place& place_;
  const NamedConfig& named_;
  const KindOfConfig& config_;
  const Shapes& checks_;
  const TuneOptions& options_;
  TuningLog log_;
  const Clock::time_point began_;
  double race_began_ = -1;
  int clock_in_round_ = 0;
  TuneResult<KindOfConfig> result_;
  std::vector<typename Of::Kernel> kernels_;  // in the order of candidates.kept
  std::vector<std::size_t> entrants_;         // indices of the candidates that passed the check
  std::set<std::size_t> checked_before_;      // according to the log
  std::unique_ptr<Flusher> flusher_;
  std::vector<std::unique_ptr<TimedShape<KindOfConfig>>> shapes_on_device_;
};

}  // namespace

std::vector<std::vector<AttentionShape>> groups_of(const AttentionConfig&, std::vector<AttentionShape> shapes) {
  return {std::move(shapes)};
}

std::vector<std::vector<GemmShape>> groups_of(const GemmConfig& config, std::vector<GemmShape> shapes) {
  std::map<int, std::vector<GemmShape>> groups;  // by the first number of rows of a range
  for (GemmShape& shape : shapes)
    if (shape.m > 0) groups[gemm_row_range(planned_rows(config.problem, shape)).least].push_back(std::move(shape));
  std::vector<std::vector<GemmShape>> list;
  for (auto& [least, group] : groups) list.push_back(std::move(group));
  return list;
}

template <class KindOfConfig>
TuneResult<KindOfConfig> tune_config(const Place& place, const NamedConfig& named,
                                     const std::vector<ShapeOf<KindOfConfig>>& shapes,
                                     const std::vector<ShapeOf<KindOfConfig>>& checks, const TuneOptions& options) {
  return Tuning<KindOfConfig>(place, named, shapes, checks, options).run();
}

template <class KindOfConfig>
std::size_t compile_candidates(const Place& place, const NamedConfig& named,
                               const std::vector<ShapeOf<KindOfConfig>>& shapes, const TuneOptions& options) {
  const auto& config = std::get<KindOfConfig>(named.config);
  const auto candidates = enumerate_candidates(config.problem, config.schedule, place.device.info().arch.value(),
                                               shapes, candidate_options(place, options));
  std::vector<typename Kind<KindOfConfig>::Kernel> kernels;
  for (const auto& candidate : candidates.kept)
    kernels.push_back(place.engine.prepare(config.problem, candidate.schedule,
                                           {.device = place.device.ordinal(), .background = true}));
  std::size_t compiled = 0;
  for (auto& kernel : kernels) try {
      if (options.interrupted()) break;
      kernel.wait();
      ++compiled;
    } catch (const CompileError&) {
      // The race meets it again, and logs it.
    }
  return compiled;
}
template std::size_t compile_candidates<AttentionConfig>(const Place&, const NamedConfig&,
                                                         const std::vector<AttentionShape>&, const TuneOptions&);
template std::size_t compile_candidates<GemmConfig>(const Place&, const NamedConfig&, const std::vector<GemmShape>&,
                                                    const TuneOptions&);
template TuneResult<AttentionConfig> tune_config(const Place&, const NamedConfig&, const std::vector<AttentionShape>&,
                                                 const std::vector<AttentionShape>&, const TuneOptions&);
template TuneResult<GemmConfig> tune_config(const Place&, const NamedConfig&, const std::vector<GemmShape>&,
                                            const std::vector<GemmShape>&, const TuneOptions&);

}  // namespace kernelwright::cli
