/// Attention calls for a fake device, and what a launch of them passes.
#pragma once

#include "contract/attention_params.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {

/// An Engine on a fake device, and what its last launch passed or why it was refused.
struct LaunchTest : EngineTest {
  LaunchTest() : engine(options()) {}

  contract::AttentionParams launched(const AttentionProblem& problem, const AttentionTensors& tensors) {
    device().forget_launches();
    engine.prepare(problem).launch(tensors, some_stream());
    return device().launches().at(0).as<contract::AttentionParams>();
  }
  std::string refusal(const AttentionProblem& problem, const AttentionTensors& tensors,
                      const AttentionSchedule& schedule = {}) {
    device().forget_launches();
    const AttentionKernel kernel = engine.prepare(problem, schedule);
    const std::string message = message_of<ConfigError>([&] { kernel.launch(tensors, some_stream()); });
    EXPECT_THAT(device().launches(), ::testing::SizeIs(0)) << "something was queued";
    return message;
  }

  Engine engine;
};

/// Keys in four parts.
inline AttentionSchedule four_parts(Merge merge = Merge::kCombine) {
  AttentionSchedule schedule;
  schedule.splits = 4;
  schedule.merge = merge;
  return schedule;
}

inline AttentionProblem decode_problem() {
  AttentionProblem problem = prefill_problem();
  problem.mask.kind = MaskKind::kNone;
  problem.max_q_len = 1;
  problem.lse = true;
  return problem;
}

inline AttentionTensors decode_tensors() {
  AttentionTensors tensors = some_tensors();
  tensors.q_len = 1;
  tensors.kv_len = 8192;
  return tensors;
}

inline void expect_strides(const contract::Strides& strides, std::int64_t batch, std::int64_t token,
                           std::int64_t head) {
  EXPECT_EQ(strides.batch, batch);
  EXPECT_EQ(strides.token, token);
  EXPECT_EQ(strides.head, head);
}

/// A mask and a bias that are tensors.
inline AttentionProblem open_problem() {
  AttentionProblem problem = prefill_problem();  // heads 8 and 2
  Mask tensor;
  tensor.kind = MaskKind::kTensor;
  tensor.tensor.heads = false;
  Mask range = problem.mask;
  problem.mask = {};
  problem.mask.kind = MaskKind::kAnd;
  problem.mask.operands = {range, tensor};
  problem.score_mod.kind = ScoreModKind::kTensor;
  problem.score_mod.tensor.batch = false;
  return problem;
}
inline AttentionTensors open_tensors() {
  AttentionTensors tensors = some_tensors();  // batch 2, q_len 100, kv_len 300
  tensors.mask = 0x70001;                     // bytes lie anywhere
  tensors.bias = 0x80002;
  return tensors;
}

}  // namespace kernelwright::test
