// With batch_invariant a row of a GEMM has the same bits however many rows follow, on a GPU: the tensor cores add the
// products of a row in one order, whatever the tile. The row counts are of all kernels of a plan. Skipped by name if
// there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/cuda_engine.h"
#include "support/emulated_gemm.h"

namespace kernelwright::gemm_invariance_cuda_test {
namespace {

using test::gemm_problem;

struct Subject {
  const char* name;
  GemmProblem problem;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all{
      {"bf16", gemm_problem(DType::kBf16, DType::kF32, 256, 4096, "acc + bias")},
      {"bf16_gates", gemm_problem(DType::kBf16, DType::kBf16, 256, 4096, "silu(gate) * up")},
      {"fp8_token", gemm_problem(DType::kE4m3, DType::kF32, 256, 4096, "acc", ScaleKind::kPerToken)},
      {"fp8_block", gemm_problem(DType::kE4m3, DType::kF32, 256, 4096, "acc", ScaleKind::kPerBlock)},
  };
  for (Subject& subject : all) subject.problem.batch_invariant = true;
  return all;
}

class GemmInvarianceOnCuda : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!engine()) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  }
  static Engine* engine() { return test::CudaEngine::get().engine.get(); }
};

TEST_P(GemmInvarianceOnCuda, ARowIsTheSameHoweverManyFollow) {
  const GemmProblem& problem = GetParam().problem;
  const GemmKernel kernel = engine()->prepare(problem);
  std::vector<int> counts{1, 3, 17, 64, 100};
  for (const GemmVariant& variant : kernel.plan().variants)
    if (&variant != &kernel.plan().variants.back()) counts.push_back(variant.most_m + 1);  // the next one serves these
  std::sort(counts.begin(), counts.end());
  const auto output_of = [&](int m) {
    const GemmCase call = make_gemm_inputs(problem, {"rows", m, true}, {.seed = 2});
    GemmDeviceCase on_device(engine()->device(0), call, kernel);
    on_device.poison();
    on_device.launch();
    return on_device.download().d;
  };
  const std::vector<std::byte> all = output_of(counts.back());
  for (const int m : counts) {
    const std::vector<std::byte> few = output_of(m);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin())) << "of " << m << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(, GemmInvarianceOnCuda, testing::ValuesIn(subjects()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::gemm_invariance_cuda_test
