// What the portable family does not compute is refused, by path and with what would do. No GPU needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "end_to_end/attention_cases.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/planner.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

std::string refusal(const AttentionProblem& problem, const AttentionSchedule& schedule = {}) {
  try {
    plan_attention(problem, schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(AttentionRefusals, HeadSizesThatAreNotBuilt) {  // case 12
  for (const int d : {8, 16, 32, 40, 56, 72, 111, 112, 160, 224, 512}) {
    AttentionProblem problem = default_problem();
    problem.head_dim = {d, d};
    EXPECT_THAT(refusal(problem),
                HasSubstr("/problem/head_dim/qk: " + std::to_string(d) +
                          " is not built yet for the portable family; it has 64, 80, 96, 128, 192, 256"));
  }
}

TEST(AttentionRefusals, ValuesOf512) {  // case 13, and 37: 576 and 512
  AttentionProblem problem = default_problem();
  problem.head_dim = {64, 512};
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/head_dim/v: 512 is not built yet"));
  problem.head_dim = {576, 512};
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/head_dim/qk: 576 is not built yet"));
}

TEST(AttentionRefusals, MasksThatAreNotBuilt) {  // cases 17, 29, 30
  for (const MaskKind kind :
       {MaskKind::kChunked, MaskKind::kTree, MaskKind::kTensor, MaskKind::kBits, MaskKind::kPadding}) {
    AttentionProblem problem = default_problem();
    problem.mask.kind = kind;
    if (kind == MaskKind::kChunked) problem.mask.chunk = 100;
    EXPECT_THAT(refusal(problem),
                HasSubstr("/problem/mask/kind: \"" + std::string(to_string(kind)) +
                          "\" is not built yet for the portable family; it has none, causal, sliding_window"));
  }
}

TEST(AttentionRefusals, MergingInTheKernel) {  // case 26
  AttentionProblem problem = default_problem();
  problem.max_q_len = 1;
  AttentionSchedule schedule;
  schedule.merge = Merge::kInKernel;
  EXPECT_THAT(refusal(problem, schedule), HasSubstr("/schedule/merge"));
}

TEST(AttentionRefusals, ScalesThatAreNotBuilt) {  // case 33
  for (const ScaleKind kind : {ScaleKind::kPerBlock, ScaleKind::kPerToken}) {
    AttentionProblem problem = default_problem();
    problem.dtype.kv = DType::kE4m3;
    problem.scales = kind;
    EXPECT_THAT(refusal(problem),
                HasSubstr("/problem/scales: \"" + std::string(to_string(kind)) + "\" is not built yet"));
  }
}

TEST(AttentionRefusals, QueriesInFp8) {
  AttentionProblem problem = default_problem();
  problem.dtype.q = problem.dtype.kv = DType::kE4m3;
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/dtype/q: \"e4m3\" is not built yet"));
}

TEST(AttentionRefusals, SplitKeysOutsideTheDecodeForm) {
  AttentionSchedule schedule;
  schedule.splits = 4;
  EXPECT_THAT(refusal(default_problem(), schedule), HasSubstr("/schedule/splits"));
}

}  // namespace
}  // namespace kernelwright
