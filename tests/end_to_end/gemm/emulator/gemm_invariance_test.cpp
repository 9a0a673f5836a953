// What a GEMM's result must not depend on: with batch_invariant, a row on the other rows; any result on the number of
// SMs that a launch may take. Compared bit for bit, on the emulator. Needs NVRTC and no GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/tuned/row.h"
#include "support/emulated_gemm.h"

namespace kernelwright::gemm_invariance_test {
namespace {

using test::gemm_problem;

struct Subject {
  const char* name;
  GemmProblem problem;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all{
      {"bf16", gemm_problem(DType::kBf16, DType::kBf16, 72, 200, "acc + bias")},
      {"bf16_deep", gemm_problem(DType::kBf16, DType::kF32, 8, 2048)},
      {"fp8_token", gemm_problem(DType::kE4m3, DType::kBf16, 72, 208, "acc", ScaleKind::kPerToken)},
      {"fp8_block", gemm_problem(DType::kE4m3, DType::kF32, 72, 272, "acc", ScaleKind::kPerBlock)},
  };
  for (Subject& subject : all) subject.problem.batch_invariant = true;
  return all;
}

class GemmInvariance : public test::OnTheEmulator<Subject> {};

TEST_P(GemmInvariance, ARowIsTheSameHoweverManyFollow) {
  const GemmProblem& problem = GetParam().problem;
  Engine engine = test::make_checking_engine(3, emulator::Completion::kEager, 1);
  constexpr int kMost = 70;
  const auto output_of = [&](int m) {
    return test::run_checked(engine, make_gemm_inputs(problem, {"rows", m, true}, {.seed = 2})).d;
  };
  const std::vector<std::byte> all = output_of(kMost);
  for (int m = 1; m < kMost; ++m) {
    const std::vector<std::byte> few = output_of(m);
    ASSERT_TRUE(std::equal(few.begin(), few.end(), all.begin())) << "of " << m << " rows";
  }
}

// Rows that different kernels of the plan serve.
TEST_P(GemmInvariance, ARowIsTheSameInEveryKernelOfThePlan) {
  const GemmProblem& problem = GetParam().problem;
  Engine engine = test::make_checking_engine(3, emulator::Completion::kEager, 1);
  const GemmKernel kernel = engine.prepare(problem);
  const GemmCase few = make_gemm_inputs(problem, {"few", 5, true}, {.seed = 2});
  const std::vector<std::byte> want = test::run_checked(engine, few).d;
  for (const GemmVariant& variant : kernel.plan().variants) {
    GemmSchedule schedule;
    schedule.block_m = variant.spec.block_m;
    schedule.block_n = variant.spec.block_n;
    schedule.roles = variant.spec.roles;
    schedule.math_warpgroups = variant.spec.math_warpgroups;
    schedule.k_group = variant.spec.k_group;
    schedule.swap_ab = variant.spec.swap_ab;
    schedule.split_k = variant.spec.split_k;
    EXPECT_EQ(test::run_checked(engine, few, schedule).d, want) << canonical_text(variant.spec);
  }
}

TEST_P(GemmInvariance, ResultsAreTheSameOnFewerSms) {
  const GemmProblem& problem = GetParam().problem;
  Engine engine = test::make_checking_engine(6, emulator::Completion::kEager, 1);
  const GemmCase call = make_gemm_inputs(problem, {"budget", 200, true}, {.seed = 2});
  const GemmOutput want = test::run_checked(engine, call);
  for (const int budget : {1, 2, 5, 100})
    EXPECT_EQ(test::run_checked(engine, call, {}, [&](GemmTensors& t) { t.sm_budget = budget; }), want) << budget;
}

INSTANTIATE_TEST_SUITE_P(Kernels, GemmInvariance, testing::ValuesIn(subjects()),
                         [](const auto& info) { return std::string(info.param.name); });

// Parts of k that meet in shared memory or in a workspace, and operands that two CTAs share: the order in which warps
// and copies happen to run is no order of sums.
struct Form {
  const char* name;
  GemmSchedule schedule;
};
class GemmRuns : public test::OnTheEmulator<Form> {};

TEST_P(GemmRuns, TwentyAreTheSameToTheBit) {
  const GemmProblem problem = gemm_problem(DType::kBf16, DType::kF32, 256, 520, "acc + bias");
  const GemmCase call = make_gemm_inputs(problem, {"runs", 70, true}, {.seed = 2});
  GemmOutput first;
  for (int run = 0; run < 20; ++run) {
    Engine engine =
        test::make_checking_engine(1 + run % 5, emulator::Completion::kRandom, static_cast<std::uint64_t>(100 + run));
    const GemmOutput output = test::run_checked(engine, call, GetParam().schedule);
    if (run == 0)
      test::expect_right(call, first = output);
    else
      ASSERT_EQ(output, first) << "run " << run;
  }
}

std::vector<Form> forms() {
  GemmSchedule schedule;
  schedule.block_m = 64, schedule.block_n = 128, schedule.stages = 4, schedule.math_warpgroups = 1;
  schedule.roles = Roles::kCooperative;
  GemmSchedule parts = schedule, turns = schedule, cluster = schedule;
  parts.split_k = 2;
  turns.split_k = 3, turns.split_mode = SplitMode::kTurnstile;
  cluster.cluster = ClusterShape{2, 1};
  return {{"parts_of_k", parts}, {"turns", turns}, {"cluster", cluster}};
}
INSTANTIATE_TEST_SUITE_P(Forms, GemmRuns, testing::ValuesIn(forms()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::gemm_invariance_test
