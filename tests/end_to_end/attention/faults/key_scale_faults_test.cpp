// Deliberate mistakes in scales of tokens and pages: results must be wrong with each. What kernels share, in
// policy/key_scales.cuh, is tried in the decode form, which compiles soonest. Needs NVRTC and no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/kernel_faults.h"

namespace kernelwright::key_scale_faults_test {
namespace {

using test::after, test::change, test::drop, test::replace;

struct Fault {
  const char *name, *test;
  std::vector<test::TemplateEdit> edits;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

constexpr const char *kDecode = "keyscales_decode_page16_sinks", *kDecodeExtreme = "keyscales_decode_extreme",
                     *kNarrowDecodeExtreme = "keyscales_decode_fp8q_extreme", *kPortable = "keyscales_ragged_sinks",
                     *kHopper = "sm90_fp8kv_tokens_d64", *kHopperPages = "sm90_fp8kv_pages_of_16",
                     *kNarrow = "sm90_fp8_tokens_d64";

const Fault kFaults[] = {
    {"keys_add_up_without_their_scales", kDecode, {change("add_weights", "inverse", "keys.inverse(column)", "1.f")}},
    {"exponents_without_the_scales_of_values", kDecode, {change("to_exponents", "fmaf shift", "shift", "0.f")}},
    {"scores_have_the_scale_of_the_next_column",
     kDecode,
     {change("multiply_keys", "by score", "keys.score(i)", "keys.score(i ^ 1)")}},
    {"scores_have_the_scale_of_another_lane",
     kDecode,
     {change("WarpKeyScales::of", "__shfl_sync", "lane_ % 4 * 2", "0")}},
    {"all_tiles_have_the_scales_of_the_first", kPortable, {drop("WarpKeyScales::step", "key_ step_ #1")}},
    {"pages_are_those_of_a_tile_ago", kDecode, {change("WarpKeyScales::step", "look_up", "key_ + step_", "key_")}},
    {"pages_are_those_of_a_tile_ahead",
     kDecode,
     {change("WarpKeyScales::step", "look_up", "key_ + step_", "key_ + 2 * step_")}},
    {"the_second_tile_has_the_page_of_the_first",
     kDecode,
     {change("WarpKeyScales::WarpKeyScales", "look_up step_", "key_ + step_", "key_")}},
    {"a_scale_of_0_is_taken_as_it_is",
     kDecodeExtreme,
     {replace("WarpKeyScales::step", "scale fminf", "const float scale = next_value_[i];")}},
    {"decode_does_not_step", kDecode, {drop("attend", "key_scales step")}},
    {"decode_counts_sinks_twice",
     kDecode,
     {after("attend", "add_last_sinks", "add_last_sinks(softmax, output, params, item, warp, lane, row_of, scales);")}},
    {"decode_counts_sinks_ahead_of_keys",
     kNarrowDecodeExtreme,
     {after("attend", "scales_of_queries query_scales",
            "add_last_sinks(softmax, output, params, item, warp, lane, row_of, scales);"),
      drop("attend", "add_last_sinks")}},
    {"prefill_does_not_step", kPortable, {drop("KERNELWRIGHT_ENTRY", "key_scales step")}},
    {"prefill_counts_sinks_twice",
     kPortable,
     {after("KERNELWRIGHT_ENTRY", "for_each_sink add_last_sink",
            "for_each_sink(params, done, column_of(end_warp), end_row + end_lane / 4, add_last_sink);")}},
    {"hopper_keys_add_up_without_their_scales",
     kHopper,
     {change("RowSoftmax::exponentiate", "inverse", "keys.inverse(column)", "1.f")}},
    {"hopper_does_not_step", kHopper, {drop("ItemKeys::scale_by_keys", "keys_ step")}},
    {"hopper_pages_are_those_of_a_tile_ago",
     kHopperPages,
     {change("WarpKeyScales::step", "look_up", "key_ + step_", "key_")}},
    {"hopper_counts_sinks_twice",
     kHopper,
     {after("store", "add_last_sinks", "add_last_sinks(softmax, output, done);")}},
    {"narrow_keys_add_up_without_their_scales",
     kNarrow,
     {change("IntegerSoftmax::pack", "inverse keys", "keys.inverse(i / 2 * 4 + k)", "1.f")}},
    {"narrow_queries_have_no_scales", kNarrow, {drop("ItemKeys::scale_by_keys", "multiply_rows")}},
};

CudaCase case_of(const std::string& name) {
  std::vector<CudaCase> cases = hopper_fp8_cases();
  std::vector<CudaCase> shared;
  add_key_scale_cases(shared);
  for (const CudaCase& test : shared) {
    cases.push_back(of_family(test, Family::kPortable));
    cases.back().name = test.name;
    cases.back().schedule.token_gen = test.problem.max_q_len > 0;
    if (test.problem.max_q_len > 0) cases.back().schedule.splits = 1;  // a walk of several tiles, and all meet the sink
  }
  return *std::ranges::find(cases, name, &CudaCase::name);
}

class KeyScaleFaults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(KeyScaleFaults, MakeResultsWrong) {
  const CudaCase test = case_of(GetParam().test);
  const std::string kernel = test.schedule.family == Family::kHopper ? "attention_sm90"
                             : test.schedule.token_gen.value()       ? "attention_decode_portable"
                                                                     : "attention_portable";
  const test::Findings findings = test::run_with_edits(kernel, test, GetParam().edits, Arch::kSm90a);
  EXPECT_TRUE(findings.found.contains("wrong result")) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, KeyScaleFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::key_scale_faults_test
