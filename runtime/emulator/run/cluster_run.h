/// One cluster from its first instruction to its last: its state, and the turns that its warps take.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/names.h"
#include "kernelwright/runtime/emulator/program/program.h"
#include "kernelwright/runtime/emulator/run/launch_report.h"
#include "kernelwright/runtime/emulator/run/options.h"

namespace kernelwright::emulator {

class HazardLog;

/// splitmix64. Any seed works, and equal seeds give equal runs.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
  }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>((next() >> 32) % limit); }

 private:
  std::uint64_t state_;
};

class ClusterRun {
 public:
  ClusterRun(const Launch& launch, const Options& options, const LaunchNotes* notes, HazardLog* log, std::uint32_t id);
  ~ClusterRun();

  /// What clusterlaunchcontrol.try_cancel calls: see Cluster::cancel_next. Set it before the first turn.
  void set_cancel_next(std::function<std::optional<std::uint32_t>()> cancel_next) {
    cluster_.cancel_next = std::move(cancel_next);
  }
  /// Runs the cluster's warps for a while. Returns true once all have exited. Throws Fault.
  bool turn();
  std::uint32_t id() const { return cluster_.id; }
  std::uint64_t instructions() const { return instructions_; }  // executed by its warps so far
  void add_to(Statistics& statistics) const;
  std::string take_printed() { return std::move(cluster_.printed); }
  /// The fault, and where it happened.
  std::string explain(const Fault& fault) const;
  HazardReport report_of(const Fault& fault) const;
  /// What happened until now, with times; null if this cluster has no timeline. Ends the timeline.
  std::shared_ptr<const Trace> take_trace();

 private:
  void make_cta(std::uint32_t rank);
  bool has_cta(std::uint32_t index) const;  // by the CTA's number in the grid, x first
  void fill_specials(Warp& warp) const;
  std::uint64_t special(const Warp& warp, const SpecialSlot& slot, std::uint32_t lane) const;
  /// One turn of one warp. Returns true if the warp executed something or can go on.
  bool run_warp(Warp& warp, std::uint32_t quantum);
  /// Index of the split that runs next, or -1 if none can run.
  int choose(Warp& warp) const;
  void exit_lanes(Warp& warp, LaneMask lanes);
  [[noreturn]] void report_deadlock() const;

  const Launch& launch_;
  const Options& options_;
  const LaunchNotes* notes_;
  Cluster cluster_;
  std::unique_ptr<Hazards> hazards_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<std::byte[]> registers_;
  std::vector<Warp*> warps_;  // those that have not exited
  Random random_;
  std::uint32_t idle_rounds_ = 0;  // rounds in a row in which every warp polled or waited
  bool yielded_ = false;           // a warp polled in this round
  std::uint64_t instructions_ = 0, thread_instructions_ = 0;
  const Warp* running_ = nullptr;  // explain() names it
};

}  // namespace kernelwright::emulator
