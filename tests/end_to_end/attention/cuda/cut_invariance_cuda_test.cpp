// With batch_invariant a query has the same bits however its prompt is cut, on a GPU: the tensor cores add nothing for
// keys that a query does not see. The emulator's tests have the same prompts, with small heads. Skipped by name if
// there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "end_to_end/attention/cases/cut_prompts.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/verify/attention/device.h"
#include "support/cuda_engine.h"

namespace kernelwright {
namespace {

class CutInvarianceOnCuda : public testing::TestWithParam<CutPrompt> {
 protected:
  void SetUp() override {
    if (!engine()) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
    if (!family_exists_on(GetParam().schedule.family.value(), *engine()->device(0).info().arch))
      GTEST_SKIP() << "another GPU: " << engine()->device(0).info().name;
  }
  static Engine* engine() { return test::CudaEngine::get().engine.get(); }

  std::vector<int> different(AttentionProblem problem, int keys) {
    const AttentionKernel kernel = engine()->prepare(problem, GetParam().schedule);
    return queries_that_differ(problem, keys, [&](const AttentionShape&, const AttentionCase& call) {
      DeviceCase on_device(engine()->device(0), call, kernel);
      on_device.poison();
      on_device.launch();
      AttentionOutput output = on_device.download();
      EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
      return output;
    });
  }
};

TEST_P(CutInvarianceOnCuda, AQueryHasTheSameBitsHoweverItsPromptIsCut) {
  AttentionProblem problem = GetParam().problem;
  problem.heads = {8, 2}, problem.head_dim = {128, 128};
  for (const int keys : {300, 1500}) EXPECT_THAT(different(problem, keys), testing::IsEmpty()) << keys;
}

INSTANTIATE_TEST_SUITE_P(, CutInvarianceOnCuda, testing::ValuesIn(cut_prompts()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright
