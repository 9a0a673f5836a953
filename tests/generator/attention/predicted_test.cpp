// The timeline compared with recorded times of an H100, and properties that hold on any machine.
#include "kernelwright/generator/attention/predicted.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "kernelwright/generator/json/config_json.h"
#include "support/paths.h"

namespace kernelwright::predicted_test {
namespace {

constexpr double kBound = 0.15;  // of the measured time

struct Recorded {
  std::string set, shape, arm;
  double us;
  AttentionConfig config;
};

/// Reads tests/generator/attention/predicted_h100.tsv. bench/timeline_table.py describes the lines, and how the sets
/// are chosen.
std::vector<Recorded> recorded() {
  std::ifstream in(test::source_dir() / "tests/generator/attention/predicted_h100.tsv");
  std::vector<Recorded> rows;
  for (std::string line; std::getline(in, line);) {
    std::stringstream fields(line);
    Recorded row;
    std::string file, ms, mhz, config;
    for (std::string* field : {&row.set, &file, &row.shape, &row.arm, &ms, &mhz, &config})
      std::getline(fields, *field, '\t');
    row.us = std::atof(ms.c_str()) * 1e3;
    row.config = std::get<AttentionConfig>(read_config(config));
    rows.push_back(row);
  }
  return rows;
}

AttentionProblem problem(int head_dim = 128, MaskKind mask = MaskKind::kNone, int q_heads = 16, int kv_heads = 16) {
  AttentionProblem problem;
  problem.head_dim = {head_dim, head_dim};
  problem.heads = {q_heads, kv_heads};
  problem.mask.kind = mask;
  return problem;
}
AttentionShape shape(int batch, int q_len, int kv_len) {
  return {.name = "s", .batch = batch, .q_len = q_len, .kv_len = kv_len};
}
AttentionSchedule of_family(Family family) {
  AttentionSchedule schedule;
  schedule.family = family;
  return schedule;
}
Predicted predicted(const AttentionProblem& problem, const AttentionShape& shape, Arch arch = Arch::kSm90a,
                    const AttentionSchedule& schedule = {}) {
  return predict(plan_by_model(problem, schedule, arch), problem, shape).value();
}
double microseconds(const AttentionProblem& problem, const AttentionShape& shape, Arch arch = Arch::kSm90a) {
  return predicted(problem, shape, arch).microseconds;
}

TEST(Timeline, EachRecordedTimeOfAnH100IsMetHeldOutOnesToo) {
  std::set<std::string> sets, shapes;
  for (const Recorded& row : recorded()) {
    const AttentionPlan plan = plan_by_model(row.config.problem, row.config.schedule, Arch::kSm90a);
    const auto timeline = predict(plan, row.config.problem, row.config.shapes.at(0));
    ASSERT_TRUE(timeline) << row.shape;
    EXPECT_TRUE(timeline->machine->measured);
    EXPECT_NEAR(timeline->microseconds / row.us, 1, kBound) << row.shape << " " << row.arm << ", " << row.set;
    sets.insert(row.set);
    if (row.set == "held-out") shapes.insert(row.shape);
  }
  EXPECT_EQ(sets, (std::set<std::string>{"fit", "held-out"}));
  EXPECT_GE(shapes.size(), 12u) << "held out: prefill, decode, paged and mixed";
}

class OnEachArch : public ::testing::TestWithParam<Arch> {};
INSTANTIATE_TEST_SUITE_P(HopperAndBlackwell, OnEachArch, ::testing::Values(Arch::kSm90a, Arch::kSm100a, Arch::kSm103a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(OnEachArch, MoreKeysTakeLonger) {
  for (const int head_dim : {64, 128}) {
    double before = 0;
    for (int keys = 256; keys <= 65536; keys *= 2) {
      const double now = microseconds(problem(head_dim), shape(1, 4096, keys), GetParam());
      EXPECT_GT(now, before) << keys;
      before = now;
    }
    EXPECT_NEAR(microseconds(problem(head_dim), shape(1, 4096, 131072), GetParam()) / before, 2, 0.1)
        << "steps of a long item are alike";
  }
}

TEST_P(OnEachArch, MasksTakeLess) {
  const AttentionShape long_one = shape(1, 8192, 8192);
  AttentionProblem window = problem(128, MaskKind::kSlidingWindow);
  window.mask.window = {511, 0};
  const double dense = microseconds(problem(), long_one, GetParam());
  const double causal = microseconds(problem(128, MaskKind::kCausal), long_one, GetParam());
  EXPECT_LT(causal, dense);
  EXPECT_GT(causal, 0.45 * dense) << "the diagonal's tiles cost as others do";
  EXPECT_LT(microseconds(window, long_one, GetParam()), causal / 2);
}

TEST_P(OnEachArch, MoreSmsAreNotSlower) {
  MachineRates machine = *machine_rates(GetParam());
  const AttentionProblem causal = problem(128, MaskKind::kCausal);
  const AttentionPlan plan = plan_by_model(causal, {}, GetParam());
  double before = 1e30;
  for (machine.sms = 33; machine.sms <= 264; machine.sms *= 2) {
    const double now = predict(plan, causal, shape(4, 4096, 4096), machine)->microseconds;
    EXPECT_LE(now, before) << machine.sms;
    before = now;
  }
}

TEST_P(OnEachArch, TheBusiestUnitsAreNoLongerThanTheLaunch) {
  for (const int length : {128, 1024, 16384}) {
    const Predicted timeline = predicted(problem(), shape(2, length, length), GetParam());
    for (const PredictedTerm& term : timeline.terms) {
      if (term.name == "softmax") continue;  // of one warpgroup after the other
      EXPECT_LE(term.microseconds, timeline.microseconds) << term.name << " at " << length;
    }
    EXPECT_GT(timeline.tflops(), 0);
    EXPECT_LT(timeline.tflops(),
              timeline.machine->mma_flops * timeline.machine->sms * timeline.machine->clock_ghz / 1e3);
  }
}

TEST_P(OnEachArch, RaggedLengthsCountAsTheyAre) {
  AttentionProblem ragged = problem(128, MaskKind::kCausal);
  ragged.q_layout = QLayout::kRagged;
  ragged.kv_layout.kind = KvLayoutKind::kRagged;
  AttentionShape mixed = shape(4, 4096, 4096), even = mixed;
  mixed.q_lens = mixed.kv_lens = {4096, 256, 0, 512};
  EXPECT_LT(microseconds(ragged, mixed, GetParam()), 0.6 * microseconds(ragged, even, GetParam()));
}

TEST(Timeline, DecodeIsBoundByMemoryAndSplitsFillTheMachine) {
  AttentionProblem decode = problem(128, MaskKind::kNone, 32, 8);
  decode.max_q_len = 1;
  const Predicted large = predicted(decode, shape(64, 1, 4096));
  EXPECT_EQ(large.bound, "memory");
  AttentionSchedule whole;
  whole.splits = 1;
  EXPECT_LT(2 * predicted(decode, shape(1, 1, 32768)).microseconds,
            predicted(decode, shape(1, 1, 32768), Arch::kSm90a, whole).microseconds);
}

TEST(Timeline, EmulatedExponentialsRelieveTheSpecialFunctionUnit) {
  double before = 1e30;
  for (const double fraction : {0.0, 0.125, 0.25, 0.5}) {
    AttentionSchedule schedule;
    schedule.exp2_emulated = fraction;
    const Predicted timeline = predicted(problem(), shape(1, 8192, 8192), Arch::kSm100a, schedule);
    EXPECT_LT(timeline.term("exponentials"), before);
    before = timeline.term("exponentials");
  }
  EXPECT_NEAR(predicted(problem(), shape(1, 8192, 8192), Arch::kSm103a).term("exponentials") * 2,
              predicted(problem(), shape(1, 8192, 8192), Arch::kSm100a,
                        [] {
                          AttentionSchedule none;
                          none.exp2_emulated = 0.0;
                          return none;
                        }())
                  .term("exponentials"),
              1)
      << "sm_103a's unit is twice as fast";
}

TEST(Timeline, TwoQueryTilesHideTheSoftmaxBetterThanOne) {
  AttentionSchedule one, two;
  one.num_q = 1, two.num_q = 2;
  const AttentionShape long_one = shape(1, 16384, 16384);
  EXPECT_GT(predicted(problem(), long_one, Arch::kSm100a, two).tflops(),
            predicted(problem(), long_one, Arch::kSm100a, one).tflops());
}

TEST(Timeline, AQueueSavesBlackwellTheWayFromCtaToCta) {
  AttentionPlan grid = plan_by_model(problem(64), {}, Arch::kSm100a), queue = grid;
  grid.main.scheduler = Scheduler::kGrid, queue.main.scheduler = Scheduler::kQueued;
  const auto us = [](const AttentionPlan& plan, int length) {
    return predict(plan, problem(64), shape(16384 / length, length, length))->microseconds;
  };
  EXPECT_LT(us(queue, 512), 0.97 * us(grid, 512));
  EXPECT_LE(us(queue, 16384), us(grid, 16384));
}

TEST(Timeline, APairOfCtasReadsHalfOfTheKeysEach) {
  AttentionPlan alone = plan_by_model(problem(), {}, Arch::kSm100a), pair = alone;
  pair.main.cta_group = 2;
  const auto of = [](const AttentionPlan& plan, const char* term) {
    return predict(plan, problem(), shape(1, 8192, 8192))->term(term);
  };
  EXPECT_LT(of(pair, "shared memory"), 0.75 * of(alone, "shared memory"));
  EXPECT_NEAR(of(pair, "L2") / of(alone, "L2"), 0.5, 0.05);
}

TEST(Timeline, OfManyItemsSomeStandForAll) {
  const double few = microseconds(problem(), shape(64, 512, 512)),
               many = microseconds(problem(), shape(64000, 512, 512));
  EXPECT_NEAR(many / few, 1000, 60);
  const AttentionShape largest = shape(1 << 20, 1 << 24, 1 << 24);
  EXPECT_TRUE(std::isfinite(microseconds(problem(), largest)));
}

TEST(Timeline, PartsOfKeysFillABlackwellThatHasFewRows) {
  AttentionProblem few = problem(128, MaskKind::kNone, 8, 8);
  AttentionSchedule whole, cluster;
  whole.splits = 1;
  cluster.cluster = ClusterShape{1, 8};
  const AttentionShape one = shape(1, 128, 65536);
  EXPECT_LT(2 * predicted(few, one, Arch::kSm100a, cluster).microseconds,
            predicted(few, one, Arch::kSm100a, whole).microseconds);
}

TEST(Timeline, SaysWhereItHasNoModel) {
  const AttentionShape some = shape(1, 1024, 1024);
  const AttentionPlan portable = plan_by_model(problem(), of_family(Family::kPortable), Arch::kSm90a);
  EXPECT_FALSE(predict(portable, problem(), some));
  AttentionSchedule cluster = of_family(Family::kHopper);
  cluster.cluster = ClusterShape{2, 1};
  EXPECT_FALSE(predict(plan_by_model(problem(), cluster, Arch::kSm90a), problem(), some));
  EXPECT_FALSE(predict(plan_by_model(problem(), {}, Arch::kSm80), problem(), some));
}

TEST(Timeline, AnEmptyLaunchTakesALaunch) {
  for (const AttentionShape& none : {shape(0, 128, 128), shape(2, 0, 128), shape(2, 128, 0)}) {
    const Predicted timeline = predicted(problem(), none);
    EXPECT_TRUE(std::isfinite(timeline.microseconds));
    EXPECT_LT(timeline.microseconds, 2 * timeline.machine->launch_us);
    EXPECT_EQ(timeline.tflops(), 0);
  }
}

}  // namespace
}  // namespace kernelwright::predicted_test
