// Cases of scales that differ by key, of tokens and pages: each form of portable kernels takes them, and other families
// take what their kernels take.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

#include "end_to_end/attention/cases/attention_cases.h"

namespace kernelwright {

void give_extreme_scales(AttentionCase& call) {
  call.random_values = false;
  for (std::size_t i = 0; i < call.v_scale.size(); ++i) {
    constexpr float kScales[] = {0, 1e-12f, 1e6f, 1, 0x1p-9f};
    if (!std::isnan(call.v_scale[i])) call.v_scale[i] = kScales[i % 5];
    if (!std::isnan(call.k_scale[i]) && i % 7 == 0) call.k_scale[i] = i % 3 == 0 ? 1e6f : i % 3 == 1 ? 0 : 1e-12f;
  }
}

void add_key_scale_cases(std::vector<CudaCase>& cases) {
  const AttentionProblem bf16 = default_problem(), f16 = default_problem(DType::kF16);
  constexpr ScaleKind kToken = ScaleKind::kPerToken, kPage = ScaleKind::kPerPage;
  const auto add = [&](const char* name, AttentionProblem problem, AttentionShape shape, int parts) -> CudaCase& {
    cases.push_back({fmt::format("keyscales_{}", name), std::move(problem), std::move(shape), splits(parts)});
    return cases.back();
  };
  const auto few = [&](const char* name, const AttentionProblem& problem, int q_len, int parts) -> CudaCase& {
    AttentionShape shape = lists({}, {150, 31, 0, 1});
    shape.q_len = q_len;
    return add(name, decode(problem, q_len), shape, parts);
  };
  CudaCase& pages = few("decode_page16_sinks", paged(with_sinks(fp8(heads(bf16, 8, 2), kToken)), 16), 1, 2);
  pages.options.heads_first = true;
  pages.shape.kv_lens = {1000, 31, 0, 1};  // several tiles of each part: their pages are looked up two tiles ahead
  few("decode_page48_capped", causal(paged(capped(fp8(heads(f16, 4, 2), kPage, DType::kE5m2), 15), 48)), 2, 1);
  few("decode_fp8q_alibi", causal(with_alibi(fp8_queries(heads(dims(bf16, 64, 64), 2, 1), kToken))), 3, 2);
  few("decode_fp8q_page1", paged(windowed(with_sinks(fp8_queries(heads(bf16, 4, 2), kPage)), 100, 0), 1), 2, 2);
  AttentionProblem uneven = paged(with_sinks(fp8_queries(heads(dims(f16, 96, 96), 6, 2), kToken)), 16);
  uneven.q_layout = QLayout::kRagged;
  few("decode_fp8q_ragged", uneven, 3, 40).shape.q_lens = {3, 0, 2, 1};
  few("decode_extreme", with_sinks(fp8(heads(bf16, 4, 1), kToken)), 1, 2).change = give_extreme_scales;
  few("decode_fp8q_extreme", with_sinks(fp8_queries(heads(bf16, 4, 1), kToken)), 1, 2).change = give_extreme_scales;

  AttentionShape several = lists({}, {150, 31, 0, 90});
  several.q_len = 70;
  add("ragged_sinks", causal(ragged(with_sinks(fp8(heads(bf16, 4, 2), kToken)))),
      lists({90, 1, 0, 33}, {133, 70, 9, 33}), 0)
      .options = {.heads_first = true, .padding_tokens = 3};
  add("page16_window", windowed(paged(fp8(heads(dims(f16, 64, 64), 2, 2), kPage), 16), 37, 9), several, 0).options = {
      .heads_first = true, .padding_tokens = 1};
  add("starts_alibi", with_alibi(left_padded(fp8(heads(dims(bf16, 64, 64), 2, 1), kToken, DType::kE5m2))), several, 0)
      .shape.kv_starts = {20, 0, 0, 5};
  add("d256_negative", causal(fp8(heads(dims(bf16, 256, 256), 2, 2), kToken)), shape_of(1, 40, 130), 0).change =
      [](AttentionCase& call) { call.scale = -0.3f; };
  add("extreme", causal(with_sinks(fp8(heads(f16, 2, 1), kToken))), shape_of(1, 40, 200), 0).change =
      give_extreme_scales;
  for (CudaCase& test : cases)
    if (test.schedule.splits.value_or(1) == 0) test.schedule.splits = {};
}

namespace {

TEST(KeyScaleCases, HaveBothKindsInEveryFormOfThePortableFamilyAndMostOnHopper) {
  std::vector<CudaCase> cases;
  add_key_scale_cases(cases);
  std::set<std::pair<ScaleKind, bool>> forms;
  std::size_t on_hopper = 0;
  for (const CudaCase& test : cases) {
    const CudaCase portable = of_family(test, Family::kPortable);
    ASSERT_TRUE(is_taken(portable, Arch::kSm80)) << test.name;
    const bool decodes = plan_attention(portable.problem, portable.schedule, Arch::kSm80).main.token_gen;
    EXPECT_EQ(decodes, test.name.find("decode") != std::string::npos) << test.name;
    forms.insert({test.problem.scales, decodes});
    CudaCase hopper = of_family(test, Family::kHopper);
    hopper.schedule.token_gen = decodes;
    on_hopper += is_taken(hopper, Arch::kSm90a);
  }
  EXPECT_EQ(forms.size(), 4u);
  EXPECT_EQ(on_hopper, cases.size() - 1) << "pages of one key have no box of TMA";
}

}  // namespace
}  // namespace kernelwright
