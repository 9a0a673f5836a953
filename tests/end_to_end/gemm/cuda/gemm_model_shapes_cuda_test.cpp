// The dense GEMMs of DeepSeek and Llama models on the GPU, with few rows and many. The data are integers, so there is
// one right result, and every run must give the same bits. Skipped by name if there is no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/cuda_engine.h"
#include "support/emulated_gemm.h"

namespace kernelwright {
namespace {

struct Layer {
  const char* model;
  int n, k;
};
void PrintTo(const Layer& layer, std::ostream* out) { *out << layer.model << " " << layer.n << " x " << layer.k; }

constexpr Layer kLayers[] = {{"DeepSeek", 2112, 7168},   {"DeepSeek", 576, 7168},    {"DeepSeek", 24576, 1536},
                             {"DeepSeek", 32768, 512},   {"DeepSeek", 7168, 16384},  {"DeepSeek", 4096, 7168},
                             {"DeepSeek", 7168, 2048},   {"Llama_70B", 10240, 8192}, {"Llama_70B", 8192, 8192},
                             {"Llama_70B", 57344, 8192}, {"Llama_70B", 8192, 28672}, {"Llama_8B", 6144, 4096},
                             {"Llama_8B", 4096, 4096},   {"Llama_8B", 28672, 4096},  {"Llama_8B", 4096, 14336}};
constexpr int kRows[] = {1,  2,   3,   5,   8,   15,  16,  24,  32,   48,   63,   64,   65,  68,
                         96, 127, 128, 129, 132, 192, 256, 512, 1000, 1024, 2048, 4096, 8192};
constexpr std::int64_t kMostResults = 1 << 28;  // beyond them a launch is mostly its download

class ModelShapesOnCuda : public testing::TestWithParam<Layer> {
 protected:
  void SetUp() override {
    if (!engine()) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  }
  static Engine* engine() { return test::CudaEngine::get().engine.get(); }

  /// All row counts of `problem`, in one upload's worth of host data each. Rows of a are the first of as many as there
  /// may be.
  void run(const GemmProblem& problem) {
    const GemmKernel kernel = engine()->prepare(problem);
    GemmShape most;
    for (const int m : kRows)
      if (std::int64_t{m} * problem.n <= kMostResults) most.m = m;
    GemmCase call = make_gemm_inputs(problem, most, {.seed = 11, .exact = true});
    for (const int m : kRows) {
      if (m > most.m) break;
      SCOPED_TRACE(fmt::format("{} rows", m));
      call.m = m;
      call.a.rows = m;
      GemmDeviceCase on_device(engine()->device(0), call, kernel);
      on_device.poison();
      on_device.launch();
      const GemmOutput output = on_device.download();
      EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside d was written";
      const GemmVerdict verdict = verify(call, output, {.budget_operations = 1e9});
      EXPECT_TRUE(verdict.passed) << verdict.text;
      EXPECT_TRUE(verdict.exact) << "whole numbers have one result";
      const int repeats = std::int64_t{m} * problem.n <= 1 << 22 ? 20 : 2;
      for (int i = 1; i < repeats; ++i) {
        on_device.poison();
        on_device.launch();
        ASSERT_EQ(on_device.download(), output) << "run " << i << " of " << repeats;
      }
      if (HasFailure()) return;
    }
  }
};

TEST_P(ModelShapesOnCuda, AreExactInBf16AndTheSameEveryTime) {
  run(test::gemm_problem(DType::kBf16, DType::kBf16, GetParam().n, GetParam().k));
}

TEST_P(ModelShapesOnCuda, AreExactWithScalesOfBlocksAndTheSameEveryTime) {
  run(test::gemm_problem(DType::kE4m3, DType::kBf16, GetParam().n, GetParam().k, "acc", ScaleKind::kPerBlock));
}

INSTANTIATE_TEST_SUITE_P(, ModelShapesOnCuda, testing::ValuesIn(kLayers), [](const auto& info) {
  return fmt::format("{}_{}x{}", info.param.model, info.param.n, info.param.k);
});

}  // namespace
}  // namespace kernelwright
