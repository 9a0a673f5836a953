/// Inside of the generator: the timelines of one SM, and what they share. Each kernel has a file. All times are in
/// clocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernelwright/generator/attention/work.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright::detail {

/// One SM's share of the device, for one launch.
struct SmRates {
  const MachineRates& machine;
  double read_bytes;  // per clock, from the device's memory, while the average amount of output leaves
  double missing;     // the share of K's and V's bytes that the L2 does not have
};

/// Clocks of one step of one part of a CTA's query rows, for each unit alone.
struct StepClocks {
  double scores, output;                // the two products
  double scores_shared, output_shared;  // their reads of shared memory
  double exponentials;                  // of the special-function unit
  double before, during;                // a warp's instructions before the first exponential, and after
  double masked;                        // added where keys are hidden
};
/// The warps that compute the softmax of a CTA's rows.
struct SoftmaxForm {
  int parts;                 // parts of a CTA's rows; each has its own steps
  int rows, rows_of_a_warp;  // of a part
  int warps_of_a_scheduler;
  double warps_in_turn = 1;  // warps that take one part's tiles in turn
  bool rescales = false;     // the same warps rescale the output
};
SoftmaxForm hopper_softmax(const AttentionSpec& spec);
SoftmaxForm blackwell_softmax(const AttentionSpec& spec);
StepClocks step_clocks(const AttentionSpec& spec, const MachineRates& machine, const SoftmaxForm& form);

/// The number of copies that bring a tile of K or V with `depth` elements a key. Where warps gather rows, it is the
/// number of copies that would take as long.
int copies_of(const AttentionSpec& spec, int depth);

/// A ring's slots, with the time at which each is free again.
class SlotRing {
 public:
  explicit SlotRing(int slots) : free_(static_cast<std::size_t>(std::max(1, slots)), 0) {}
  std::size_t take() { return next_++ % free_.size(); }
  double& free(std::size_t slot) { return free_[slot]; }

 private:
  std::vector<double> free_;
  std::size_t next_ = 0;
};

/// The thread that issues copies, and the path of the bytes. The thread works in order: a slot that is not free delays
/// the slots behind it.
class Loader {
 public:
  explicit Loader(const SmRates& rates, double begin = 0)
      : rates_(rates), issued_(begin), l2_free_(begin), memory_free_(begin) {}

  /// The time when `bytes` have landed. Their copy may begin at `from`; `missing` is the share that comes from the
  /// device's memory.
  double load(double from, double bytes, double missing, int boxes) {
    const MachineRates& machine = rates_.machine;
    issued_ = std::max(issued_, from) + boxes * machine.copy_clocks;
    l2_free_ = std::max(l2_free_, issued_) + bytes / machine.l2_bytes;
    memory_free_ = std::max(memory_free_, issued_ - machine.burst_clocks) + bytes * missing / rates_.read_bytes;
    // If keys are not in the L2, a CTA waits for them together with the CTAs that read the same keys at that time.
    constexpr double kReaders = 4;
    const double latency =
        machine.l2_latency + std::min(1.0, kReaders * missing) * (machine.memory_latency - machine.l2_latency);
    return std::max(l2_free_, memory_free_) + latency;
  }

 private:
  const SmRates& rates_;
  double issued_, l2_free_, memory_free_;
};

/// The steps of a long item are alike. The model follows some of them, and gives the others the mean of the last ones.
class SteadySteps {
 public:
  explicit SteadySteps(const TimelineItem& item) : tiles_(item.tiles), followed_(std::min(item.tiles, kFollowed)) {}
  int followed() const { return followed_; }
  /// Notes that step `step` has ended at `now`.
  void note(int step, double now) {
    if (step == kWarm) warm_ = now;
    if (step == followed_ - 1) last_ = now;
  }
  /// Clocks of the steps that were not followed.
  double skipped() const {
    return tiles_ > followed_ ? (tiles_ - followed_) * (last_ - warm_) / (followed_ - 1 - kWarm) : 0;
  }

 private:
  static constexpr int kFollowed = 40, kWarm = 15;
  int tiles_, followed_;
  double warm_ = 0, last_ = 0;
};

/// Clocks from the CTA's first instruction to the end of its last store, for the items of `work.walk` one after
/// another.
double hopper_clocks(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates);
double decode_clocks(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates, int resident);
double blackwell_clocks(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates);

}  // namespace kernelwright::detail
