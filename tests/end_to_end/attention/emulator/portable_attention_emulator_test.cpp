// The portable attention kernels with each kind of stage, and with keys split among warps, on the emulator with every
// check on: right against the fp64 reference, without a report, and with the same bits from two machines that differ in
// when copies land and in which order warps run. Then the same kernels with one mistake in a template, which has to be
// found. Needs NVRTC and no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/emulated_attention.h"
#include "support/kernel_faults.h"

namespace kernelwright {
namespace {

using test::expect_right;
using test::expect_same_bits;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

class PortableStages : public test::OnTheEmulator<CudaCase> {};

TEST_P(PortableStages, AreRightHoweverTheyAreScheduled) {
  const CudaCase& test = GetParam();
  AttentionCase call = inputs_of(test);
  call.random_values = call.random_values && !test.change;
  Engine eager = make_checking_engine(4, emulator::Completion::kRandom, 7, Arch::kSm80),
         lazy = make_checking_engine(108, emulator::Completion::kLazy, 0, Arch::kSm80);
  const AttentionOutput output = run_checked(eager, test, call);
  expect_same_bits(output, run_checked(lazy, test, call), "two machines differ");
  expect_right(call, output);
}

INSTANTIATE_TEST_SUITE_P(, PortableStages, testing::ValuesIn(portable_cases()),
                         [](const auto& info) { return info.param.name; });

struct Fault {
  const char *name, *test;
  test::TemplateEdit edit;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class PortableStageFaults : public test::OnTheEmulator<Fault> {};

TEST_P(PortableStageFaults, AreFound) {
  const std::vector<CudaCase> cases = portable_cases();
  const auto test =
      std::find_if(cases.begin(), cases.end(), [](const CudaCase& one) { return one.name == GetParam().test; });
  ASSERT_NE(test, cases.end());
  const std::string kernel = test->schedule.token_gen.value() ? "attention_decode_portable" : "attention_portable";
  const test::Findings findings = test::run_with_edits(kernel, *test, {GetParam().edit}, Arch::kSm90a);
  EXPECT_FALSE(findings.found.empty());
  EXPECT_FALSE(findings.found.contains("refused")) << findings.text;
}

constexpr const char *kTwo = "portable_registers_2", *kRing = "portable_columns_2_ring",
                     *kFour = "portable_columns_4_registers_ragged", *kDecode = "portable_decode_registers_3",
                     *kInfinities = "portable_columns_2_infinities";

INSTANTIATE_TEST_SUITE_P(
    , PortableStageFaults,
    testing::Values(
        Fault{"values_of_another_stage", kTwo, {"values.copy_to_shared(stage);", "values.copy_to_shared(0);"}},
        Fault{"keys_of_another_stage", kTwo, {"keys.copy_to_shared(stage);", "keys.copy_to_shared(stage ^ 1);"}},
        Fault{"values_a_tile_early", kTwo, {"key_tile - (kStages - 1);", "key_tile - kStages;"}},
        Fault{"the_last_keys_are_not_loaded", kTwo, {"tiles.begin + (kStages - 1)", "tiles.begin + kStages"}},
        Fault{"values_are_not_prefetched", kTwo, {"load(values, value_rows, last - ahead, ahead);", ";"}},
        Fault{
            "no_wait_for_keys", kTwo, {"keys.copy_to_shared(stage); __syncthreads();", "keys.copy_to_shared(stage);"}},
        Fault{"no_wait_for_values", kTwo, {"return __syncthreads();", "return;"}},
        Fault{"every_column_hides_the_first_ones_keys", kRing, {"column_of(thread / 32) * spec::kWarpN", "0"}},
        Fault{"every_column_takes_all_keys_of_the_first", kRing, {"warp_column * Trait::wtile_dim0", "0"}},
        Fault{"every_column_counts_the_sink", kRing, {"&& column == 0)", ")"}},
        Fault{"every_column_stores", kRing, {"if (column_of(end_warp) != 0) return;", ""}},
        Fault{"statistics_over_keys_that_are_read",
              kRing,
              {"float scale) const { __syncthreads();", "float scale) const {"}},
        Fault{"no_wait_for_statistics", kRing, {"= softmax.sum[r]; } __syncthreads();", "= softmax.sum[r]; }"}},
        Fault{"no_wait_for_partial_outputs", kRing, {"if (c > 0) __syncthreads();", ""}},
        Fault{"a_column_is_left_out", kFour, {"if (c < kColumns - 1) mine[0]", "if (c == 0) mine[0]"}},
        Fault{"outputs_relative_to_their_own_maxima",
              kFour,
              {"const float factor = weight(softmax.maximum[r], largest, scale);", "const float factor = 1;"}},
        Fault{
            "every_column_adds_what_is_not_finite", kInfinities, {"values[e] != 0) output", "values[e] == 0) output"}},
        Fault{"decode_stores_another_stage", kDecode, {"keys_.copy_to_shared(stage_);", "keys_.copy_to_shared(0);"}},
        Fault{"decode_loads_a_tile_twice",
              kDecode,
              {"load(key_tile + spec::kNumStages, stage_);", "load(key_tile + 1, stage_);"}},
        Fault{"decode_never_changes_its_stage", kDecode, {"stage_ == Keys::num_stages - 1 ? 0 : stage_ + 1", "0"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright
