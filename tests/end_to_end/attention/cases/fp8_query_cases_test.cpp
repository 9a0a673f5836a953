// Cases of few rows of fp8 queries, over fp8 keys and values: groups of heads, pages of every kind, and what a decode
// form does beside products.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "end_to_end/attention/cases/attention_cases.h"

namespace kernelwright {

AttentionProblem fp8_queries(AttentionProblem problem, ScaleKind scales) {
  problem.dtype = {DType::kE4m3, DType::kE4m3, problem.dtype.out};
  problem.scales = scales;
  return problem;
}

void add_fp8_query_cases(std::vector<CudaCase>& cases) {
  const AttentionShape several = lists({}, {150, 31, 0, 1});
  const AttentionProblem bf16 = default_problem(), f16 = default_problem(DType::kF16);
  const auto add = [&](const char* name, AttentionProblem problem, ScaleKind scales, int q_len, int parts) {
    CudaCase test{fmt::format("fp8q_{}", name), decode(fp8_queries(std::move(problem), scales), q_len), several,
                  splits(parts)};
    test.shape.q_len = q_len;
    cases.push_back(test);
  };
  add("group1_page8", paged(heads(bf16, 1, 1), 8), ScaleKind::kNone, 1, 2);
  add("group8_page16_sinks", paged(with_sinks(heads(dims(f16, 64, 64), 8, 1)), 16), ScaleKind::kPerTensor, 1, 3);
  add("group16_capped", causal(capped(heads(dims(bf16, 80, 80), 16, 1), 15)), ScaleKind::kPerHead, 2, 1);
  add("heads_page1", windowed(paged(heads(bf16, 4, 2), 1), 100, 0), ScaleKind::kPerHead, 2, 2);
  add("alibi_d128", causal(with_alibi(heads(dims(bf16, 128, 128), 2, 1))), ScaleKind::kPerTensor, 3, 2);
  add("starts", left_padded(heads(dims(f16, 192, 128), 3, 1)), ScaleKind::kPerTensor, 1, 2);
  cases.back().shape.kv_starts = {70, 0, 0, 0};
  add("negative_scale", causal(heads(dims(bf16, 96, 96), 2, 1)), ScaleKind::kNone, 1, 2);
  cases.back().change = [](AttentionCase& call) { call.scale = -0.3f; };
  AttentionProblem uneven = with_sinks(heads(dims(bf16, 64, 64), 12, 2));
  uneven.q_layout = QLayout::kRagged;
  add("ragged_queries", paged(uneven, 16), ScaleKind::kPerHead, 3, 40);
  cases.back().shape.q_lens = {3, 0, 2, 1};
}

namespace {

TEST(Fp8QueryCases, HaveADecodeFormOnEveryArchitecture) {
  std::vector<CudaCase> cases;
  add_fp8_query_cases(cases);
  std::size_t on_hopper = 0;
  for (CudaCase& test : cases) {
    for (const Arch arch : {Arch::kSm80, Arch::kSm89, Arch::kSm90a}) {
      const CudaCase portable = of_family(test, Family::kPortable);
      ASSERT_TRUE(is_taken(portable, arch)) << test.name;
      EXPECT_TRUE(plan_attention(portable.problem, portable.schedule, arch).main.token_gen) << test.name;
    }
    CudaCase hopper = of_family(test, Family::kHopper);
    hopper.schedule.token_gen = true;
    on_hopper += is_taken(hopper, Arch::kSm90a);
  }
  EXPECT_EQ(on_hopper, cases.size() - 1) << "pages of one key have no box of TMA";
}

}  // namespace
}  // namespace kernelwright
