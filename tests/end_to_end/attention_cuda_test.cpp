// Every case on the GPU, against the fp64 reference, twice, with poisoned outputs and guards around them. One Engine
// serves all tests, and kernels come from the cache where it has them. Skipped by name where no GPU is.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "end_to_end/attention_cases.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine.h"
#include "kernelwright/verify/attention_bound.h"
#include "kernelwright/verify/attention_device.h"
#include "kernelwright/verify/float_formats.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

/// The engine of this process, or why there is none.
struct Machine {
  std::unique_ptr<Engine> engine;
  std::string missing;

  static Machine& get() {
    static Machine machine;
    return machine;
  }

 private:
  Machine() {
    try {
      EngineOptions options;
      options.backend = "cuda";
      engine = std::make_unique<Engine>(options);
      if (engine->device(0).info().arch) return;
      missing = "no kernel is compiled for " + engine->device(0).info().name;
      engine.reset();
    } catch (const MissingError& error) {
      engine.reset();
      missing = error.what();
    }
  }
};

class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!Machine::get().engine) GTEST_SKIP() << "no GPU: " << Machine::get().missing;
  }
  Engine& engine() { return *Machine::get().engine; }
  Device& device() { return engine().device(0); }
  AttentionKernel prepare(const AttentionProblem& problem, const AttentionSchedule& schedule = {}) {
    return engine().prepare(problem, schedule);
  }
  void expect_right(const AttentionCase& call, const AttentionKernel& kernel) {
    const LaunchedTwice launched = launch_twice(device(), call, kernel);
    EXPECT_TRUE(launched.repeats) << "two launches differ";
    EXPECT_TRUE(launched.guards_intact) << "memory beside an output was written";
    const Verdict verdict = verify(call, launched.output, {.budget_operations = 4e9});
    EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio << ", lse "
                                << verdict.worst_lse_ratio << ", rms " << verdict.rms_ratio << " of "
                                << verdict.rms_limit;
    RecordProperty("worst_over_bound", fmt::format("{:.4f}", verdict.worst_ratio));
    RecordProperty("rms_over_expected", fmt::format("{:.4f}", verdict.rms_ratio));
  }
};

class AttentionOnCuda : public OnCuda, public testing::WithParamInterface<CudaCase> {
 protected:
  // A whole run compiles all its kernels at once, on all cores; a single test compiles its own.
  static void SetUpTestSuite() {
    if (!Machine::get().engine || testing::GTEST_FLAG(filter) != "*") return;
    for (const CudaCase& test : all_cuda_cases()) {
      PrepareOptions options;
      options.background = true;
      Machine::get().engine->prepare(test.problem, test.schedule, options);
    }
  }
};

TEST_P(AttentionOnCuda, MatchesTheReference) {
  const CudaCase& test = GetParam();
  const AttentionKernel kernel = prepare(test.problem, test.schedule);
  kernel.wait();
  ASSERT_TRUE(kernel.binary());
  EXPECT_EQ(kernel.binary()->usage.spill_stores, 0) << "registers spill";
  AttentionCase call = make_inputs(test.problem, test.shape, test.options);
  if (test.change) {
    test.change(call);
    call.random_values = call.random_values && test.name.rfind("c36", 0) != 0;
  }
  expect_right(call, kernel);
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionOnCuda, testing::ValuesIn(all_cuda_cases()),
                         [](const auto& info) { return info.param.name; });

// Case 24: a pool of more than 2^31 elements, and page ids above 2^24.
TEST_F(OnCuda, PoolsBeyond32BitsOfElements) {
  const std::size_t needed = std::size_t{22} << 30, host = static_cast<std::size_t>(::sysconf(_SC_AVPHYS_PAGES)) * 4096;
  if (device().info().memory_bytes < needed || host < needed)
    GTEST_SKIP() << "needs 22 GiB on the host and on the device";
  AttentionProblem problem = default_problem();
  problem.head_dim = {64, 64};
  problem.kv_layout = {KvLayoutKind::kPaged, 1};
  InputOptions options;
  options.unused_pages = (1 << 24) + (1 << 20);  // of 2 x 64 elements: 2.2e9
  for (const int max_q_len : {0, 1}) {
    problem.max_q_len = max_q_len;
    const AttentionCase call = make_inputs(problem, shape_of(2, max_q_len ? 1 : 40, 500), options);
    ASSERT_GT(call.k.buffer->size() / 2, std::size_t{1} << 31);
    expect_right(call, prepare(problem));
  }
}

// Case 25: however many parts the keys are cut into, the result is the same within rounding.
TEST_F(OnCuda, PartsAgreeWithTheWhole) {
  AttentionProblem problem = default_problem(DType::kF16);
  problem.max_q_len = 1;
  AttentionShape shape = shape_of(4, 1, 0);
  shape.kv_lens = {4096, 100, 0, 513};
  const AttentionCase call = make_inputs(problem, shape);
  AttentionSchedule schedule;
  schedule.splits = 1;
  const AttentionOutput whole = launch_twice(device(), call, prepare(problem, schedule)).output;
  std::vector<double> expected(call.o_elems()), found(call.o_elems());
  decode_row(DType::kF16, whole.o.data(), expected.size(), expected.data());
  for (const int parts : {2, 3, 7, 33, 128}) {
    schedule.splits = parts;
    const AttentionOutput output = launch_twice(device(), call, prepare(problem, schedule)).output;
    decode_row(DType::kF16, output.o.data(), found.size(), found.data());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 1e-3) << parts << " parts, element " << i;
    for (std::size_t i = 0; i < whole.lse.size(); ++i) {
      if (std::isinf(whole.lse[i]))
        ASSERT_EQ(output.lse[i], whole.lse[i]) << parts << " parts, row " << i;
      else
        ASSERT_NEAR(output.lse[i], whole.lse[i], 1e-5) << parts << " parts, row " << i;
    }
  }
}

// Case 40, short: mixed shapes on two streams at once, each result the same to the bit every time.
TEST_F(OnCuda, ManyLaunchesOnTwoStreamsRepeatToTheBit) {
  struct Job {
    AttentionCase call;
    std::unique_ptr<DeviceCase> on_device;
    AttentionOutput first;
  };
  std::vector<std::unique_ptr<Job>> jobs;
  AttentionProblem prefill = default_problem(), decode = default_problem();
  prefill.mask.kind = MaskKind::kCausal;
  decode.kv_layout = {KvLayoutKind::kPaged, 16};
  decode.max_q_len = 1;
  for (const auto& [problem, shape] :
       {std::pair{prefill, shape_of(2, 300, 300)}, std::pair{decode, shape_of(5, 1, 2000)},
        std::pair{prefill, shape_of(1, 33, 1000)}, std::pair{decode, shape_of(60, 1, 100)}}) {
    auto job = std::make_unique<Job>();
    job->call = make_inputs(problem, shape);
    job->on_device = std::make_unique<DeviceCase>(device(), job->call, prepare(problem));
    job->on_device->poison();
    job->on_device->launch();
    job->first = job->on_device->download();
    jobs.push_back(std::move(job));
  }
  Random random(40);
  for (int round = 0; round < 50; ++round) {
    for (auto& job : jobs) job->on_device->poison();
    for (int i = 0; i < 20; ++i) jobs[random.below(jobs.size())]->on_device->launch();  // every job has its own stream
    for (auto& job : jobs) job->on_device->launch();
    for (auto& job : jobs) {
      const AttentionOutput output = job->on_device->download();
      ASSERT_EQ(output.o, job->first.o) << "round " << round;
      ASSERT_EQ(std::memcmp(output.lse.data(), job->first.lse.data(), output.lse.size() * sizeof(float)), 0)
          << "round " << round;
    }
  }
}

// A captured launch replays, and gives the bits of a direct one.
TEST_F(OnCuda, GraphsReplayTheSameBits) {
  AttentionProblem problem = default_problem();
  problem.max_q_len = 1;
  const AttentionCase call = make_inputs(problem, shape_of(2, 1, 3000));
  DeviceCase on_device(device(), call, prepare(problem));
  on_device.poison();
  on_device.launch();
  const AttentionOutput direct = on_device.download();
  device().begin_capture(on_device.stream());
  on_device.launch();
  const auto graph = device().end_capture(on_device.stream());
  for (int i = 0; i < 100; ++i) {
    on_device.poison();
    graph->replay(on_device.stream());
    ASSERT_EQ(on_device.download().o, direct.o) << "replay " << i;
  }
}

}  // namespace
}  // namespace kernelwright
