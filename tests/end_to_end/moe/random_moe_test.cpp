// Random problems of mixtures of experts, launched twice into poisoned outputs, compared bit for bit and with the
// reference: on a GPU many large ones, on the emulator a few small ones with every check on.
//
//   KERNELWRIGHT_RANDOM_MOE   how many; by default 12 on the emulator and 60 on a GPU
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/random.h"
#include "support/cuda_engine.h"
#include "support/emulated_moe_combine.h"
#include "support/emulated_route.h"
#include "support/watchdog.h"

namespace kernelwright::random_moe_test {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed, 91) {}

  RouteProblem route() {
    RouteProblem problem;
    problem.dtype = one_of({DType::kF32, DType::kBf16, DType::kF16});
    problem.n_group = one_of({1, 1, 2, 3, 8, 16});
    problem.topk_group = between(1, problem.n_group);
    const int of_group = between(1, std::min(1024 / problem.n_group, 80));
    problem.experts = problem.n_group * of_group;
    const bool given = between(0, 5) == 0;
    problem.top_k = between(1, std::min(32, of_group * problem.topk_group));
    problem.score = one_of({RouteScore::kSoftmax, RouteScore::kSigmoid, RouteScore::kNone});
    if (problem.score != RouteScore::kNone) problem.order = one_of({RouteOrder::kScoreFirst, RouteOrder::kTopKFirst});
    problem.bias = one_of({false, true});
    if (problem.n_group > 1) problem.group_score = one_of({GroupScore::kTop2Sum, GroupScore::kMax});
    problem.renormalize = problem.score == RouteScore::kSigmoid ||
                          (problem.score == RouteScore::kSoftmax && problem.order == RouteOrder::kScoreFirst);
    problem.factor = one_of({1.0, 2.5});
    problem.sort = one_of({true, true, true, false});
    if (given) {
      const int top_k = problem.top_k, experts = problem.experts;
      problem = {};
      problem.score = RouteScore::kGiven, problem.experts = experts, problem.top_k = top_k;
    }
    if (problem.sort) {
      problem.alignment = one_of({1, 1, 16, 128});
      if (one_of({true, false})) problem.local_experts = between(1, problem.experts);
    }
    return problem;
  }
  /// Any way to choose and to count that the problem takes.
  RouteSchedule schedule_for(const RouteProblem& problem) {
    RouteSchedule schedule;
    if (!problem.is_given()) schedule.choice = one_of({RouteChoice::kRounds, RouteChoice::kBound});
    if (problem.sort && problem.experts <= 256) schedule.counts = one_of({RouteCounts::kU32, RouteCounts::kU16});
    return schedule;
  }
  MoeCombineProblem combine() {
    MoeCombineProblem problem;
    problem.dtype = {one_of({DType::kBf16, DType::kF16}), one_of({DType::kBf16, DType::kF16, DType::kF32})};
    problem.width = 8 * between(1, one_of({8, 200}));
    problem.top_k = between(1, 32);
    problem.weighted = problem.top_k == 1 || one_of({false, true});
    problem.residual = one_of({false, true});
    return problem;
  }
  int between(int low, int high) {
    return low + static_cast<int>(random_.below(static_cast<std::uint64_t>(high - low + 1)));
  }

 private:
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + random_.below(values.size()));
  }
  Random random_;
};

template <class Case, class Kernel>
void expect_right_twice(Engine& engine, const Case& call, const Kernel& kernel) {
  const auto launched = launch_twice(engine.device(0), call, kernel);
  EXPECT_TRUE(launched.repeats) << "two launches differ";
  EXPECT_TRUE(launched.guards_intact) << "memory beside an output was written";
  test::expect_right(call, launched.output);
}

void route(Engine& engine, std::uint64_t seed, int most) {
  Draw draw(seed);
  const RouteProblem problem = draw.route();
  const RouteShape shape{.name = "drawn", .tokens = draw.between(0, most)};
  const RouteSchedule schedule = draw.schedule_for(problem);
  SCOPED_TRACE(fmt::format("seed {}: {}", seed, write_config(RouteConfig{"drawn", problem, schedule, {shape}})));
  expect_right_twice(engine, make_route_inputs(problem, shape, {.seed = seed, .gaps = seed % 2 == 0, .odd = true}),
                     engine.prepare(problem, schedule));
}

void combine(Engine& engine, std::uint64_t seed, int most) {
  Draw draw(seed);
  const MoeCombineProblem problem = draw.combine();
  const MoeCombineShape shape{.name = "drawn", .tokens = draw.between(0, most)};
  SCOPED_TRACE(fmt::format("seed {}: {}", seed, write_config(MoeCombineConfig{"drawn", problem, {}, {shape}})));
  expect_right_twice(engine,
                     make_moe_combine_inputs(problem, shape, {.seed = seed, .gaps = seed % 2 == 0, .odd = true}),
                     engine.prepare(problem));
}

std::uint64_t count_of(std::uint64_t usual) {
  const char* given = std::getenv("KERNELWRIGHT_RANDOM_MOE");
  return given ? std::strtoull(given, nullptr, 10) : usual;
}

TEST(RandomMoe, OnTheEmulatorIsRightWithoutAReport) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 5);
  for (std::uint64_t seed = 0; seed < count_of(12); ++seed) {
    route(engine, seed, 60);
    combine(engine, seed, 12);
    test::expect_no_reports(engine);
  }
}

TEST(RandomMoe, OnCudaIsRight) {
  if (!test::CudaEngine::get().engine) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  Engine& engine = *test::CudaEngine::get().engine;
  test::Watchdog watchdog(std::chrono::seconds(60));
  for (std::uint64_t seed = 0; seed < count_of(60); ++seed)
    watchdog.watch([&] { return fmt::format("random route and combine {}", seed); },
                   [&] {
                     route(engine, seed, seed % 5 == 0 ? 20000 : 1000);
                     combine(engine, seed, 300);
                   });
}

}  // namespace
}  // namespace kernelwright::random_moe_test
