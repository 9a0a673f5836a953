// Launches of the pairwise lists: each kernel with random calls, twice into poisoned outputs, compared bit for bit and
// with the fp64 reference. On a GPU the whole list or a shard of it; on the emulator of Hopper and of Blackwell, with
// every check on, a few rows.
//
//   KERNELWRIGHT_PAIRWISE_SHARD   "i/n": every n-th row from row i on, so that n processes share the list; default 0/1
//   KERNELWRIGHT_PAIRWISE_CALLS   calls of each kernel; default 2
//   KERNELWRIGHT_PAIRWISE_ROWS    on the emulator, how many rows of each list; a shard takes its part of them.
//                                 By default 1 row of a shorter list
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "end_to_end/pairwise_lists.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/cuda_engine.h"
#include "support/emulated_attention.h"
#include "support/watchdog.h"

namespace kernelwright {
namespace {

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Shard {
  std::size_t first = 0, step = 1;
};
Shard shard_of_this_process() {
  Shard shard;
  if (const char* text = std::getenv("KERNELWRIGHT_PAIRWISE_SHARD"))
    if (std::sscanf(text, "%zu/%zu", &shard.first, &shard.step) != 2 || shard.step == 0 || shard.first >= shard.step)
      throw std::invalid_argument("KERNELWRIGHT_PAIRWISE_SHARD is i/n with i < n");
  return shard;
}

struct Limits {
  CallLimits attention{};
  int gemm_rows = 0;
  std::uint64_t calls = 2;
};

void launch_attention(Engine& engine, const DrawnKernel& drawn, const AttentionKernel& kernel, const Limits& limits,
                      std::size_t row) {
  for (std::uint64_t i = 0; i < limits.calls; ++i) {
    const DrawnCall drawn_call = draw_call(drawn.problem, limits.attention, 3, row * 16 + i);
    SCOPED_TRACE(fmt::format("row {}, call {}: {}", row, i, describe(drawn, drawn_call)));
    const AttentionCase call = drawn_call.make(drawn.problem);
    const auto launched = launch_twice(engine.device(0), call, kernel);
    EXPECT_TRUE(launched.repeats) << "two launches differ";
    EXPECT_TRUE(launched.guards_intact) << "memory beside an output was written";
    const Verdict verdict = verify(call, launched.output, {.budget_operations = 5e7, .seed = row});
    EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio << ", lse "
                                << verdict.worst_lse_ratio << ", rms " << verdict.rms_ratio << " of "
                                << verdict.rms_limit;
  }
}

void launch_gemm(Engine& engine, const GemmConfig& config, const GemmKernel& kernel, const Limits& limits,
                 std::size_t row) {
  for (std::uint64_t i = 0; i < limits.calls; ++i) {
    Random random(row, i);
    const GemmShape shape{
        "drawn", 1 + static_cast<int>(random.below(i % 2 ? 9u : static_cast<unsigned>(limits.gemm_rows))), true};
    SCOPED_TRACE(fmt::format("row {}, call {}, m {}: {}", row, i, shape.m, write_config(config)));
    const GemmCase call =
        make_gemm_inputs(config.problem, shape, {.seed = row, .exact = random.below(2) == 0, .padding = i % 2 ? 9 : 0});
    const auto launched = launch_twice(engine.device(0), call, kernel);
    EXPECT_TRUE(launched.repeats) << "two launches differ";
    EXPECT_TRUE(launched.guards_intact) << "memory beside d was written";
    const GemmVerdict verdict = verify(call, launched.output, {.budget_operations = 5e7});
    EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio << ", rms "
                                << verdict.rms_ratio << " of " << verdict.rms_limit;
  }
}

void say(const char* kind, const test::Covering& covering, std::size_t launched) {
  fmt::print("{}: {} pairs of values in {} rows, {} rows launched here; no kernel takes {} pairs\n", kind,
             covering.pairs, covering.rows.size(), launched, covering.excluded.size());
}

class PairwiseOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::CudaEngine::get().engine) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
    limits_ = {.attention = {.queries = 500, .keys = 3000, .batch = 5, .tokens = 12000},
               .gemm_rows = 700,
               .calls = number_from_environment("KERNELWRIGHT_PAIRWISE_CALLS", 2)};
  }

  /// Compiles the shard's kernels on all cores, then launches them one by one under a watchdog.
  template <class Config, class Prepare, class Launch>
  void run(const char* kind, const std::vector<Config>& configs, const test::Covering& covering, const Prepare& prepare,
           const Launch& launch) {
    Engine& engine = *test::CudaEngine::get().engine;
    const Shard shard = shard_of_this_process();
    using Kernel = decltype(prepare(engine, configs[0]));
    std::vector<Kernel> kernels;
    for (std::size_t row = shard.first; row < configs.size(); row += shard.step)
      kernels.push_back(prepare(engine, configs[row]));
    test::Watchdog watchdog(std::chrono::seconds(60));
    std::size_t next = 0;
    for (std::size_t row = shard.first; row < configs.size(); row += shard.step, ++next) {
      try {
        kernels[next].wait();
        watchdog.watch([&] { return fmt::format("{} row {}", kind, row); },
                       [&] { launch(engine, configs[row], kernels[next], limits_, row); });
      } catch (const std::exception& error) {
        ADD_FAILURE() << kind << " row " << row << ": " << error.what();
      }
    }
    say(kind, covering, next);
  }

  Limits limits_;
};

PrepareOptions in_background() {
  PrepareOptions options;
  options.background = true;
  return options;
}

TEST_F(PairwiseOnCuda, AttentionIsRightWithEveryPairOfFields) {
  const AttentionPairs pairs = attention_pairs(*test::CudaEngine::get().engine->device(0).info().arch);
  run(
      "attention", pairs.kernels, pairs.covering,
      [](Engine& engine, const DrawnKernel& drawn) {
        return engine.prepare(drawn.problem, drawn.schedule, in_background());
      },
      launch_attention);
}

TEST_F(PairwiseOnCuda, GemmIsRightWithEveryPairOfFields) {
  const GemmPairs pairs = gemm_pairs(*test::CudaEngine::get().engine->device(0).info().arch);
  run(
      "gemm", pairs.configs, pairs.covering,
      [](Engine& engine, const GemmConfig& config) {
        return engine.prepare(config.problem, config.schedule, in_background());
      },
      launch_gemm);
}

class PairwiseOnTheEmulator : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }

  /// Launches the shard's part of `count` rows, spread over the list. Each report of the checker names its row.
  template <class Config, class Launch>
  void run(const char* kind, const std::vector<Config>& configs, const test::Covering& covering, const Launch& launch) {
    const Shard shard = shard_of_this_process();
    const std::size_t count =
        std::min<std::size_t>(number_from_environment("KERNELWRIGHT_PAIRWISE_ROWS", 1), configs.size());
    std::size_t launched = 0;
    for (std::size_t i = shard.first; i < count; i += shard.step, ++launched) {
      const std::size_t row = i * configs.size() / count;
      SCOPED_TRACE(fmt::format("{} row {}", kind, row));
      try {
        launch(configs[row], row);
        test::expect_no_reports(engine_);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
    say(kind, covering, launched);
  }

  const int attempts_ = std::getenv("KERNELWRIGHT_PAIRWISE_ROWS") ? kWholeList : kShortList;
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 5, GetParam());
  const Limits limits_{
      .attention = {.queries = 40, .keys = 150, .batch = 2, .tokens = 300}, .gemm_rows = 70, .calls = 1};
};

// A row or two show that the lists themselves work; KERNELWRIGHT_PAIRWISE_ROWS=100000 launches all.
TEST_P(PairwiseOnTheEmulator, AttentionIsRightWithoutAReport) {
  const AttentionPairs pairs = attention_pairs(GetParam(), attempts_);
  EXPECT_GE(pairs.kernels.size(), 70u) << "the product of the two longest lists of values bounds the rows from below";
  run("attention", pairs.kernels, pairs.covering, [&](const DrawnKernel& drawn, std::size_t row) {
    launch_attention(engine_, drawn, engine_.prepare(drawn.problem, drawn.schedule), limits_, row);
  });
}

TEST_P(PairwiseOnTheEmulator, GemmIsRightWithoutAReport) {
  const GemmPairs pairs = gemm_pairs(GetParam(), attempts_);
  EXPECT_GE(pairs.configs.size(), 36u);
  run("gemm", pairs.configs, pairs.covering, [&](const GemmConfig& config, std::size_t row) {
    launch_gemm(engine_, config, engine_.prepare(config.problem, config.schedule), limits_, row);
  });
}

INSTANTIATE_TEST_SUITE_P(Archs, PairwiseOnTheEmulator, testing::Values(Arch::kSm90a, Arch::kSm100a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace kernelwright
