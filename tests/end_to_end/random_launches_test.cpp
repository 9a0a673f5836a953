// Random launches: random kernels of attention and kv_write with random calls, several in flight on two streams. Each
// is launched twice into poisoned outputs and compared bit for bit and with the fp64 reference. If a launch does not
// end, a watchdog names the launch and ends the process. On a GPU and, with few launches, on the emulator. Needs no
// file of the repository.
//
//   KERNELWRIGHT_RANDOM_LAUNCHES  number of launches; default 200 on a GPU, 40 on the emulator
//   KERNELWRIGHT_RANDOM_SEED      seed of kernels and calls; default 1
//   KERNELWRIGHT_RANDOM_KERNELS   number of attention kernels; default 32 on a GPU, 8 on the emulator. A fourth as many
//                                 kernels that write a cache join them
//   KERNELWRIGHT_RANDOM_KIND      only kernels in whose line of the counts this stands: "latent"
//   KERNELWRIGHT_RANDOM_FIRST     index of the first launch; default 0. A failure names its launch; with this index
//                                 the launch runs alone
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "end_to_end/random_jobs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/verify/random.h"
#include "support/ptx_store.h"
#include "support/watchdog.h"

namespace kernelwright {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct RunOptions {
  std::uint64_t launches = 200, first = 0, seed = 1;
  int kernels = 32, in_flight = 8;
  std::string kind;
  CallLimits limits{};
  std::chrono::milliseconds limit{20000};
};

class RandomRun {
 public:
  RandomRun(Engine& engine, const RunOptions& options)
      : device_(engine.device(0)),
        options_(options),
        kernels_(engine, options.kernels, options.seed, options.kind),
        watchdog_(options.limit) {
    for (Stream& stream : streams_) stream = device_.create_stream();
  }
  ~RandomRun() {
    for (Stream stream : streams_) device_.destroy_stream(stream);
  }
  RandomRun(const RandomRun&) = delete;
  RandomRun& operator=(const RandomRun&) = delete;

  void run() {
    const std::uint64_t end = options_.first + options_.launches;
    for (std::uint64_t number = options_.first; number < end && !testing::Test::HasFailure();)
      number += run_some(number, std::min<std::uint64_t>(end - number, static_cast<std::uint64_t>(options_.in_flight)));
    fmt::print("{}", kernels_.counts());
  }

 private:
  struct Job {
    std::uint64_t number;
    std::unique_ptr<RandomJob> call;
  };

  std::string name_of(const Job& job) const {
    return fmt::format(
        "launch {} of seed {}, alone with KERNELWRIGHT_RANDOM_FIRST={} KERNELWRIGHT_RANDOM_LAUNCHES=1\n{}", job.number,
        options_.seed, job.number, job.call->describe());
  }

  /// The test waits for a whole stream. So the launch that does not end is the named one or one behind it.
  std::string name_of(const std::vector<Job>& jobs, std::size_t from) const {
    std::string text = name_of(jobs[from]);
    if (from + 1 < jobs.size())
      text += fmt::format("\nor of one queued behind it, up to launch {}", jobs.back().number);
    return text;
  }

  std::uint64_t run_some(std::uint64_t number, std::uint64_t count) {
    Random random(options_.seed, ~number);
    std::vector<Job> jobs;
    for (std::uint64_t i = number; i < number + count; ++i) jobs.push_back({i, kernels_.draw(options_.limits, i)});
    launch(jobs, random);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const bool intact = watchdog_.watch([&] { return name_of(jobs, i); }, [&] { return jobs[i].call->keep(); });
      EXPECT_TRUE(intact) << "memory beside an output was written by " << name_of(jobs[i]);
    }
    // Again in another order, beside other neighbours.
    for (std::size_t i = jobs.size(); i > 1; --i) std::swap(jobs[i - 1], jobs[random.below(i)]);
    launch(jobs, random);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const bool repeats = watchdog_.watch([&] { return name_of(jobs, i); }, [&] { return jobs[i].call->repeats(); });
      EXPECT_TRUE(repeats) << "two launches differ: " << name_of(jobs[i]);
      EXPECT_EQ(jobs[i].call->fault(), "") << name_of(jobs[i]);
    }
    return count;
  }

  void launch(const std::vector<Job>& jobs, Random& random) {
    for (const Job& job : jobs) {
      const Stream stream = streams_[random.below(2)];
      const int sms = device_.info().num_sms;
      const int budget = static_cast<int>(random.below(2) ? random.below(sms + 1) : 0);
      // The emulator runs a launch where it is queued.
      watchdog_.watch([&] { return name_of(job); }, [&] { job.call->launch(stream, budget); });
    }
  }

  Device& device_;
  const RunOptions options_;
  RandomKernels kernels_;
  Stream streams_[2] = {};
  test::Watchdog watchdog_;
};

/// The options of the environment, else `launches` of `kernels` kernels.
RunOptions asked_for(std::uint64_t launches, int kernels) {
  RunOptions options;
  options.launches = from_environment("KERNELWRIGHT_RANDOM_LAUNCHES", launches);
  options.first = from_environment("KERNELWRIGHT_RANDOM_FIRST", 0);
  options.seed = from_environment("KERNELWRIGHT_RANDOM_SEED", 1);
  options.kernels =
      static_cast<int>(from_environment("KERNELWRIGHT_RANDOM_KERNELS", static_cast<std::uint64_t>(kernels)));
  if (const char* kind = std::getenv("KERNELWRIGHT_RANDOM_KIND")) options.kind = kind;
  return options;
}

TEST(RandomLaunchesOnCuda, AreRightAndRepeatToTheBitOnTwoStreams) {
  std::unique_ptr<Engine> engine;
  try {
    EngineOptions options;
    options.backend = "cuda";
    engine = std::make_unique<Engine>(options);
    if (!engine->device(0).info().arch) GTEST_SKIP() << "no kernel is compiled for " << engine->device(0).info().name;
  } catch (const MissingError& error) {
    GTEST_SKIP() << "no GPU: " << error.what();
  }
  RunOptions options = asked_for(200, 32);
  options.limits = {.queries = 400, .keys = 4000, .batch = 6, .tokens = 8000};
  RandomRun(*engine, options).run();
}

TEST(RandomLaunchesOnTheEmulator, AreRightAndRepeatToTheBitWithoutAReport) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  EngineOptions engine_options;
  engine_options.backend = "emulator";
  engine_options.emulator.hazards = true;
  engine_options.emulator.num_sms = 4;
  engine_options.emulator.completion = emulator::Completion::kRandom;
  engine_options.emulator.seed = 3;
  engine_options.custom_store = test::ptx_store();
  Engine engine(engine_options);
  RunOptions options = asked_for(40, 8);  // each family and form twice
  options.in_flight = 4;
  options.limits = {.queries = 70, .keys = 200, .batch = 3, .tokens = 300};
  options.limit = std::chrono::minutes(4);
  RandomRun(engine, options).run();
  // Places that do not exist are drawn for kernels that write a cache. These kernels skip them, and the report says so.
  for (const auto& [kernel, report] : dynamic_cast<EmulatorBackend&>(engine.backend()).take_reports())
    if (kernel != "kv_write" || report.kind != emulator::HazardKind::kData)
      ADD_FAILURE() << kernel << ": " << report.text();
}

TEST(WatchdogDeathTest, EndsAProcessThatWaitsForWhatDoesNotEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); };
  EXPECT_EXIT(
      {
        test::Watchdog watchdog(std::chrono::milliseconds(50));
        watchdog.watch([] { return "launch 17"; }, [&] { wait(std::chrono::minutes(1)); });
      },
      testing::ExitedWithCode(test::Watchdog::kExitCode), "watchdog: no end after 50 ms of launch 17");
  test::Watchdog watchdog(std::chrono::milliseconds(200));
  for (int i = 0; i < 3; ++i) watchdog.watch([] { return "short work"; }, [&] { wait(std::chrono::milliseconds(1)); });
  wait(std::chrono::milliseconds(300));  // nothing is watched
}

}  // namespace
}  // namespace kernelwright
