// The log of trials: one process reads what another writes, whole lines or none.
#include "kernelwright/runtime/tune/tuning_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

using ::testing::HasSubstr;

class Log : public ::testing::Test {
 protected:
  Log() {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-log-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Log() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/trials.jsonl"; }
  static Trial trial(const std::string& key, TrialVerdict verdict = TrialVerdict::kMeasured) {
    Trial one;
    one.key = key;
    one.device = "NVIDIA H100 80GB HBM3";
    one.config = "llama";
    one.arch = "sm_90a";
    one.schedule = R"({"block_n":64})";
    one.verdict = verdict;
    one.round = 2;
    one.registers = 168;
    one.clock_mhz = 1755;
    one.mean_us = 12.5;
    one.times = {{"8k", 12.5, 7}};
    one.date = "2026-11-21T12:00:00Z";
    return one;
  }
  std::string folder_;
};

TEST_F(Log, ALineReadsBack) {
  Trial one = trial("k1", TrialVerdict::kWrong);
  one.reason = "check: o[0, 1]: \"NaN\"\nof two lines";
  const std::string line = write_trial(one);
  EXPECT_EQ(line.find('\n'), line.npos);
  const Trial back = read_trial(line);
  EXPECT_EQ(write_trial(back), line);
  EXPECT_EQ(back.reason, one.reason);
  EXPECT_EQ(back.times[0].samples, 7u);
  EXPECT_THAT(write_trial([&] {
                Trial without = trial("k");
                without.clock_mhz = 0;
                return without;
              }()),
              HasSubstr(R"("clock_mhz":"unknown")"));
}

TEST_F(Log, ALineOfAnOlderLogReads) {
  const Trial one = read_trial(R"({"config":"llama","device":"d","arch":"sm_90a","schedule":{},"verdict":"measured",
    "round":1,"mean_us":2.5,"times":[],"registers":1,"spill_bytes":0,"clock_mhz":"unknown","date":"d","key":"k"})");
  EXPECT_EQ(one.ctas_per_sm, 0);
  EXPECT_EQ(one.predicted_us, 0);
  EXPECT_FALSE(one.is_model);
  EXPECT_FALSE(one.rows);
}

TEST_F(Log, AnOutcomeReadsBackAndIsNoTrial) {
  UnitOutcome outcome;
  outcome.decision = "row";
  outcome.config = "mlp";
  outcome.device = "NVIDIA H100 80GB HBM3";
  outcome.arch = "sm_90a";
  outcome.rows = RowRange{17, 32};
  outcome.best_over_model = {1.07, 1.06, 1.08, 40};
  outcome.model_key = "m";
  outcome.best_key = "b";
  outcome.shapes = {{"few", 2e9, 1e7, 2.25, 3.5}};
  outcome.clock_least_mhz = 1700;
  outcome.clock_median_mhz = 1755;
  outcome.clock_most_mhz = 1980;
  outcome.gpu_id = "0123456789abcdef";
  outcome.limits = {"power cap", "sync boost"};
  outcome.date = "2026-11-21T12:00:00Z";
  const std::string line = write_outcome(outcome);
  EXPECT_TRUE(is_outcome(line));
  EXPECT_FALSE(is_outcome(write_trial(trial("k"))));
  const UnitOutcome back = read_outcome(line);
  EXPECT_EQ(write_outcome(back), line);
  EXPECT_EQ(back.rows, outcome.rows);
  EXPECT_EQ(back.limits, outcome.limits);
  EXPECT_EQ(back.best_over_model.pairs, 40u);
  {
    TuningLog log(path());
    log.add(trial("a"));
    log.add(outcome);
  }
  EXPECT_TRUE(TuningLog::outcome_of(path(), outcome.device, "mlp", RowRange{17, 32}));
  EXPECT_FALSE(TuningLog::outcome_of(path(), outcome.device, "mlp", RowRange{1, 16})) << "another range";
  EXPECT_FALSE(TuningLog::outcome_of(path(), "NVIDIA H200", "mlp", RowRange{17, 32})) << "another device";
  const TuningLog::Contents contents = TuningLog::read(path(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(contents.trials.size(), 1u);
  EXPECT_EQ(contents.lines, 2u);
  EXPECT_EQ(contents.unreadable, 0u);
}

TEST_F(Log, TheLastLineOfAKeyCounts) {
  {
    TuningLog log(path());
    log.add(trial("a"));
    log.add(trial("b"));
    log.add(trial("a", TrialVerdict::kSlower));
  }
  TuningLog(path()).add(trial("c", TrialVerdict::kFailed));  // a second run appends to the file
  const TuningLog::Contents contents = TuningLog::read(path(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(contents.lines, 4u);
  ASSERT_EQ(contents.trials.size(), 3u);
  EXPECT_TRUE(contents.trials.at("a").is_settled());
  EXPECT_FALSE(contents.trials.at("b").is_settled());
  EXPECT_TRUE(contents.trials.at("c").is_settled());
}

TEST_F(Log, AnotherDevicesTrialsAreNotOurs) {
  TuningLog(path()).add(trial("a"));
  EXPECT_TRUE(TuningLog::read(path(), "NVIDIA A100").trials.empty());
  EXPECT_EQ(TuningLog::read(path(), "NVIDIA A100").lines, 1u);
}

TEST_F(Log, ATornLineIsPassedOverAndSwallowsNothing) {
  TuningLog(path()).add(trial("a"));
  std::ofstream(path(), std::ios::app) << R"({"config":"llama","dev)";
  TuningLog(path()).add(trial("b"));
  const TuningLog::Contents contents = TuningLog::read(path(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(contents.trials.size(), 2u);
  EXPECT_EQ(contents.unreadable, 1u);
}

TEST_F(Log, AProcessThatIsKilledHasLostNoLine) {
  const pid_t child = ::fork();
  if (child == 0) {
    TuningLog log(path());
    for (int i = 0; i < 5; ++i) log.add(trial("k" + std::to_string(i)));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(TuningLog::read(path(), "NVIDIA H100 80GB HBM3").trials.size(), 5u);
}

TEST_F(Log, NoFileHasNoLinesAndAFolderIsRefused) {
  EXPECT_EQ(TuningLog::read(path(), "x").lines, 0u);
  EXPECT_THROW(TuningLog::read(folder_, "x"), ConfigError);
  EXPECT_THROW(TuningLog(folder_ + "/none/log"), ConfigError);
}

}  // namespace
}  // namespace kernelwright
