// The race, timed by the test's own clock and stopwatch.
#include "kernelwright/runtime/tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace kernelwright {
namespace {

/// Entrant e takes times[e] microseconds on every shape, with noise; each measurement costs `cost_s` of the clock.
class FakeStopwatch final : public Stopwatch {
 public:
  std::map<std::size_t, double> times;
  double noise = 0, cost_s = 0.01, drift_per_measurement = 0;
  double pause_cost = 0;     // of the first measurement after pause()
  double behind_itself = 1;  // the factor on the time of an entrant that ran just before
  void pause() { paused_ = true; }
  std::size_t stop_after = std::size_t(-1);
  std::vector<std::pair<std::size_t, std::size_t>> asked;  // entrant, shape

  double measure(std::size_t entrant, std::size_t shape) override {
    const double warm = !asked.empty() && asked.back().first == entrant ? behind_itself : 1;
    asked.emplace_back(entrant, shape);
    now_ += cost_s;
    const double drift = 1 + drift_per_measurement * static_cast<double>(asked.size());
    const double late = std::exchange(paused_, false) ? 1 + pause_cost : 1;
    return times.at(entrant) * (1 + static_cast<double>(shape)) * drift * late * warm *
           (1 + noise * std::normal_distribution<double>()(random_));
  }
  double now_s() override { return now_; }
  bool interrupted() override { return asked.size() >= stop_after; }
  void seed(std::uint64_t seed) { random_.seed(seed); }
  std::size_t measurements_of(std::size_t entrant) const {
    std::size_t count = 0;
    for (const auto& [who, shape] : asked) count += who == entrant;
    return count;
  }

 private:
  bool paused_ = false;
  double now_ = 100;
  std::mt19937_64 random_{7};
};

std::vector<std::size_t> numbers(std::size_t first, std::size_t count) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back(first + i);
  return list;
}

// Twelve copies of the model's choice race against it. None is faster, so a row would be an error of the tuner. The
// finalist was chosen for being lucky, which the last round alone does not forgive.
TEST(Race, EqualSchedulesWriteAtMostOneRowInFifty) {
  constexpr int kRaces = 400;
  for (const double noise : {0.002, 0.02, 0.1}) {
    int won = 0, confirmed = 0;
    for (int race_number = 0; race_number < kRaces; ++race_number) {
      FakeStopwatch watch, other;
      watch.noise = other.noise = noise;
      watch.seed(1000 + static_cast<std::uint64_t>(race_number));
      other.seed(9000 + static_cast<std::uint64_t>(race_number));
      for (std::size_t e = 0; e <= 12; ++e) watch.times[e] = other.times[e] = 100;
      const Race first = race(0, numbers(1, 12), 1, watch, {.budget_s = 20});
      if (!first.baseline_is_beaten()) continue;
      ++won;
      confirmed += race(0, {first.best()->entrant}, 1, other, {.budget_s = 10}).baseline_is_beaten();
    }
    EXPECT_LE(won * 50, kRaces) << "noise " << noise;
    EXPECT_LE(confirmed * 400, kRaces) << "noise " << noise << ": two GPUs agree on an error";
  }
}

// A small kernel that ran just before finds its code and its descriptors in caches. Whichever entrant is ahead must not
// have that more often than the others.
TEST(Race, NoEntrantRunsBehindItselfMoreOftenThanOthers) {
  constexpr int kRaces = 200;
  int won = 0;
  for (int race_number = 0; race_number < kRaces; ++race_number) {
    FakeStopwatch watch;
    watch.noise = 0.01;
    watch.behind_itself = 0.95;
    watch.seed(static_cast<std::uint64_t>(race_number));
    for (std::size_t e = 0; e <= 12; ++e) watch.times[e] = 100;
    won += race(0, numbers(1, 12), 1, watch, {.budget_s = 10}).baseline_is_beaten();
  }
  EXPECT_LE(won * 50, kRaces);
}

// A kernel's code lies at another address in each load, which moves a short kernel's time by about a percent in all
// passes of a race. So equal kernels differ beyond the noise of the passes.
TEST(Race, AnotherLoadOfAShortKernelIsNoGain) {
  constexpr int kRaces = 200;
  for (const double us : {3., 6., 12., 60.}) {
    int won = 0;
    std::mt19937_64 random(static_cast<std::uint64_t>(us));
    for (int race_number = 0; race_number < kRaces; ++race_number) {
      FakeStopwatch watch;
      watch.noise = 0.002;
      watch.seed(static_cast<std::uint64_t>(race_number));
      for (std::size_t e = 0; e <= 3; ++e) watch.times[e] = us + std::normal_distribution<double>(0, 0.05)(random);
      won += race(0, numbers(1, 3), 1, watch, {.budget_s = 1}).baseline_is_beaten();
    }
    EXPECT_LE(won * 50, kRaces) << us << " us";
  }
}

TEST(Race, AShortKernelHasToGainAFifthOfAMicrosecond) {
  const auto beaten = [](double us, double with) {
    FakeStopwatch watch;
    watch.times = {{0, us}, {1, with}};
    return race(0, {1}, 1, watch, {.budget_s = 1}).baseline_is_beaten();
  };
  EXPECT_FALSE(beaten(6, 5.85));
  EXPECT_TRUE(beaten(6, 5.75));
  EXPECT_FALSE(beaten(30, 29.75)) << "less than 1 %";
  EXPECT_TRUE(beaten(30, 29.65));
}

TEST(Race, FindsTheFastestOfMany) {
  FakeStopwatch watch;
  watch.noise = 0.02;
  for (std::size_t e = 0; e <= 40; ++e) watch.times[e] = 100 + static_cast<double>(e);
  watch.times[23] = 90;
  const Race result = race(0, numbers(1, 40), 2, watch, {.budget_s = 60});
  ASSERT_NE(result.best(), nullptr);
  EXPECT_EQ(result.best()->entrant, 23u);
  EXPECT_TRUE(result.baseline_is_beaten());
  EXPECT_NEAR(result.best_over_baseline.median, 100.0 / 90, 0.03);
  EXPECT_GT(result.best_over_baseline.low, 1);
  EXPECT_EQ(result.standings[result.order[0]].entrant, 23u);
  EXPECT_EQ(result.order.size(), 41u);
}

TEST(Race, GivesTheBudgetToTheBest) {
  FakeStopwatch watch;
  for (std::size_t e = 0; e <= 32; ++e) watch.times[e] = 100 + static_cast<double>(e);
  race(0, numbers(1, 32), 1, watch, {.budget_s = 30});
  EXPECT_NEAR(watch.now_s(), 130, 2) << "the whole budget, and little more";
  EXPECT_GT(watch.measurements_of(1), 4 * watch.measurements_of(32));
  EXPECT_EQ(watch.measurements_of(0), watch.measurements_of(1)) << "the baseline is never out";
}

TEST(Race, TheLastRoundIsLongEnoughForAnIntervalWhateverTheBudget) {
  FakeStopwatch watch;
  watch.cost_s = 100;
  watch.times = {{0, 100}, {1, 50}, {2, 60}, {3, 70}, {4, 80}, {5, 90}, {6, 95}, {7, 96}, {8, 97}};
  const Race result = race(0, numbers(1, 8), 1, watch, {.budget_s = 1});
  EXPECT_EQ(result.best()->entrant, 1u);
  EXPECT_GE(result.best_over_baseline.pairs, 8u);
  EXPECT_TRUE(result.baseline_is_beaten());
}

TEST(Race, KeepsItsBudgetWithinAFifthHoweverLongMeasurementsTake) {
  for (const double cost_s : {0.001, 0.1, 0.5, 1.0}) {
    FakeStopwatch watch;
    watch.cost_s = cost_s;
    for (std::size_t e = 0; e <= 63; ++e) watch.times[e] = 100 + static_cast<double>(e);
    watch.times[1] = 90;
    const Race result = race(0, numbers(1, 63), 2, watch, {.budget_s = 30});
    EXPECT_LE(watch.now_s(), 100 + 30 * 1.2) << cost_s;
    ASSERT_NE(result.best(), nullptr) << cost_s;
    EXPECT_EQ(result.best()->entrant, 1u) << cost_s;
    EXPECT_GE(result.best_over_baseline.pairs, 8u) << cost_s;
    EXPECT_TRUE(result.baseline_is_beaten()) << cost_s;
    EXPECT_EQ(result.order.size() + result.left, 64u) << "who was not measured is told";
    EXPECT_EQ(result.left > 0, cost_s > 0.05) << cost_s;
  }
}

TEST(Race, TwoAreMeasuredWhateverTheBudget) {
  FakeStopwatch watch;
  watch.cost_s = 10;
  for (std::size_t e = 0; e <= 9; ++e) watch.times[e] = 100 - static_cast<double>(e);
  const Race result = race(0, numbers(1, 9), 1, watch, {.budget_s = 1});
  EXPECT_EQ(result.left, 8u);
  EXPECT_EQ(result.best_over_baseline.pairs, 8u);
}

TEST(Race, NoiseAloneBeatsNobody) {
  int beaten = 0;
  for (int seed = 0; seed < 20; ++seed) {
    FakeStopwatch watch;
    watch.noise = 0.05;
    for (int skip = 0; skip < seed; ++skip) watch.times[0] = 1, watch.measure(0, 0);
    watch.asked.clear();
    for (std::size_t e = 0; e <= 12; ++e) watch.times[e] = 100;
    beaten += race(0, numbers(1, 12), 2, watch, {.budget_s = 10}).baseline_is_beaten();
  }
  EXPECT_LE(beaten, 2);
}

TEST(Race, AClockThatDriftsFavoursNobody) {
  FakeStopwatch watch;
  watch.drift_per_measurement = 1e-3;  // the hundredth measurement takes a tenth longer
  watch.times = {{0, 100}, {1, 100}, {2, 100}, {3, 100}};
  const Race result = race(0, numbers(1, 3), 1, watch, {.budget_s = 1, .max_passes = 40});
  EXPECT_FALSE(result.baseline_is_beaten());
  EXPECT_NEAR(result.best_over_baseline.median, 1, 0.01);
}

// A GPU that was idle between passes is slow at first. On an H200 this let copies of the model's choice beat it,
// because some of them never came first.
TEST(Race, APauseBetweenPassesFavoursNobody) {
  for (const std::size_t entrants : {1, 2, 3}) {
    constexpr int kRaces = 200;
    int won = 0;
    std::map<std::size_t, int> first;  // how often each entrant came first in a pass
    for (int race_number = 0; race_number < kRaces; ++race_number) {
      FakeStopwatch watch;
      watch.noise = 0.005;
      watch.pause_cost = 0.03;
      watch.seed(static_cast<std::uint64_t>(race_number));
      for (std::size_t e = 0; e <= entrants; ++e) watch.times[e] = 100;
      RaceOptions options{.budget_s = 4};
      options.on_pass = [&](int, int, const auto&) { watch.pause(); };
      won += race(0, numbers(1, entrants), 1, watch, options).baseline_is_beaten();
      for (std::size_t at = 0; at < watch.asked.size(); at += entrants + 1) ++first[watch.asked[at].first];
    }
    EXPECT_LE(won * 50, kRaces) << entrants;
    for (std::size_t e = 0; e <= entrants; ++e) EXPECT_NEAR(first[e], first[0], 0.1 * first[0]) << entrants;
  }
}

TEST(Race, APassAsksEveryoneOnEveryShapeAndTurnsTheOrderRound) {
  FakeStopwatch watch;
  watch.times = {{0, 3}, {5, 2}, {9, 1}};
  race(0, {5, 9}, 2, watch, {.budget_s = 1});
  using Asked = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(Asked(watch.asked.begin(), watch.asked.begin() + 12),
            (Asked{{0, 0}, {5, 0}, {9, 0}, {0, 1}, {5, 1}, {9, 1}, {9, 0}, {5, 0}, {0, 0}, {9, 1}, {5, 1}, {0, 1}}));
}

TEST(Race, WithoutEntrantsTheBaselineStands) {
  FakeStopwatch watch;
  watch.times = {{0, 10}};
  const Race result = race(0, {}, 1, watch, {.budget_s = 0.1});
  EXPECT_EQ(result.best(), nullptr);
  EXPECT_FALSE(result.baseline_is_beaten());
  EXPECT_DOUBLE_EQ(result.standings[0].mean_us(), 10);
}

TEST(Race, AnInterruptionKeepsWholePassesAndDecidesNothing) {
  FakeStopwatch watch;
  for (std::size_t e = 0; e <= 8; ++e) watch.times[e] = 100 - static_cast<double>(e);
  watch.stop_after = 31;  // in the middle of the fourth pass over nine
  std::vector<std::size_t> reported;
  const Race result =
      race(0, numbers(1, 8), 1, watch, {.budget_s = 1e9, .max_passes = 5, .on_round = [&](int, const auto& in) {
                                          for (const Standing* standing : in)
                                            reported.push_back(standing->samples[0].size());
                                        }});
  EXPECT_TRUE(result.interrupted);
  EXPECT_FALSE(result.baseline_is_beaten());
  EXPECT_EQ(watch.asked.size(), 31u);
  EXPECT_EQ(reported, std::vector<std::size_t>(9, 3)) << "three whole passes each, and the log was told";
}

TEST(Race, ShapesCountAlikeWhateverTheirTimes) {
  // Entrant 1 is twice as fast on a shape of 1 us and a tenth slower on one of 1 s.
  class Two final : public Stopwatch {
   public:
    double measure(std::size_t entrant, std::size_t shape) override {
      now_ += 0.01;
      return shape == 0 ? (entrant ? 0.5 : 1) : (entrant ? 1.1e6 : 1e6);
    }
    double now_s() override { return now_; }
    double now_ = 0;
  } watch;
  const Race result = race(0, {1}, 2, watch, {.budget_s = 1});
  EXPECT_NEAR(result.best_over_baseline.median, std::sqrt(2 / 1.1), 1e-9);
  EXPECT_TRUE(result.baseline_is_beaten());
}

Standing standing_of(std::vector<double> samples) { return {0, {std::move(samples)}, -1}; }

TEST(PairedRatio, HasAnIntervalFromSixPairsOn) {
  const Standing one = standing_of({1, 1, 1, 1, 1, 1});
  const Ratio six = paired_ratio(standing_of({1.1, 1.2, 1.3, 1.4, 1.5, 1.6}), one);
  EXPECT_DOUBLE_EQ(six.median, 1.35);
  EXPECT_DOUBLE_EQ(six.low, 1.1) << "of six pairs the extremes: (1/2)^6 on each side";
  EXPECT_DOUBLE_EQ(six.high, 1.6);
  const Ratio five = paired_ratio(standing_of({1.1, 1.2, 1.3, 1.4, 1.5}), one);
  EXPECT_EQ(five.pairs, 5u);
  EXPECT_EQ(five.low, 0) << "no interval";
  std::vector<double> twenty;
  for (int i = 1; i <= 20; ++i) twenty.push_back(i);
  const Ratio ratio = paired_ratio(standing_of(twenty), standing_of(std::vector<double>(20, 1)));
  EXPECT_DOUBLE_EQ(ratio.low, 6) << "B(20, 1/2): P(X < 6) = 2.07 %, P(X < 7) = 5.8 %";
  EXPECT_DOUBLE_EQ(ratio.high, 15);
}

TEST(Standing, MediansAndMeans) {
  EXPECT_DOUBLE_EQ(standing_of({3, 1, 2}).median_us(0), 2);
  EXPECT_DOUBLE_EQ(standing_of({4, 1, 2, 3}).median_us(0), 2.5);
  EXPECT_DOUBLE_EQ((Standing{0, {{2}, {8}}, -1}).mean_us(), 4);
  EXPECT_EQ((Standing{0, {{2}, {}}, -1}).mean_us(), 0);
}

}  // namespace
}  // namespace kernelwright
