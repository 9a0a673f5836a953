// A layer of experts is several kernels behind one handle: their states, their launches, and what fails.
#include <string>

#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

const std::string kCombine = "moe_combine";  // the kernel of one part

MoeProblem a_layer() {
  MoeProblem problem;
  problem.hidden = 256, problem.intermediate = 128, problem.scales = ScaleKind::kPerBlock;
  problem.route.experts = 16, problem.route.top_k = 4;
  return problem;
}

MoeTensors tensors_of(const MoeKernel& kernel, std::int64_t tokens) {
  MoeTensors tensors;
  tensors.x = 0x10000000, tensors.logits = 0x20000000, tensors.out = 0x30000000;
  tensors.gate_up = 0x40000000, tensors.gate_up_scale = 0x50000000;
  tensors.down = 0x60000000, tensors.down_scale = 0x70000000;
  tensors.workspace = 0x80000000, tensors.workspace_bytes = kernel.workspace_bytes(tokens);
  tensors.tokens = tokens;
  return tensors;
}

TEST_F(EngineTest, ALayerOfExpertsIsAtMostSevenLaunches) {
  Engine engine(options());
  const MoeKernel kernel = engine.prepare(a_layer());
  EXPECT_EQ(engine.counters().ready, 6u);
  for (const auto& [tokens, launches] : {std::pair{0, 0u}, {3, 6u}, {4000, 7u}}) {
    device().forget_launches();
    kernel.launch(tensors_of(kernel, tokens), some_stream());
    EXPECT_THAT(device().launches(), SizeIs(launches)) << tokens;
  }
}

TEST_F(EngineTest, ALayerOfExpertsQueuesNothingUntilAllOfItIsReady) {
  Engine engine(options());
  store->hold(kCombine);
  const MoeKernel kernel = engine.prepare(a_layer(), {.on_miss = OnMiss::kError, .background = true});
  EXPECT_EQ(kernel.state(), KernelState::kPending);
  kernel.gate_up().wait();
  kernel.route().wait();
  EXPECT_THROW(kernel.launch(tensors_of(kernel, 3), some_stream()), NotReadyError);
  EXPECT_THAT(device().launches(), SizeIs(0));
  store->release();
  kernel.wait();
  EXPECT_EQ(kernel.state(), KernelState::kReady);
  kernel.launch(tensors_of(kernel, 3), some_stream());
  EXPECT_THAT(device().launches(), SizeIs(6));
}

TEST_F(EngineTest, ALayerOfExpertsNamesThePartThatFails) {
  Engine engine(options());
  store->fail(kCombine);
  const MoeKernel kernel = engine.prepare(a_layer(), {.background = true});
  EXPECT_FALSE(engine.wait_until_ready());
  EXPECT_EQ(kernel.state(), KernelState::kFailed);
  EXPECT_THAT(kernel.error(), StartsWith("combine: "));
  EXPECT_THROW(kernel.launch(tensors_of(kernel, 3), some_stream()), CompileError);
  EXPECT_THAT(device().launches(), SizeIs(0));
  EXPECT_THROW(engine.prepare(a_layer()), CompileError);
}

TEST_F(EngineTest, AnEmptyLayerSaysWhereOneIsFrom) {
  EXPECT_THROW(MoeKernel().launch({}, some_stream()), Error);
  EXPECT_FALSE(MoeKernel());
}

}  // namespace
}  // namespace kernelwright::test
