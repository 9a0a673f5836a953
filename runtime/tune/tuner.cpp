#include "kernelwright/runtime/tune/tuner.h"

#include <algorithm>
#include <cmath>

namespace kernelwright {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

/// The largest rank k so that the k-th smallest of n values lies above the true median with probability `tail` at most.
/// The same holds for the k-th largest, below it. 0 if there is no such rank.
std::size_t interval_rank(std::size_t n, double tail) {
  double probability = std::pow(0.5, static_cast<double>(n)), below = 0;  // P(X = 0), P(X < k), X ~ B(n, 1/2)
  std::size_t rank = 0;
  for (std::size_t k = 0; k < n; ++k) {
    below += probability;
    if (below > tail) break;
    rank = k + 1;
    probability *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return rank;
}

/// One race under way.
class Runner {
 public:
  Runner(std::size_t baseline, const std::vector<std::size_t>& entrants, std::size_t shapes, Stopwatch& stopwatch,
         const RaceOptions& options)
      : shapes_(shapes), stopwatch_(stopwatch), options_(options) {
    race_.standings.push_back({baseline, std::vector<std::vector<double>>(shapes)});
    for (const std::size_t entrant : entrants)
      race_.standings.push_back({entrant, std::vector<std::vector<double>>(shapes)});
    for (std::size_t i = 0; i < race_.standings.size(); ++i) in_.push_back(i);
  }

  Race run() {
    began_ = stopwatch_.now_s();
    deadline_ = began_ + options_.budget_s;
    for (int round = 0, more = 1; more > 0 && !race_.interrupted; ++round) {
      if (round > 0 && stopwatch_.now_s() >= deadline_) keep_two(round - 1);
      first_pass_ = race_.standings[0].samples.empty() ? 0 : race_.standings[0].samples[0].size();
      measure_round(round);
      sort_in();
      report(round);
      more = rounds_needed() - 1;  // the first round may have left some entrants out
      if (more > 0 && !race_.interrupted) halve(round);
      ++race_.rounds;
    }
    finish();
    return std::move(race_);
  }

 private:
  std::size_t finalists() const { return static_cast<std::size_t>(std::max(1, options_.finalists)) + 1; }

  int rounds_needed() const {
    int rounds = 1;
    for (std::size_t in = in_.size(); in > finalists(); in = kept_of(in)) ++rounds;
    return rounds;
  }
  /// The baseline and the better half of the others, but no fewer than the finalists.
  std::size_t kept_of(std::size_t in) const { return std::max(finalists(), 1 + in / 2); }

  /// How many of the entrants, at least two, a race has time for if the first `measured` samples took `seconds`. The
  /// estimate assumes that later samples cost as much. They cost less if a first sample makes something ready.
  std::size_t room_for(double seconds, std::size_t measured) const {
    const double pass = seconds / static_cast<double>(measured) * static_cast<double>(shapes_);  // of one entrant
    const double finals = pass * options_.min_final_passes * static_cast<double>(std::min(in_.size(), finalists()));
    const double each = pass * 2 * options_.min_passes;  // each next round has half of them
    const double room = (deadline_ - stopwatch_.now_s() + seconds - finals) / each;
    return room >= static_cast<double>(in_.size()) ? in_.size() : static_cast<std::size_t>(std::max(2.0, room));
  }

  /// Time is over: only the baseline and the best of the others go on.
  void keep_two(int round) {
    if (in_.size() <= 2) return;
    sort_in();
    const std::size_t best = in_[0] == 0 ? in_[1] : in_[0];
    for (const std::size_t i : in_)
      if (i != 0 && i != best) race_.standings[i].out_in_round = round;
    in_ = {0, best};
  }

  void measure_round(int round) {
    for (int pass = 0; pass < options_.max_passes; ++pass) {
      const int more = rounds_needed() - 1;  // this may now be the last round
      const bool last = more == 0;
      const int least = last ? options_.min_final_passes : options_.min_passes;
      const double until = began_ + options_.budget_s * (round + 1) / (round + 1 + more), now = stopwatch_.now_s();
      if (pass >= least && now >= until) return;
      if (pass > 0 && now >= deadline_) {
        if (!last) return;  // the next round is
        keep_two(round);
      }
      // An interruption drops its half pass, whose samples would have no partner.
      std::vector<std::vector<double>> samples(in_.size(), std::vector<double>(shapes_));
      for (std::size_t shape = 0; shape < shapes_; ++shape)
        for (std::size_t i = 0; i < in_.size(); ++i) {
          if (stopwatch_.interrupted()) {
            race_.interrupted = true;
            return;
          }
          const std::size_t place = pass % 2 ? in_.size() - 1 - i : i;
          const std::size_t at = (place + static_cast<std::size_t>(pass / 2)) % in_.size();
          samples[at][shape] = stopwatch_.measure(race_.standings[in_[at]].entrant, shape);
          if (round == 0 && pass == 0 && shape == 0 && i >= 1 && i + 1 < in_.size()) {
            const std::size_t room = std::max(i + 1, room_for(stopwatch_.now_s() - now, i + 1));
            race_.left += in_.size() - std::min(room, in_.size());
            in_.resize(std::min(room, in_.size()));
            samples.resize(in_.size());
          }
        }
      for (std::size_t i = 0; i < in_.size(); ++i)
        for (std::size_t shape = 0; shape < shapes_; ++shape)
          race_.standings[in_[i]].samples[shape].push_back(samples[i][shape]);
      if (options_.on_pass) options_.on_pass(round, pass, entrants_in());
    }
  }

  void sort_in() {
    std::stable_sort(in_.begin(), in_.end(), [&](std::size_t a, std::size_t b) {
      return race_.standings[a].mean_us() < race_.standings[b].mean_us();
    });
  }

  std::vector<const Standing*> entrants_in() const {
    std::vector<const Standing*> in;
    for (const std::size_t i : in_) in.push_back(&race_.standings[i]);
    return in;
  }

  void report(int round) {
    if (options_.on_round) options_.on_round(round, entrants_in());
  }

  void halve(int round) {
    std::size_t room = kept_of(in_.size()) - 1;  // the baseline takes one place
    std::vector<std::size_t> kept;
    for (const std::size_t i : in_) {
      if (i == 0 || room > 0) {
        kept.push_back(i);
        room -= i != 0;
      } else {
        race_.standings[i].out_in_round = round;
      }
    }
    in_ = std::move(kept);
  }

  void finish() {
    race_.order = in_;
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < race_.standings.size(); ++i)
      if (race_.standings[i].out_in_round >= 0) out.push_back(i);
    std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) {
      const Standing &x = race_.standings[a], &y = race_.standings[b];
      return x.out_in_round != y.out_in_round ? x.out_in_round > y.out_in_round : x.mean_us() < y.mean_us();
    });
    race_.order.insert(race_.order.end(), out.begin(), out.end());
    if (const Standing* best = race_.best(); best && !race_.interrupted)
      race_.best_over_baseline = paired_ratio(race_.standings[0], *best, first_pass_, in_.size() - 1);
  }

  const std::size_t shapes_;
  Stopwatch& stopwatch_;
  const RaceOptions& options_;
  Race race_;
  std::vector<std::size_t> in_;  // indices of standings; the baseline is 0
  std::size_t first_pass_ = 0;   // of this round
  double began_ = 0, deadline_ = 0;
};

}  // namespace

double Standing::median_us(std::size_t shape) const { return median_of(samples[shape]); }

double Standing::mean_us() const {
  double sum = 0;
  for (std::size_t shape = 0; shape < samples.size(); ++shape) {
    if (samples[shape].empty()) return 0;
    sum += std::log(std::max(median_us(shape), 1e-9));
  }
  return samples.empty() ? 0 : std::exp(sum / static_cast<double>(samples.size()));
}

Ratio paired_ratio(const Standing& baseline, const Standing& entrant, std::size_t first_pass, std::size_t among) {
  std::vector<double> ratios;
  const std::size_t shapes = std::min(baseline.samples.size(), entrant.samples.size());
  for (std::size_t pass = first_pass;; ++pass) {
    double sum = 0;
    bool whole = shapes > 0;
    for (std::size_t shape = 0; shape < shapes && whole; ++shape) {
      whole = pass < baseline.samples[shape].size() && pass < entrant.samples[shape].size();
      if (whole) sum += std::log(baseline.samples[shape][pass] / entrant.samples[shape][pass]);
    }
    if (!whole) break;
    ratios.push_back(std::exp(sum / static_cast<double>(shapes)));
  }
  Ratio ratio{1, 0, 0, ratios.size()};
  if (ratios.empty()) return ratio;
  std::sort(ratios.begin(), ratios.end());
  ratio.median = median_of(ratios);
  const std::size_t rank = interval_rank(ratios.size(), 0.025 / static_cast<double>(std::max<std::size_t>(among, 1)));
  if (rank == 0) return ratio;
  ratio.low = ratios[rank - 1];
  ratio.high = ratios[ratios.size() - rank];
  return ratio;
}

const Standing* Race::best() const {
  for (const std::size_t i : order)
    if (i != 0 && standings[i].out_in_round < 0 && standings[i].mean_us() > 0) return &standings[i];
  return nullptr;
}

bool Race::baseline_is_beaten(double least_gain, double least_gain_us) const {
  if (interrupted || !best() || best_over_baseline.low <= 1 || best_over_baseline.median < least_gain) return false;
  return standings[0].mean_us() * (1 - 1 / best_over_baseline.median) >= least_gain_us;
}

Race race(std::size_t baseline, const std::vector<std::size_t>& entrants, std::size_t shapes, Stopwatch& stopwatch,
          const RaceOptions& options) {
  return Runner(baseline, entrants, shapes, stopwatch, options).run();
}

}  // namespace kernelwright
