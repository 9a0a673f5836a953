#include "kernelwright/runtime/emulator/run/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

#include "kernelwright/runtime/emulator/checker/hazard_log.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/run/cluster_run.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright::emulator {

namespace {

constexpr std::size_t kStackBytes = std::size_t{4} << 20;  // stack of a thread that runs clusters

/// What the host threads of one launch share.
class Grid {
 public:
  Grid(const Launch& launch, const Options& options, const LaunchNotes* notes, HazardLog* log)
      : launch_(launch), options_(options), notes_(notes), log_(log) {
    const std::uint32_t clusters = num_clusters();
    order_.resize(clusters);
    std::iota(order_.begin(), order_.end(), 0u);
    if (options.shuffle) {
      Random random(options.seed);
      for (std::uint32_t i = clusters; i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
    }
  }

  LaunchReport run() {
    const auto begin = std::chrono::steady_clock::now();
    const auto cores = std::max(1u, std::thread::hardware_concurrency());
    std::uint32_t threads = options_.threads > 0 ? static_cast<std::uint32_t>(options_.threads) : cores;
    // With more threads, what communicating clusters see would depend on the speed of the host's threads.
    if (launch_.program->clusters_communicate) threads = 1;
    threads = std::min<std::uint32_t>(threads, static_cast<std::uint32_t>(order_.size()));
    const std::uint32_t cluster_size = launch_.cluster[0] * launch_.cluster[1] * launch_.cluster[2];
    const std::uint32_t resident_ctas =
        static_cast<std::uint32_t>(std::max(1, options_.num_sms) * std::max(1, options_.max_ctas_per_sm));
    resident_limit_ = std::max(1u, resident_ctas / cluster_size / std::max(1u, threads));
    std::vector<OwnThread> pool;
    try {
      for (std::uint32_t i = 1; i < threads; ++i) pool.emplace_back([this] { work(); }, kStackBytes);
    } catch (const std::system_error&) {  // the system limits threads: go on with fewer
    }
    work();
    pool.clear();  // joins

    LaunchReport report;
    report.statistics = statistics_;
    report.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report.trace = trace_;
    report.completed = !fault_;
    for (const auto& [cluster, printed] : printed_) report.printed += printed;
    if (report.printed.size() > kMostPrinted) report.printed.resize(kMostPrinted);
    if (fault_) {
      report.fault = fault_->text;
      report.fault_kind = fault_->kind;
    }
    return report;
  }

 private:
  struct FirstFault {
    std::uint32_t cluster;
    std::string text;
    HazardKind kind;
  };

  std::uint32_t num_clusters() const {
    std::uint32_t count = 1;
    for (int i = 0; i < 3; ++i) count *= launch_.grid[i] / launch_.cluster[i];
    return count;
  }

  /// Takes the next cluster: this thread begins it, or it is cancelled and another cluster does its work.
  std::optional<std::uint32_t> take_next() {
    if (next_.load(std::memory_order_relaxed) >= order_.size()) return std::nullopt;
    const std::uint32_t at = next_.fetch_add(1, std::memory_order_relaxed);
    if (at >= order_.size()) return std::nullopt;
    return order_[at];
  }

  std::unique_ptr<ClusterRun> start_next() {
    const std::optional<std::uint32_t> id = take_next();
    if (!id) return nullptr;
    auto run = std::make_unique<ClusterRun>(launch_, options_, notes_, log_, *id);
    run->set_cancel_next([this] { return take_next(); });
    return run;
  }

  void work() {
    std::deque<std::unique_ptr<ClusterRun>> resident;
    bool more = true;
    while (!stop_.load(std::memory_order_relaxed)) {
      if (resident.empty()) {
        auto started = start_next();
        if (!started) break;
        resident.push_back(std::move(started));
      }
      std::unique_ptr<ClusterRun> run = std::move(resident.front());
      resident.pop_front();
      try {
        const std::uint64_t before = run->instructions();
        const bool ended = run->turn();
        count(run->instructions() - before);
        if (ended) {
          finish(*run);
          continue;
        }
      } catch (const Fault& fault) {
        fail(*run, fault);
        finish(*run);
        break;
      }
      // The cluster has not ended in a long turn. Perhaps it waits for a cluster that has not begun.
      resident.push_back(std::move(run));
      if (more && resident.size() < resident_limit_) {
        auto started = start_next();
        more = started != nullptr;
        if (started) resident.push_front(std::move(started));
      }
    }
  }

  /// Throws Fault once the launch is taken to hang. A turn is a few million instructions at most.
  void count(std::uint64_t instructions) {
    if (options_.timeout_s > 0) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
      if (seconds.count() > options_.timeout_s)
        throw Fault(fmt::format("it has run for {:.3g} s and the limit is {:g} s: the launch is taken to hang",
                                seconds.count(), options_.timeout_s),
                    HazardKind::kDeadlock);
    }
    if (options_.max_instructions == 0) return;
    const std::uint64_t all = executed_.fetch_add(instructions, std::memory_order_relaxed) + instructions;
    if (all > options_.max_instructions)
      throw Fault(fmt::format("{} warp instructions have run and the limit is {}: the launch is taken to hang", all,
                              options_.max_instructions),
                  HazardKind::kDeadlock);
  }

  void finish(ClusterRun& run) {
    std::shared_ptr<const Trace> trace = run.take_trace();
    const std::lock_guard lock(mutex_);
    run.add_to(statistics_);
    if (std::string printed = run.take_printed(); !printed.empty()) printed_.emplace(run.id(), std::move(printed));
    if (trace) trace_ = std::move(trace);
  }

  void fail(const ClusterRun& run, const Fault& fault) {
    stop_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    // Keep the fault of the lowest cluster, so that the report depends on the host's threads as little as possible.
    if (!fault_ || run.id() < fault_->cluster) fault_ = FirstFault{run.id(), run.explain(fault), fault.kind()};
    if (log_) log_->add_fault(run.report_of(fault));
  }

  const Launch& launch_;
  const Options& options_;
  const LaunchNotes* notes_;
  HazardLog* log_;
  std::vector<std::uint32_t> order_;  // clusters in the order in which they begin
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::atomic<std::uint32_t> next_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> executed_{0};
  std::uint32_t resident_limit_ = 1;
  std::mutex mutex_;  // guards what follows
  Statistics statistics_;
  std::map<std::uint32_t, std::string> printed_;  // by cluster
  std::shared_ptr<const Trace> trace_;
  std::optional<FirstFault> fault_;
};

}  // namespace

LaunchReport run_launch(const Launch& launch, const Options& options, const LaunchNotes* notes, HazardLog* log) {
  return Grid(launch, options, notes, log).run();
}

}  // namespace kernelwright::emulator
