#include "runtime/emulator/mutation/mutation_run.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/hazard_rule.h"

namespace kernelwright::test {
namespace {

using emulator::Completion;
using emulator::HazardKind;

struct Try {
  const char* name;
  Completion completion;
  std::uint64_t seed;
};

/// Policies and seeds that a mutant must survive to count as silent, cheapest first. A seed also shuffles the warps.
constexpr Try kTries[] = {
    {"eager", Completion::kEager, 0},
    {"lazy", Completion::kLazy, 0},
    {"random", Completion::kRandom, 1},
    {"random", Completion::kRandom, 2},
};

/// kTries, and each policy with `more` seeds.
std::vector<Try> tries_with(int more) {
  std::vector<Try> tries(std::begin(kTries), std::end(kTries));
  for (int i = 0; i < more; ++i)
    for (Try attempt : {kTries[0], kTries[1], kTries[2]}) {
      attempt.seed = 3 + static_cast<std::uint64_t>(i);
      tries.push_back(attempt);
    }
  return tries;
}

/// Instructions of a mutant before it is taken to hang, for each one of the unchanged kernel.
constexpr std::uint64_t kPatience = 10;
constexpr std::uint64_t kLeastInstructions = 200'000;

bool is_wrapper(const std::string& file) {
  const std::string name = file.substr(file.rfind('/') + 1);
  return name.rfind("hopper", 0) == 0 || file.rfind("ptx/", 0) == 0 || file.find("/ptx/") != file.npos;
}

std::string short_name(const std::string& file) { return file.substr(file.rfind('/') + 1); }

/// The frames without those of one-instruction functions.
std::vector<SourceFrame> frames_of_interest(const SyncSite& site) {
  std::vector<SourceFrame> frames;
  for (const SourceFrame& frame : site.frames)
    if (!is_wrapper(frame.file) && frame.line > 0) frames.push_back(frame);
  return frames.empty() ? site.frames : frames;
}

/// A barrier that orders nothing may also hold up any warp for long.
constexpr int kMostDelayedWarps = 12;
bool is_deleted_barrier(const SyncSite& site, const Mutant& mutant) {
  return mutant.change == "delete" && (site.opcode.starts_with("bar.sync") || site.opcode.starts_with("barrier.sync"));
}

/// Holds up one warp of each CTA, while the others go on.
std::string delay_at(int warp) {
  return "{ .reg .pred %kw_p; .reg .b32 %kw_r; mov.u32 %kw_r, %tid.x; shr.u32 %kw_r, %kw_r, 5; setp.ne.u32 %kw_p, "
         "%kw_r, " +
         std::to_string(warp) +
         "; @%kw_p bra KW_END; mov.u32 %kw_r, 0; KW_LOOP: add.u32 %kw_r, %kw_r, 1; setp.lt.u32 %kw_p, %kw_r, 1500; "
         "@%kw_p bra KW_LOOP; KW_END: }";
}

/// The sites' numbers among those of their entry with the same opcode, from 1.
std::vector<int> ordinals_of(const std::vector<SyncSite>& sites) {
  std::map<std::pair<std::string, std::string>, int> seen;
  std::vector<int> ordinals;
  for (const SyncSite& site : sites) ordinals.push_back(++seen[{site.entry, site.opcode}]);
  return ordinals;
}

class MutantRunner {
 public:
  MutantRunner(const Subject& subject, int more_seeds)
      : subject_(subject), tries_(tries_with(more_seeds)), delays_(more_seeds > 0) {
    options_.hazards = true;
    options_.threads = 1;
    for (const Try& attempt : tries_) {
      options_.completion = attempt.completion, options_.seed = attempt.seed;
      const SubjectRun run = subject.run(subject.ptx, options_);
      for (const emulator::HazardReport& report : run.reports) {
        if (!subject.foreign || emulator::row_of(report.rule).grade == emulator::HazardGrade::kError)
          throw Error(subject.name + ", not mutated, is reported: " + report.text());
        known_.insert(event_of(report));
      }
      if (!run.failure.empty()) throw Error(subject.name + ", not mutated, fails: " + run.failure);
      if (expected_.empty()) expected_ = run.output;
      // A CTA that spins on a flag takes more instructions where others run late.
      instructions_ = std::max(instructions_, run.warp_instructions);
    }
    options_.max_instructions = kPatience * instructions_ + kLeastInstructions;
  }

  bool enters(const SyncSite& site) const {
    EmulatorBackendOptions options = options_;
    options.completion = kTries[0].completion, options.seed = kTries[0].seed;
    return !subject_.run(with_trap_at_entry(subject_.ptx, site), options).failure.empty();
  }

  /// Whether the kernel comes to the site. Any number of threads.
  bool executes(const SyncSite& site) const {
    const SubjectRun run = run_with(site, trap_at(site), kTries[0].completion, 0);
    return !run.failure.empty();
  }

  void judge(const Mutant& mutant, MutantResult& result) const {
    bool wrong = false;
    for (const Try& attempt : tries_) {
      SubjectRun run = run_with(result.site, mutant.replacement, attempt.completion, attempt.seed);
      std::erase_if(run.reports, [&](const auto& report) { return known_.count(event_of(report)) != 0; });
      if (!run.reports.empty()) {
        std::set<std::string> kinds;
        bool checked = false;
        auto gravest = emulator::HazardGrade::kNote;
        for (const emulator::HazardReport& report : run.reports) {
          kinds.insert(std::string(emulator::name_of(report.kind)));
          gravest = std::min(gravest, emulator::row_of(report.rule).grade);
          checked |= report.kind != HazardKind::kDeadlock && report.kind != HazardKind::kFault &&
                     report.kind != HazardKind::kOutOfBounds;
        }
        result.found_by.clear();
        for (const std::string& kind : kinds) result.found_by += (result.found_by.empty() ? "" : ", ") + kind;
        result.fate = checked ? Fate::kReported : Fate::kStopped;
        result.grade = emulator::name_of(gravest);
        result.first_text = run.reports.front().text();
        result.completion = attempt.name;
        if (gravest != emulator::HazardGrade::kNote) return;
        continue;  // a note alone: another schedule may find more
      }
      if (run.failure.empty() ? run.output != expected_ : true) {
        if (!wrong && result.grade.empty()) result.completion = attempt.name;
        wrong = true;
      }
    }
    if (!wrong && delays_ && is_deleted_barrier(result.site, mutant))
      for (int warp = 0; warp < kMostDelayedWarps && !wrong; ++warp)
        wrong = run_with(result.site, delay_at(warp), Completion::kEager, 0).output != expected_;
    if (result.grade.empty()) result.fate = wrong ? Fate::kWrongOutput : Fate::kSilent;
  }

 private:
  SubjectRun run_with(const SyncSite& site, const std::string& replacement, Completion completion,
                      std::uint64_t seed) const {
    EmulatorBackendOptions options = options_;
    options.completion = completion, options.seed = seed;
    return subject_.run(with_replacement(subject_.ptx, site, replacement), options);
  }

  /// What tells a report from others: its rule, and the PTX lines of its sides.
  using Event = std::tuple<emulator::HazardRule, int, int>;
  static Event event_of(const emulator::HazardReport& report) {
    return {report.rule, report.first.ptx_line, report.second.ptx_line};
  }

  const Subject& subject_;
  std::vector<Try> tries_;
  bool delays_;
  std::set<Event> known_;  // the reports of the unmutated kernel, which is a foreign one
  EmulatorBackendOptions options_;
  std::vector<std::byte> expected_;
  std::uint64_t instructions_ = 0;
};

}  // namespace

const char* name_of(Fate fate) {
  switch (fate) {
    case Fate::kReported: return "reported";
    case Fate::kStopped: return "stopped";
    case Fate::kWrongOutput: return "wrong output";
    case Fate::kSilent: return "silent";
    case Fate::kEquivalent: return "equivalent";
    case Fate::kNotExecuted: return "not executed";
  }
  return "";
}

std::vector<MutantResult> run_mutants(const Subject& subject, int jobs, int more_seeds) {
  const MutantRunner runner(subject, more_seeds);
  std::vector<SyncSite> sites = sync_sites(subject.ptx);
  std::map<std::string, bool> entered;
  for (const SyncSite& site : sites)
    if (!entered.count(site.entry)) entered[site.entry] = runner.enters(site);
  std::erase_if(sites, [&](const SyncSite& site) { return !entered[site.entry]; });
  const std::vector<int> ordinals = ordinals_of(sites);
  std::vector<std::vector<Mutant>> mutants;
  std::vector<std::pair<std::size_t, std::size_t>> work;  // site, its mutant
  std::vector<std::vector<MutantResult>> results(sites.size());
  for (std::size_t site = 0; site < sites.size(); ++site) {
    mutants.push_back(mutants_of(sites[site], site));
    std::string source;
    const std::vector<SourceFrame> frames = frames_of_interest(sites[site]);
    for (const SourceFrame& frame : frames)
      source += (source.empty() ? "" : " < ") + short_name(frame.file) + ":" + std::to_string(frame.line);
    std::vector<std::string> lines;
    if (frames.empty()) {
      source = "PTX line " + std::to_string(sites[site].line);
      lines.push_back(sites[site].entry + " #" + std::to_string(ordinals[site]));
    }
    for (const SourceFrame& frame : frames)
      lines.push_back(short_name(frame.file) + ": " + subject.source_line(frame.file, frame.line));
    const std::string line = lines.empty() ? "" : lines.front();
    if (!lines.empty()) lines.erase(lines.begin());
    for (std::size_t i = 0; i < mutants[site].size(); ++i) {
      MutantResult result;
      result.kernel = subject.name;
      result.site = sites[site];
      result.change = mutants[site][i].change;
      result.source = source;
      result.key = {subject.name, line, sites[site].opcode, result.change, lines};
      results[site].push_back(std::move(result));
      work.emplace_back(site, i);
    }
  }

  std::atomic<std::size_t> next{0};
  const auto run = [&](auto&& body, std::size_t count) {
    next = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < jobs; ++i)
      threads.emplace_back([&] {
        for (std::size_t at; (at = next.fetch_add(1)) < count;) body(at);
      });
    for (std::thread& thread : threads) thread.join();
  };
  run(
      [&](std::size_t at) {
        const auto [site, i] = work[at];
        runner.judge(mutants[site][i], results[site][i]);
      },
      work.size());
  // A site of which some mutant was found is executed; of the others a trap tells.
  run(
      [&](std::size_t site) {
        const bool found = std::any_of(results[site].begin(), results[site].end(),
                                       [](const MutantResult& result) { return result.fate != Fate::kSilent; });
        if (found || runner.executes(sites[site])) return;
        for (MutantResult& result : results[site]) result.fate = Fate::kNotExecuted;
      },
      sites.size());

  std::vector<MutantResult> all;
  for (auto& of_site : results)
    for (MutantResult& result : of_site) all.push_back(std::move(result));
  return all;
}

}  // namespace kernelwright::test
