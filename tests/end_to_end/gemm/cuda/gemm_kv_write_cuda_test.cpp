// GEMMs that write a cache on the GPU: the planner's kernels against the reference and against the GEMM and the
// kv_write that they stand for. Skipped by name if there is no GPU.
#include <gtest/gtest.h>

#include <string>

#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/cuda_engine.h"
#include "support/gemm_kv_chain.h"

namespace kernelwright {
namespace {

class ProductsIntoACacheOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!engine()) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  }
  static Engine* engine() { return test::CudaEngine::get().engine.get(); }

  /// Heads of Llama 3 8B, or a quarter as many of other sizes.
  static GemmProblem problem_of(int head_dim, DType operands, DType kv) {
    KvWriteProblem cache;
    cache.dtype.kv = kv;
    cache.head_dim = {head_dim, head_dim};
    cache.heads = head_dim == 128 ? Heads{32, 8} : Heads{8, 2};
    cache.kv_layout = {KvLayoutKind::kPaged, 16};
    cache.rope = {.style = RopeStyle::kNeox, .width = head_dim};
    if (is_fp8(kv)) cache.scales.k = cache.scales.v = ScaleKind::kPerHead;
    GemmProblem problem;
    problem.n = static_cast<int>(row_columns(cache)), problem.k = 2048;
    problem.dtype = {operands, operands, DType::kBf16, DType::kBf16};
    if (is_fp8(operands)) problem.scales = ScaleKind::kPerToken;
    problem.kv_write = cache;
    return problem;
  }

  /// One launch against the reference, then repeats: the bits must stay.
  static GemmOutput run(const GemmCase& call) {
    constexpr int kRepeats = 5;
    GemmDeviceCase on_device(engine()->device(0), call, engine()->prepare(call.problem));
    GemmOutput first;
    for (int i = 0; i < kRepeats; ++i) {
      on_device.poison();
      on_device.launch();
      GemmOutput output = on_device.download();
      EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
      if (i == 0)
        first = std::move(output);
      else
        EXPECT_EQ(output, first) << "run " << i;
    }
    const GemmVerdict verdict = verify(call, first, {.budget_operations = 5e8});
    EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio;
    return first;
  }
};

TEST_F(ProductsIntoACacheOnCuda, AreRight) {
  for (const int head_dim : {64, 128, 256})
    for (const DType operands : {DType::kBf16, DType::kE4m3}) {
      if (is_fp8(operands) && !arch_info(*engine()->device(0).info().arch).fp8_mma_sync) continue;
      for (const int m : {1, 16, 40, 100, 777, 3000}) {
        SCOPED_TRACE(std::to_string(head_dim) + " elements, " + std::to_string(m) + " rows");
        run(make_gemm_inputs(problem_of(head_dim, operands, DType::kE4m3), {"", m, true}, {.seed = 3}));
      }
    }
}

TEST_F(ProductsIntoACacheOnCuda, HaveTheBitsOfTheChain) {
  GemmProblem problem = problem_of(128, DType::kBf16, DType::kBf16);
  problem.batch_invariant = true;  // products are added in the order of k
  problem.kv_write->qk_norm.kind = NormKind::kRms;
  for (const int m : {1, 16, 64, 777, 3000}) {
    SCOPED_TRACE(std::to_string(m) + " rows");
    const GemmCase call = make_gemm_inputs(problem, {"", m, true}, {.seed = 3});
    const GemmOutput fused = run(call);
    const GemmCase product = test::product_of(call);
    GemmDeviceCase first(engine()->device(0), product, engine()->prepare(product.problem));
    first.poison();
    first.launch();
    const KvWriteCase steps = test::steps_of(call, first.download().d);
    KvWriteDeviceCase second(engine()->device(0), steps, engine()->prepare(steps.problem));
    second.poison();
    second.launch();
    KvWriteOutput chain = second.download();
    EXPECT_TRUE(fused.d == chain.q_out);
    chain.q_out.clear();
    EXPECT_TRUE(fused.kv == chain);
  }
}

}  // namespace
}  // namespace kernelwright
