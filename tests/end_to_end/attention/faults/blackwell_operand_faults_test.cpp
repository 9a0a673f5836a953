// Deliberate mistakes in how attention_sm100 handles operands of 8 bits, rotary parts and scales of tokens. The
// emulator must find each. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright::blackwell_operand_faults_test {
namespace {

using enum BlackwellForm;

const BlackwellFault kFaults[] = {
    // ---- 8 bits ----
    {"format_of_the_other_8_bits", kNarrow, {change("Operand", "element kType", "kE4m3", "kE5m2")}, "wrong result"},
    {"kind_of_16_bits", kNarrow, {change("Operand", "kind kType", "kF8f6f4", "kF16")}, "out of bounds"},
    {"values_read_as_keys_are", kNarrow, {change("OutputProduct", "instruction", "true", "false")}, "race"},
    {"probabilities_of_16_bits",
     kNarrow,
     {change("SoftmaxThread::put", "pack_word", "spec::kQDType", "DType::kBf16")},
     "wrong result"},
    {"probabilities_in_columns_of_16_bits",
     kNarrow,
     {change("SoftmaxThread::put", "tcgen05_st", "* kElementBytes / 4", "/ 2")},
     "wrong result"},
    {"products_from_columns_of_16_bits",
     kNarrow,
     {change("OutputProduct::issue", "step_offset", "* Type::bytes / 4", "/ 2")},
     "wrong result"},
    {"values_by_steps_of_16_keys",
     kNarrow,
     {change("OutputProduct::issue", "step_offset", "((key - kShareFirst) / Type::step)",
             "((key - kShareFirst) / Type::step) / 2")},
     "wrong result"},
    {"parts_of_a_tile_that_are_no_whole_steps",
     kNarrow,
     {change("", "kFirstKeys", "/ kKeyStep * kKeyStep", "")},
     "refused"},
    {"exponentials_not_lifted",
     kNarrow,
     {change("LaneSoftmax::offset", "fmaf", "kNarrow ? fmaf(-maximum, scale, kLift) :", "")},
     "wrong result"},
    {"exponentials_lifted_past_what_8_bits_hold",
     kNarrow,
     {change("LaneSoftmax", "kLift kSlack", "8", "11")},
     "wrong result"},
    {"sum_told_with_its_lift",
     kNarrow,
     {change("log2_sum", "sum", "(ptx::lg2_approx_ftz(sum) - kLift)", "ptx::lg2_approx_ftz(sum)")},
     "wrong result"},
    {"sink_not_lifted",
     kNarrow,
     {change("add_sink", "sum", "kNarrow ? static_cast<float>(1 << static_cast<int>(kLift)) :", "")},
     "wrong result"},
    {"scale_of_the_first_head_for_all",
     kNarrow,
     {change("scale_of", "kScales", "spec::kScales == ScaleKind::kPerHead ? work_.item.row_map.kv_head() :", "")},
     "wrong result"},
    {"values_not_scaled", kNarrow, {change("SoftmaxThread::store", "inverse", "* value_scale()", "")}, "wrong result"},
    {"scores_not_scaled", kNarrow, {change("row_scale", "scale_of", "scale_of(params_.k_scale)", "1")}, "wrong result"},
    // ---- rotary parts ----
    {"rotary_product_left_out",
     kRotary,
     {change("ScoreProduct::issue", "kRopeSteps", "step < kRopeSteps", "false")},
     "wrong result"},
    {"rotary_product_overwrites",
     kRotary,
     {change("ScoreProduct::issue", "RopeType", "1", "step > 0")},
     "wrong result"},
    {"rotary_product_with_the_instruction_of_8_bits",
     kRotary,
     {change("ScoreProduct::issue", "RopeType", "kRopeInstruction", "kInstruction")},
     "wrong result"},
    {"rotary_product_of_the_kind_of_8_bits",
     kRotary,
     {change("ScoreProduct::issue", "RopeType", "RopeType", "Type")},
     "wrong result"},
    {"half_of_the_rotary_steps",
     kRotary,
     {change("ScoreProduct", "kRopeSteps kRope", "(kRope + RopeType::step - 1) / RopeType::step",
             "kRope / RopeType::step / 2")},
     "wrong result"},
    {"rotary_queries_not_expected",
     kRotary,
     {change("load_query_tile", "expect_bytes", "kSlabsQk", "kSlabsPlain")},
     "race"},
    {"rotary_columns_counted_from_the_heads_first",
     kRotary,
     {change("slab_source", "rope", "(slab - kPlainSlabs)", "slab")},
     "wrong result"},
    {"rotary_part_from_the_other_map", kRotary, {change("slab_source", "rope", "rope", "plain")}, "wrong result"},
    {"all_slabs_from_the_rotary_map",
     kRotary,
     {change("slab_source", "if", "slab < kPlainSlabs", "false")},
     "wrong result"},
    {"rotary_slab_not_loaded", kRotary, {change("load", "load_keys", "kSlabsQk", "kSlabsPlain")}, "deadlock"},
    // ---- scales that differ by key ----
    {"scales_not_waited_for", kRotary, {drop("scale_by_keys", "scale_full")}, "race"},
    {"scales_waited_for_with_the_other_parity",
     kRotary,
     {change("scale_by_keys", "scale_full", "lap", "lap + 1")},
     "deadlock"},
    {"scales_of_the_next_slot",
     kRotary,
     {change("TileNumbers::read", "ld_shared_v4", "slot", "(slot + 1) % contract::kScaleSlots")},
     "race"},
    {"scales_told_of_before_all_lanes_wrote", kRotary, {drop("load_key_scales", "__syncwarp")}, "race"},
    {"scales_not_told_of", kRotary, {drop("load_key_scales", "scale_full")}, "deadlock"},
    {"scales_written_over_those_still_needed", kRotary, {drop("load_key_scales", "scale_empty")}, "deadlock"},
    {"scales_let_go_of_ahead_of_sums",
     kRotary,
     {before("SoftmaxThread::run", "hand_over_probabilities", "numbers.let_go(lane_);"),
      drop("SoftmaxThread::run", "let_go")},
     "race"},
    {"scales_not_let_go_of", kRotary, {drop("TileNumbers::let_go", "scale_empty")}, "deadlock"},
    {"scales_let_go_of_by_one_query_tile",
     kRotary,
     {change("Shared::scale_empty", "Barrier", "(kTwoQueryTiles ? 2 : 1) *", "")},
     "deadlock"},
    {"scales_in_the_order_of_keys", kRotary, {change("", "KeyScales WarpKeyScales", "-1", "1")}, "wrong result"},
    {"scales_of_keys_for_queries", kRotary, {change("row_scale", "exists", "q_scale", "k_scale")}, "wrong result"},
    {"scales_of_values_for_keys",
     kRotary,
     {change("WarpKeyScales::WarpKeyScales", "keys_ origin", "params.k_scale +", "params.v_scale +")},
     "wrong result"},
    {"scales_of_the_first_sequence_for_all",
     kRotary,
     {change("WarpKeyScales::origin", "kPadded", "batch * strides.batch", "0")},
     "wrong result"},
    {"scores_not_scaled_by_keys", kRotary, {drop("scale_by_keys", "factor scores")}, "wrong result"},
    {"exponents_not_shifted", kRotary, {drop("SoftmaxThread::run", "shift_by_values #1")}, "wrong result"},
    {"sums_not_weighed", kRotary, {change("add_to_sums", "fmaf", "weight", "1.f")}, "wrong result"},
    {"scales_of_the_first_tile_for_all", kRotary, {drop("WarpKeyScales::step", "key_ step_ #1")}, "wrong result"},
    {"sink_counted_ahead_of_keys_too",
     kRotary,
     {change("SoftmaxThread::run", "kSinks", "&& !kTokenScales", "")},
     "wrong result"},
    {"last_sink_not_lifted",
     kRotary,
     {change("LaneSoftmax::add_last_sink", "fmaf", "(kNarrow ? static_cast<float>(1 << static_cast<int>(kLift)) : 1.f)",
             "1.f")},
     "wrong result"},
    {"output_kept_as_it_was_before_its_sink",
     kRotary,
     {change("SoftmaxThread::store", "inverse", "* kept", "")},
     "wrong result"},
};

class BlackwellOperandFaults : public BlackwellFaults {};

TEST_P(BlackwellOperandFaults, AreFound) {
  const test::Findings findings = findings_of(GetParam());
  EXPECT_THAT(findings.found, testing::Contains(GetParam().found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, BlackwellOperandFaults, testing::ValuesIn(kFaults), name_of_fault);

class BlackwellOperandForms : public BlackwellFaults {};

TEST_F(BlackwellOperandForms, AreCleanAsWritten) {
  for (const BlackwellForm form : {kNarrow, kRotary}) {
    const test::Findings findings = findings_of({"as_written", form, {}, ""});
    EXPECT_THAT(findings.found, testing::IsEmpty()) << findings.text;
    EXPECT_EQ(findings.text, "");
  }
}

}  // namespace
}  // namespace kernelwright::blackwell_operand_faults_test
