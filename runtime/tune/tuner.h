/// Finds the fastest of many kernels, within a budget of time: successive halving over interleaved measurements. It
/// knows neither kernels nor devices: a Stopwatch says how long entrant e takes on shape s.
///
/// A pass measures every remaining entrant on every shape, once. The order is reversed from pass to pass, so that a
/// clock that drifts favours no entrant. It begins with another entrant in every second pass, because the first
/// measurement after a pause is slower than others. A round is as many passes as its share of the budget allows. After
/// a round the slower half is out. The rank is the geometric mean over shapes of each shape's median over all passes so
/// far. Each round has the same share, so the time for one entrant doubles. The baseline (the choice to beat) is never
/// out: the last round pairs it with the finalists pass by pass.
///
/// The budget is kept as far as single measurements allow. If there are too many entrants for it, the last ones are
/// never measured. Once it is over, only the baseline and the best of the others take the rest of their least passes.
/// These two are measured whatever the budget.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace kernelwright {

/// The measuring side. The thread that runs the race calls it.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  /// Microseconds of one launch of `entrant` on `shape`. If it throws, the race ends with that exception.
  virtual double measure(std::size_t entrant, std::size_t shape) = 0;
  /// Seconds since some moment.
  virtual double now_s() = 0;
  /// True once the race must stop as soon as it can: a person's Ctrl-C.
  virtual bool interrupted() { return false; }
};

/// One entrant's measurements.
struct Standing {
  std::size_t entrant = 0;
  std::vector<std::vector<double>> samples;  // [shape][pass], microseconds
  int out_in_round = -1;                     // -1: still in at the end
  double median_us(std::size_t shape) const;
  /// Geometric mean of the shapes' medians; 0 if a shape has no sample.
  double mean_us() const;
};

struct RaceOptions {
  double budget_s = 120;     // from the call on
  int finalists = 3;         // entrants of the last round, beside the baseline
  int min_passes = 2;        // of a round, whatever the budget
  int min_final_passes = 8;  // of the last round: an interval of 95 % needs seven pairs among three
  int max_passes = 200;      // of a round
  /// Called after each round, with its entrants, the best first. For a log that must survive an interruption.
  std::function<void(int round, const std::vector<const Standing*>& in)> on_round;
  /// Called after each pass, with its number and the round's entrants, in no order. For a person who watches, and for
  /// what would disturb a pass.
  std::function<void(int round, int pass, const std::vector<const Standing*>& in)> on_pass;
};

/// The time of the baseline over that of an entrant, pass by pass of the last round. It is the geometric mean over
/// shapes, then the median over passes with its distribution-free 95 % interval (order statistics of the binomial).
/// Fewer than six passes give no interval: low is 0. The entrant may be the best of `among` that were compared, and the
/// luckiest of several equal ones looks fast. The interval is then wide enough to hold for all of them at once
/// (Bonferroni). Among three it takes seven passes.
struct Ratio {
  double median = 1, low = 0, high = 0;
  std::size_t pairs = 0;
};
Ratio paired_ratio(const Standing& baseline, const Standing& entrant, std::size_t first_pass = 0,
                   std::size_t among = 1);

struct Race {
  std::vector<Standing> standings;  // in the order of `entrants`, the baseline first
  std::vector<std::size_t> order;   // indices of standings: the remaining ones by mean, then the others, last out first
  Ratio best_over_baseline;         // of the fastest entrant that is not the baseline
  std::size_t rounds = 0;
  std::size_t left = 0;  // entrants that did not fit the budget; they have no samples, and are not in `order`
  bool interrupted = false;
  /// The fastest entrant except the baseline. Also whether it is faster beyond noise: the interval lies above 1, the
  /// median is at least `least_gain`, and that is `least_gain_us` of the baseline's mean or more. Another load of the
  /// same kernel differs by up to 0.12 us on an H200
  /// (bench/results/fleet/2026-11-28-h200-copies.md). No interval shows that, since all passes of a race share the
  /// load.
  const Standing* best() const;
  bool baseline_is_beaten(double least_gain = 1.01, double least_gain_us = 0.2) const;
};

/// Races `entrants` against `baseline` over `shapes` shapes. Entrants are numbers that the caller chooses, without
/// repeats; the baseline is not among them. Without entrants only the baseline is measured.
Race race(std::size_t baseline, const std::vector<std::size_t>& entrants, std::size_t shapes, Stopwatch& stopwatch,
          const RaceOptions& options = {});

}  // namespace kernelwright
