// kernelwright tune on the emulator, at a size that takes seconds. The times there mean nothing, but the steps are the
// same.
#include <signal.h>

#include <thread>

#include "cli/command_fixture.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/tune/tuning_log.h"

namespace kernelwright::tune_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Tune : public Command {
 protected:
  std::string tiny() const {
    return write("tiny.json", R"({"version": 1, "kind": "attention", "name": "tiny",
      "problem": {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 2, "kv": 2}, "max_q_len": 1},
      "shapes": [{"name": "check", "batch": 1, "q_len": 1, "kv_len": 9, "check": true},
                 {"name": "small", "batch": 1, "q_len": 1, "kv_len": 40}]})");
  }
  std::vector<std::string> words(std::vector<std::string> more = {}) const {
    std::vector<std::string> all{"tune",         tiny(), "--device", "emulator",  "--budget", "1s",
                                 "--candidates", "2",    "--log",    path("log"), "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static JsonValue json(const CommandResult& result) { return JsonValue::parse(result.out); }
  std::size_t lines() const { return TuningLog::read(path("log"), "emulated sm_90a").lines; }
};

TEST_F(Tune, SaysLoudlyThatTheEmulatorsTimesMeanNothingAndWritesNoRow) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result = run(words());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("its times say nothing about any GPU. This tries the tuner, and writes no row"));
  EXPECT_FALSE(json(result).at("/times_mean_something").as_bool());
  EXPECT_EQ(json(result).at("/row").as_string(), "");
  EXPECT_EQ(json(result).at("/checked").as_int(), 2);
  EXPECT_EQ(json(result).at("/trials").elements().size(), 2u);
  EXPECT_EQ(json(result).at("/clock_mhz").as_string(), "unknown");
  EXPECT_GE(json(result).at("/best_over_model/pairs").as_int(), 8);
  const auto trials = TuningLog::read(path("log"), "emulated sm_90a").trials;
  EXPECT_EQ(trials.size(), 2u);
  for (const auto& [key, trial] : trials) {
    EXPECT_EQ(trial.config, "tiny");
    EXPECT_GT(trial.registers, 0);
    ASSERT_EQ(trial.times.size(), 1u);
    EXPECT_EQ(trial.times[0].shape, "small") << "check shapes are not timed";
  }
}

TEST_F(Tune, ResumeLeavesOutWhatTheLogHasSettled) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult fresh = run(words());
  ASSERT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_EQ(json(run(words({"--resume"}))).at("/resumed").as_int(), 0) << "finalists race again";
  // Change the log: it now says that one of the two is wrong.
  std::string schedule;
  const JsonValue object = json(fresh);
  for (const JsonValue& row : object.at("/trials").elements())
    if (!row.at("/is_model").as_bool()) schedule = row.at("/schedule").dump(-1);
  for (auto [key, trial] : TuningLog::read(path("log"), "emulated sm_90a").trials) {
    if (trial.schedule != schedule) continue;
    trial.verdict = TrialVerdict::kWrong;
    trial.round = -1;
    TuningLog(path("log")).add(trial);
  }
  const CommandResult again = run(words({"--resume"}));
  EXPECT_EQ(json(again).at("/resumed").as_int(), 1);
  EXPECT_EQ(json(again).at("/checked").as_int(), 1);
  EXPECT_EQ(json(again).at("/trials").elements().size(), 1u);
  EXPECT_EQ(json(again).at("/refused/0/schedule").dump(-1), schedule);
  EXPECT_EQ(json(run(words())).at("/trials").elements().size(), 2u) << "without --resume it is tried again";
}

TEST_F(Tune, AnInterruptionExits130AndLosesNothing) {
  KERNELWRIGHT_NEEDS_COMPILER();
  std::string program = (test::binary_dir() / "cli" / "kernelwright").string();
  const std::string config = tiny(), log = path("log"), cache = "KERNELWRIGHT_CACHE_DIR=" + path("cache");
  const pid_t child = ::fork();
  if (child == 0) {
    ::freopen("/dev/null", "w", stdout);
    ::freopen(path("err").c_str(), "w", stderr);
    ::execl("/usr/bin/env", "env", cache.c_str(), program.c_str(), "tune", config.c_str(), "--device", "emulator",
            "--budget", "10m", "--candidates", "9", "--log", log.c_str(), nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 600 && lines() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::size_t before = lines();
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_GE(lines(), before);
  std::ifstream err(path("err"));
  const std::string text(std::istreambuf_iterator<char>(err), {});
  EXPECT_THAT(text, HasSubstr("interrupted; " + log + " has every trial so far, and --resume goes on from there"));
}

TEST_F(Tune, AnOverlayRowReachesTheKernelAndExplainSaysSo) {
  TunedRow row;
  row.arch = Arch::kSm90a;
  row.device = DeviceClass::kH100;
  row.problem.head_dim = {64, 64};
  row.problem.heads = {2, 2};
  row.problem.max_q_len = 1;
  row.tuning_class = tuning_class(row.problem);
  row.schedule.family = Family::kPortable;
  row.schedule.num_stages = 3;
  row.provenance.gpu = "NVIDIA H100 80GB HBM3";
  row.provenance.date = "2026-11-21";
  const std::string file = write_tuned_file(path("rows"), "mine", row);
  const std::vector<std::string> explain{"explain", tiny(), "--arch", "sm_90a", "--json"};
  const std::string none = "KERNELWRIGHT_NVRTC=/nonexistent/libnvrtc.so";
  const auto by = [&](const CommandResult& result) {
    const JsonValue object = json(result);
    for (const JsonValue& choice : object.at("/choices").elements())
      if (choice.at("/field").as_string() == "num_stages")
        return choice.at("/value").as_string() + " " + choice.at("/by").as_string();
    return std::string("?");
  };
  EXPECT_THAT(by(run(explain, {none})), HasSubstr(" model"));
  EXPECT_EQ(by(run(explain, {none, "KERNELWRIGHT_TUNED_DIR=" + path("rows")})), "3 row");
  std::vector<std::string> named = explain;
  named.insert(named.end(), {"--tuned-dir", path("rows")});
  const CommandResult result = run(named, {none});
  EXPECT_EQ(json(result).at("/row").as_string(), file);
  EXPECT_THAT(run({"explain", tiny(), "--arch", "sm_90a", "--tuned-dir", path("rows")}, {none}).out,
              HasSubstr("tuned 2026-11-21 on NVIDIA H100 80GB HBM3: row " + file));
}

TEST_F(Tune, AGemmIsTunedForEachRangeOfRows) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string gemm = write("gemm.json", R"({"version": 1, "kind": "gemm", "name": "gemm",
      "problem": {"n": 64, "k": 128}, "shapes": [{"name": "check", "m": 5, "check": true}, {"name": "none", "m": 0},
      {"name": "few", "m": 4}, {"name": "more", "m": 12}, {"name": "many", "m": 40}]})");
  const CommandResult result = run(
      {"tune", gemm, "--device", "emulator", "--budget", "1s", "--candidates", "2", "--log", path("log"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const JsonValue all = json(result);
  ASSERT_EQ(all.at("/configs").elements().size(), 2u);
  const std::vector<std::string> ranges{R"({"least":1,"most":16})", R"({"least":33,"most":48})"};
  for (std::size_t i = 0; i < 2; ++i) {
    const JsonValue& one = all.at("/configs").elements()[i];
    EXPECT_EQ(one.at("/rows").dump(-1), ranges[i]);
    EXPECT_EQ(one.at("/num_sms").as_int(), 132);
    EXPECT_EQ(one.at("/checked").as_int(), 2);
    ASSERT_EQ(one.at("/trials").elements().size(), 2u);
    EXPECT_EQ(one.at("/trials/0/times_us").members().size(), i == 0 ? 2u : 1u) << "shapes without rows are not timed";
    EXPECT_GE(one.at("/best_over_model/pairs").as_int(), 8);
    EXPECT_EQ(one.at("/row").as_string(), "") << "the emulator's times make no row";
  }
  EXPECT_EQ(TuningLog::read(path("log"), "emulated sm_90a").trials.size(), 4u);
}

TEST_F(Tune, AGemmsRowReachesItsKernelsAndExplainSaysTuned) {
  GemmTunedRow row;
  row.arch = Arch::kSm90a;
  row.device = DeviceClass::kH100;
  row.problem.n = row.problem.k = 512;
  row.tuning_class = tuning_class(row.problem);
  row.launches = {.num_sms = 132, .rows = {1, 16}};
  row.schedule.family = Family::kHopper;
  row.schedule.block_m = 64, row.schedule.block_n = 128, row.schedule.stages = 3;
  row.provenance.gpu = "NVIDIA H100 80GB HBM3";
  row.provenance.date = "2026-11-21";
  const std::string file = write_tuned_file(path("rows"), "mine", row);
  const std::string gemm = write("gemm.json", R"({"version": 1, "kind": "gemm", "name": "gemm",
      "problem": {"n": 512, "k": 512}, "shapes": [{"name": "few", "m": 4}]})");
  const std::vector<std::string> none{"KERNELWRIGHT_NVRTC=/nonexistent/libnvrtc.so"};
  const std::vector<std::string> explain{"explain", gemm, "--arch", "sm_90a", "--tuned-dir", path("rows")};
  std::vector<std::string> as_json = explain;
  as_json.push_back("--json");
  const JsonValue object = json(run(as_json, none));
  EXPECT_EQ(object.at("/variants/0/row").as_string(), file);
  EXPECT_EQ(object.at("/variants/0/most_m").as_int(), 16);
  EXPECT_THAT(object.at("/variants/0/spec").as_string(), HasSubstr("stages 3\n"));
  EXPECT_EQ(object.at("/variants/1/row").as_string(), "");
  const std::string text = run(explain, none).out;
  EXPECT_THAT(text, HasSubstr("tuned"));
  EXPECT_THAT(text, HasSubstr("tuned 2026-11-21 on NVIDIA H100 80GB HBM3: row " + file));
  EXPECT_EQ(json(run({"doctor", "--json", "--tuned-dir", path("rows")})).at("/tuned/unusable").elements().size(), 0u);
}

TEST_F(Tune, ABadOverlayIsAnErrorAndDoctorShowsIt) {
  std::filesystem::create_directories(path("rows/sm_90a"));
  const std::string bad = write("rows/sm_90a/bad.json", "{}");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"explain", tiny(), "--arch", "sm_90a"},
                                                {"run", tiny(), "--device", "emulator"},
                                                {"tune", tiny(), "--device", "emulator"},
                                                {"compile", tiny(), "--arch", "sm_90a"}}) {
    std::vector<std::string> with = words, missing = words;
    with.insert(with.end(), {"--tuned-dir", path("rows")});
    expect_refused(with, {"kernelwright: tuned row " + bad + ": /version: is missing"});
    missing.insert(missing.end(), {"--tuned-dir", path("none")});
    expect_refused(missing, {"tuned row " + path("none") + ": No such file or directory"});
  }
  const CommandResult doctor = run({"doctor", "--json", "--tuned-dir", path("rows")});
  EXPECT_EQ(json(doctor).at("/tuned/unusable/0/row").as_string(), bad);
  EXPECT_THAT(run({"doctor", "--tuned-dir", path("rows")}).out, HasSubstr(bad + ": /version: is missing"));
}

TEST_F(Tune, RefusesWhatItCannotUseBeforeAnythingIsMeasured) {
  const std::string fixed = write("fixed.json", config("", R"(, "schedule": {"block_n": 64})"));
  expect_refused({"tune", fixed, "--device", "emulator"},
                 {"fixed.json: /schedule/block_n: is fixed, and tune is there to choose it"});
  expect_refused({"tune", write("gemm.json", gemm_config()), "--device", "emulator"},
                 {"gemm.json: /schedule/block_m: is fixed, and tune is there to choose it"});
  const std::string no_rows = write("none.json", R"({"version": 1, "kind": "gemm", "name": "none",
      "problem": {"n": 64, "k": 64}, "shapes": [{"name": "none", "m": 0}]})");
  expect_refused({"tune", no_rows, "--device", "emulator"},
                 {"none.json: /shapes: have no rows; one to measure would do"});
  expect_refused({"tune", tiny(), "--device", "emulator", "--budget", "soon"}, {"--budget: \"soon\" is no time"});
  expect_refused({"tune", tiny(), "--device", "emulator", "--budget", "-1s"}, {"--budget"});
  expect_refused({"tune", tiny(), "--device", "emulator", "--log", path("none/log")}, {"cannot be written"});
}

TEST_F(Tune, KeepsItsLogInTheCacheAndItsBudgetWithinAFifth) {
  KERNELWRIGHT_NEEDS_COMPILER();
  using Clock = std::chrono::steady_clock;
  auto began = Clock::now();
  ASSERT_EQ(run({"compile", tiny(), "--arch", "sm_90a", "--cache-dir", path("other")}).exit_code, 0);
  const std::chrono::duration<double> compile = Clock::now() - began;  // it waits for the last compile
  began = Clock::now();
  const CommandResult result =
      run({"tune", tiny(), "--device", "emulator", "--budget", "8s", "--candidates", "40", "--json"});
  const std::chrono::duration<double> took = Clock::now() - began;
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(took.count(), 8 * 1.2 + 2 * compile.count());
  EXPECT_GE(json(result).at("/best_over_model/pairs").as_int(), 8);
  EXPECT_TRUE(std::filesystem::exists(path("cache/tune/tiny.tune.jsonl")));
  EXPECT_FALSE(std::filesystem::exists("tiny.tune.jsonl"));
}

TEST_F(Tune, CopiesOfTheModelsChoiceRaceIt) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const auto copies = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"tune",     tiny(), "--device", "emulator",  "--budget", "1s",
                                 "--copies", "1",    "--log",    path("log"), "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const CommandResult result = copies({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const JsonValue found = json(result);
  ASSERT_EQ(found.at("/trials").elements().size(), 2u);
  for (const JsonValue& trial : found.at("/trials").elements())
    EXPECT_EQ(trial.at("/schedule").dump(-1), found.at("/trials/0/schedule").dump(-1));
  EXPECT_EQ(found.at("/checked").as_int(), 2);
  EXPECT_GE(found.at("/best_over_model/pairs").as_int(), 8) << "the race is a real one";
  EXPECT_EQ(TuningLog::read(path("log"), "emulated sm_90a").trials.size(), 1u) << "they are one kernel";
  EXPECT_EQ(copies({"--resume"}).exit_code, 2);
  EXPECT_EQ(copies({"--candidates", "3"}).exit_code, 2);
}

TEST_F(Tune, AutoWantsAGpu) {
  const CommandResult result =
      run({"tune", tiny(), "--output", path("rows")}, {"KERNELWRIGHT_LIBCUDA=/nonexistent/libcuda.so.1"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("no NVIDIA driver"));
}

}  // namespace
}  // namespace kernelwright::tune_test
