// The life of a server in short: four threads launch attention and GEMM kernels of random valid shapes on two streams,
// one by one and in CUDA graphs. Every call's first output is compared with the fp64 reference, later ones bit for bit
// with the first. After each round all calls are dropped: device and host memory must not grow from round to round.
// Skipped by name if there is no GPU.
//
//   KERNELWRIGHT_MIXED_LAUNCHES  number of launches; default 4000
//   KERNELWRIGHT_MIXED_SEED      seed of shapes and choices; default 1
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <variant>

#include "end_to_end/pairwise_lists.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/cuda_engine.h"
#include "support/watchdog.h"

namespace kernelwright {
namespace {

constexpr int kThreads = 4, kJobs = 12, kRounds = 10, kGraphLaunches = 6;
constexpr std::uint64_t kLaunchesPerSample = 500;

/// KiB that the process has allocated from its heap and not freed; MiB in use on the GPU, -1 where nvidia-smi is
/// missing.
long heap_kib() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<long>((heap.uordblks + heap.hblkhd) / 1024);
}
long device_mib() {
  long used = -1;
  if (std::FILE* pipe =
          popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0 2>/dev/null", "r")) {
    if (std::fscanf(pipe, "%ld", &used) != 1) used = -1;
    pclose(pipe);
  }
  return used;
}

/// A call of either kind on the device, bound to a stream, with its first output.
class Job {
 public:
  Job(Device& device, const DrawnKernel& drawn, const AttentionKernel& kernel, std::uint64_t number, Stream stream) {
    Attention& made = call_.emplace<Attention>();
    const DrawnCall call =
        draw_call(drawn.problem, {.queries = 300, .keys = 2000, .batch = 5, .tokens = 6000}, 9, number);
    name_ = describe(drawn, call);
    made.call = call.make(drawn.problem);
    made.device = std::make_unique<DeviceCase>(device, made.call, kernel);
    use(stream);
    poison_and_launch();
    made.first = made.device->download();
    const Verdict verdict = verify(made.call, made.first, {.budget_operations = 2e6, .seed = number});
    if (!verdict.passed) wrong_ = verdict.text;
  }
  Job(Device& device, const GemmConfig& config, const GemmKernel& kernel, std::uint64_t number, Stream stream) {
    Gemm& made = call_.emplace<Gemm>();
    Random random(number, 3);
    const GemmShape shape{"drawn", 1 + static_cast<int>(random.below(random.below(2) ? 9u : 500u)), true};
    name_ = fmt::format("m {} of {}", shape.m, write_config(config));
    made.call = make_gemm_inputs(config.problem, shape, {.seed = number});
    made.device = std::make_unique<GemmDeviceCase>(device, made.call, kernel);
    use(stream);
    poison_and_launch();
    made.first = made.device->download();
    const GemmVerdict verdict = verify(made.call, made.first, {.budget_operations = 2e6});
    if (!verdict.passed) wrong_ = verdict.text;
  }

  void use(Stream stream) {
    std::visit([&](auto& call) { call.device->use(stream); }, call_);
  }
  void launch() {
    std::visit([](auto& call) { call.device->launch(); }, call_);
  }
  void poison_and_launch() {
    std::visit(
        [](auto& call) {
          call.device->poison();
          call.device->launch();
        },
        call_);
  }
  /// What is wrong with the result of the last launch; "" if nothing is.
  std::string fault() {
    std::visit(
        [&](auto& call) {
          if (!(call.device->download() == call.first)) wrong_ += "another output than the first";
          if (!call.device->guards_are_intact()) wrong_ += "memory beside an output was written";
        },
        call_);
    return wrong_.empty() ? "" : wrong_ + "\n" + name_;
  }

 private:
  struct Attention {
    AttentionCase call;
    std::unique_ptr<DeviceCase> device;
    AttentionOutput first;
  };
  struct Gemm {
    GemmCase call;
    std::unique_ptr<GemmDeviceCase> device;
    GemmOutput first;
  };
  std::variant<Attention, Gemm> call_;
  std::string name_, wrong_;
};

class MixedLaunchesOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::CudaEngine::get().engine) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  }

  struct Kernels {
    std::vector<DrawnKernel> drawn;
    std::vector<AttentionKernel> attention;
    std::vector<GemmConfig> configs;
    std::vector<GemmKernel> gemm;
  };

  static Kernels prepare(Engine& engine, std::uint64_t seed) {
    const Arch arch = *engine.device(0).info().arch;
    PrepareOptions background;
    background.background = true;
    Kernels kernels;
    kernels.drawn = draw_kernels(48, seed, arch);
    for (const DrawnKernel& drawn : kernels.drawn)
      kernels.attention.push_back(engine.prepare(drawn.problem, drawn.schedule, background));
    const std::vector<GemmConfig> configs = gemm_pairs(arch).configs;
    for (std::size_t i = seed % 5; i < configs.size(); i += 7) {
      kernels.configs.push_back(configs[i]);
      kernels.gemm.push_back(engine.prepare(configs[i].problem, configs[i].schedule, background));
    }
    for (const AttentionKernel& kernel : kernels.attention) kernel.wait();
    for (const GemmKernel& kernel : kernels.gemm) kernel.wait();
    return kernels;
  }

  /// One thread's part of a round. Returns what went wrong.
  static std::string live(Device& device, const Kernels& kernels, const Stream (&streams)[2], std::uint64_t seed,
                          std::uint64_t launches, std::atomic<std::uint64_t>& samples) {
    Random random(seed, 1);
    std::vector<std::unique_ptr<Job>> jobs;
    std::vector<int> of_stream[2];
    for (int i = 0; i < kJobs; ++i) {
      const int side = i % 2;
      if (random.below(3) == 0) {
        const std::size_t which = random.below(kernels.gemm.size());
        jobs.push_back(
            std::make_unique<Job>(device, kernels.configs[which], kernels.gemm[which], seed * 64 + i, streams[side]));
      } else {
        const std::size_t which = random.below(kernels.attention.size());
        jobs.push_back(std::make_unique<Job>(device, kernels.drawn[which], kernels.attention[which], seed * 64 + i,
                                             streams[side]));
      }
      of_stream[side].push_back(i);
    }
    // A graph of some jobs of each stream, captured on a stream of its own.
    std::unique_ptr<Device::Graph> graphs[2];
    const Stream capture = device.create_stream();
    for (int side = 0; side < 2; ++side) {
      device.begin_capture(capture);
      for (int i = 0; i < kGraphLaunches; ++i) {
        Job& job =
            *jobs[static_cast<std::size_t>(of_stream[side][static_cast<std::size_t>(i) % of_stream[side].size()])];
        job.use(capture);
        job.launch();
        job.use(streams[side]);
      }
      graphs[side] = device.end_capture(capture);
    }
    std::string wrong;
    std::uint64_t next_sample = kLaunchesPerSample;
    for (std::uint64_t done = 0; done < launches && wrong.empty();) {
      if (random.below(8) == 0) {
        const auto side = random.below(2);
        graphs[side]->replay(streams[side]);
        done += kGraphLaunches;
      } else {
        jobs[random.below(jobs.size())]->launch();
        ++done;
      }
      if (done < next_sample) continue;
      next_sample += kLaunchesPerSample;
      Job& job = *jobs[random.below(jobs.size())];
      if (random.below(2)) job.poison_and_launch();
      wrong = job.fault();
      ++samples;
    }
    for (const auto& job : jobs) {
      if (wrong.empty()) wrong = job->fault();
      ++samples;
    }
    for (auto& graph : graphs) graph.reset();
    device.destroy_stream(capture);
    return wrong;
  }
};

TEST_F(MixedLaunchesOnCuda, KeepMemoryFlatAndResultsRight) {
  const char* asked = std::getenv("KERNELWRIGHT_MIXED_LAUNCHES");
  const std::uint64_t launches = asked ? std::strtoull(asked, nullptr, 10) : 4000;
  const char* seed_text = std::getenv("KERNELWRIGHT_MIXED_SEED");
  const std::uint64_t seed = seed_text ? std::strtoull(seed_text, nullptr, 10) : 1;
  Engine& engine = *test::CudaEngine::get().engine;
  Device& device = engine.device(0);
  const Kernels kernels = prepare(engine, seed);
  Stream streams[2] = {device.create_stream(), device.create_stream()};
  std::atomic<std::uint64_t> samples = 0;
  test::Watchdog watchdog(std::chrono::minutes(5));
  std::vector<std::pair<long, long>> memory;  // after each round
  for (std::uint64_t round = 0; round < kRounds && !HasFailure(); ++round) {
    std::string wrong[kThreads];
    watchdog.watch([&] { return fmt::format("round {} of seed {}", round, seed); },
                   [&] {
                     std::vector<std::thread> threads;
                     for (std::uint64_t t = 0; t < kThreads; ++t)
                       threads.emplace_back([&, t] {
                         try {
                           wrong[t] = live(device, kernels, streams, (seed * kRounds + round) * kThreads + t,
                                           launches / kRounds / kThreads, samples);
                         } catch (const std::exception& error) {
                           wrong[t] = error.what();
                         }
                       });
                     for (std::thread& thread : threads) thread.join();
                   });
    for (int t = 0; t < kThreads; ++t)
      if (!wrong[t].empty()) ADD_FAILURE() << "round " << round << ", thread " << t << ": " << wrong[t];
    memory.emplace_back(heap_kib(), device_mib());
  }
  for (Stream stream : streams) device.destroy_stream(stream);
  fmt::print("{} launches of {} kernels by {} threads on 2 streams; {} outputs compared\n", launches,
             kernels.attention.size() + kernels.gemm.size(), kThreads, samples.load());
  for (const auto& [host, gpu] : memory) fmt::print("  heap {} KiB, on the GPU {} MiB\n", host, gpu);
  ASSERT_EQ(memory.size(), static_cast<std::size_t>(kRounds));
  // The first rounds fill memory that is kept on purpose: tensor maps, the driver's pools.
  EXPECT_LE(memory.back().first, memory[2].first + 2048) << "host memory grows";
  EXPECT_LE(memory.back().second, memory[2].second + 32) << "device memory grows";
}

}  // namespace
}  // namespace kernelwright
