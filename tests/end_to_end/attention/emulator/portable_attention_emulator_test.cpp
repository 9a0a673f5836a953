// The portable attention kernels with each kind of stage, and with keys split among warps, on the emulator with every
// check on. They must match the fp64 reference and cause no report. Two machines that differ in when copies land and in
// which order warps run must give the same bits. Then the same kernels with one mistake in a template, which must be
// found. Needs NVRTC and no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/emulated_attention.h"
#include "support/kernel_faults.h"

namespace kernelwright {
namespace {

using test::change, test::drop;

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
                     *kInfinities = "portable_columns_2_infinities", *kRotary = "portable_rotary_ring_causal_ragged";

INSTANTIATE_TEST_SUITE_P(
    , PortableStageFaults,
    testing::Values(
        Fault{"values_of_another_stage", kTwo, change("KERNELWRIGHT_ENTRY", "copy_to_shared values", "stage", "0")},
        Fault{"keys_of_another_stage", kTwo, change("KERNELWRIGHT_ENTRY", "copy_to_shared keys", "stage", "stage ^ 1")},
        Fault{"values_a_tile_early", kTwo,
              change("KERNELWRIGHT_ENTRY", "next_values key_tile", "(kStages - 1)", "kStages")},
        Fault{"the_last_keys_are_not_loaded", kTwo,
              change("KERNELWRIGHT_ENTRY", "key_tile begin #2", "(kStages - 1)", "kStages")},
        Fault{"values_are_not_prefetched", kTwo, drop("KERNELWRIGHT_ENTRY", "load_values last")},
        Fault{"no_wait_for_keys", kTwo, drop("KERNELWRIGHT_ENTRY", "__syncthreads #5")},
        Fault{"no_wait_for_values", kTwo, change("KERNELWRIGHT_ENTRY", "__syncthreads return", "__syncthreads()", "")},
        Fault{"every_column_hides_the_first_ones_keys", kRing,
              change("first_key_of", "column_of", "column_of(thread / 32) * spec::kWarpN", "0")},
        Fault{"every_column_takes_all_keys_of_the_first", kRing,
              change("KvBuffer::KvBuffer", "KvBuffer", "warp_column * Trait::wtile_dim0", "0")},
        Fault{"every_column_counts_the_sink", kRing, change("for_each_sink", "num_rows column", "&& column == 0", "")},
        Fault{"every_column_stores", kRing,
              change("KERNELWRIGHT_ENTRY", "column_of end_warp", "column_of(end_warp) != 0", "false")},
        Fault{"statistics_over_keys_that_are_read", kRing, drop("merge", "__syncthreads #1")},
        Fault{"no_wait_for_statistics", kRing, drop("merge", "__syncthreads #2")},
        Fault{"no_wait_for_partial_outputs", kRing, drop("merge", "__syncthreads #3")},
        Fault{"a_column_is_left_out", kFour, change("merge", "kColumns if", "< kColumns - 1", "== 0")},
        Fault{"outputs_relative_to_their_own_maxima", kFour,
              change("merge", "factor weight", "weight(softmax.maximum[r], largest, scale)", "1")},
        Fault{"every_column_adds_what_is_not_finite", kInfinities,
              change("add_non_finite_values", "sees values", "!", "=")},
        Fault{"rotary_keys_from_the_plain_part", kRotary, change("KeysInParts::load", "Rotary", "rotary", "plain")},
        Fault{"rotary_queries_over_the_plain_part", kRotary,
              change("RowTile::piece", "kFirstCol", "kFirstCol / kPieceCols + column", "column")},
        Fault{"decode_stores_another_stage", kDecode, change("await_keys", "keys_", "stage_", "0")},
        Fault{"decode_loads_a_tile_twice", kDecode, change("await_keys", "kNumStages", "spec::kNumStages", "1")},
        Fault{"decode_never_changes_its_stage", kDecode,
              change("release", "stage_", "stage_ == Keys::num_stages - 1 ? 0 : stage_ + 1", "0")}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright
