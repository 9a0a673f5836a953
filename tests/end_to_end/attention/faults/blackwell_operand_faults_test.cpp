// Deliberate mistakes in what attention_sm100 does for operands of 8 bits, rotary parts and scales of tokens. Each is
// found on the emulator. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright {
namespace {

using enum BlackwellForm;

const BlackwellFault kFaults[] = {
    // ---- 8 bits ----
    {"format_of_the_other_8_bits",
     kNarrow,
     {{"ptx::MmaElement::kF16 : ptx::MmaElement::kE4m3", "ptx::MmaElement::kF16 : ptx::MmaElement::kE5m2"}},
     "wrong result"},
    {"kind_of_16_bits", kNarrow, {{"is_fp8 ? ptx::MmaKind::kF8f6f4", "is_fp8 ? ptx::MmaKind::kF16"}}, "out of bounds"},
    {"values_read_as_keys_are",
     kNarrow,
     {{"Type::template instruction<kCtas>(kColumns, true)", "Type::template instruction<kCtas>(kColumns, false)"}},
     "race"},
    {"probabilities_of_16_bits",
     kNarrow,
     {{"tile::pack_word<spec::kQDType>(scores, first", "tile::pack_word<DType::kBf16>(scores, first"}},
     "wrong result"},
    {"probabilities_in_columns_of_16_bits",
     kNarrow,
     {{"tcgen05_st(scores_ + first * kElementBytes / 4, words)", "tcgen05_st(scores_ + first / 2, words)"}},
     "wrong result"},
    {"products_from_columns_of_16_bits",
     kNarrow,
     {{"probabilities + key * Type::bytes / 4", "probabilities + key / 2"}},
     "wrong result"},
    {"values_by_steps_of_16_keys",
     kNarrow,
     {{"b + kV.step_offset((key - kShareFirst) / Type::step)",
       "b + kV.step_offset((key - kShareFirst) / Type::step) / 2"}},
     "wrong result"},
    {"parts_of_a_tile_that_are_no_whole_steps",
     kNarrow,
     {{"kFirstKeys = spec::kBlockN * 3 / 4 / kKeyStep * kKeyStep;", "kFirstKeys = spec::kBlockN * 3 / 4;"}},
     "refused"},
    {"exponentials_not_lifted",
     kNarrow,
     {{"return kNarrow ? fmaf(-maximum, scale, kLift) : -maximum * scale;", "return -maximum * scale;"}},
     "wrong result"},
    {"exponentials_lifted_past_what_8_bits_hold",
     kNarrow,
     {{"kLift = kNarrow ? 8 - kSlack : 0;", "kLift = kNarrow ? 11 - kSlack : 0;"}},
     "wrong result"},
    {"sum_told_with_its_lift",
     kNarrow,
     {{"(ptx::lg2_approx_ftz(sum) - kLift)", "ptx::lg2_approx_ftz(sum)"}},
     "wrong result"},
    {"sink_not_lifted",
     kNarrow,
     {{"sum = kNarrow ? static_cast<float>(1 << static_cast<int>(kLift)) : 1;", "sum = 1;"}},
     "wrong result"},
    {"scale_of_the_first_head_for_all",
     kNarrow,
     {{"scales[spec::kScales == ScaleKind::kPerHead ? work_.item.row_map.kv_head() : 0]", "scales[0]"}},
     "wrong result"},
    {"values_not_scaled", kNarrow, {{"softmax_.inverse() * value_scale();", "softmax_.inverse();"}}, "wrong result"},
    {"scores_not_scaled",
     kNarrow,
     {{"if constexpr (!kTokenScales) return scale_of(params_.k_scale);", "if constexpr (!kTokenScales) return 1;"}},
     "wrong result"},
    // ---- rotary parts ----
    {"rotary_product_left_out", kRotary, {{"if (step < kRopeSteps)", "if (false)"}}, "wrong result"},
    {"rotary_product_overwrites",
     kRotary,
     {{"query, key, kRopeInstruction, 1);", "query, key, kRopeInstruction, step > 0);"}},
     "wrong result"},
    {"rotary_product_with_the_instruction_of_8_bits",
     kRotary,
     {{"query, key, kRopeInstruction, 1);", "query, key, kInstruction, 1);"}},
     "wrong result"},
    {"rotary_product_of_the_kind_of_8_bits",
     kRotary,
     {{"ptx::tcgen05_mma_ss<RopeType::kind, kCtas>", "ptx::tcgen05_mma_ss<Type::kind, kCtas>"}},
     "wrong result"},
    {"half_of_the_rotary_steps",
     kRotary,
     {{"kRopeSteps = (kRope + RopeType::step - 1) / RopeType::step;", "kRopeSteps = kRope / RopeType::step / 2;"}},
     "wrong result"},
    {"rotary_queries_not_expected",
     kRotary,
     {{"kCtas * kSlabsQk * kQuerySlabBytes", "kCtas * kSlabsPlain * kQuerySlabBytes"}},
     "race"},
    {"rotary_columns_counted_from_the_heads_first",
     kRotary,
     {{"(slab - kSlabsPlain) * kRopeSlabColumns", "slab * kRopeSlabColumns"}},
     "wrong result"},
    {"rotary_part_from_the_other_map", kRotary, {{"return {&maps.rope,", "return {&maps.plain,"}}, "wrong result"},
    {"all_slabs_from_the_rotary_map", kRotary, {{"if (slab < kSlabsPlain)", "if (false)"}}, "wrong result"},
    {"rotary_slab_not_loaded",
     kRotary,
     {{"load_keys<kSlabsQk, Loads<kPair>::Keys>", "load_keys<kSlabsPlain, Loads<kPair>::Keys>"}},
     "deadlock"},
    // ---- scales of tokens ----
    {"scales_not_waited_for",
     kRotary,
     {{"ptx::mbarrier_wait_parity(shared_.barrier(kBarriers.scale_full + slot), parity_of(step / "
       "contract::kScaleSlots));",
       ""}},
     "race"},
    {"scales_waited_for_with_the_other_parity",
     kRotary,
     {{"parity_of(step / contract::kScaleSlots)", "parity_of(step / contract::kScaleSlots + 1)"}},
     "deadlock"},
    {"scales_of_the_next_slot",
     kRotary,
     {{"ptx::ld_shared_v4(shared_.key_scales(slot) + i * 4)",
       "ptx::ld_shared_v4(shared_.key_scales((slot + 1) % contract::kScaleSlots) + i * 4)"}},
     "race"},
    {"scales_told_of_before_all_lanes_wrote",
     kRotary,
     {{"scale); } __syncwarp(); if (lane == 0)", "scale); } if (lane == 0)"}},
     "race"},
    {"scales_not_told_of",
     kRotary,
     {{"if (lane == 0) ptx::mbarrier_arrive(shared.barrier(kBarriers.scale_full + slot));", ""}},
     "deadlock"},
    {"scales_written_over_those_still_needed",
     kRotary,
     {{"ptx::mbarrier_wait_parity(shared.barrier(kBarriers.scale_empty + slot), parity_of(lap) ^ 1);", ""}},
     "deadlock"},
    {"scales_let_go_of_before_all_lanes_read",
     kRotary,
     {{"__uint_as_float(scales.word[k]); } __syncwarp();", "__uint_as_float(scales.word[k]); }"}},
     "race"},
    {"scales_not_let_go_of",
     kRotary,
     {{"if (lane_ == 0) ptx::mbarrier_arrive(shared_.barrier(kBarriers.scale_empty + slot));", ""}},
     "deadlock"},
    {"scales_let_go_of_by_one_query_tile",
     kRotary,
     {{"kBarriers.scale_empty + slot), (kTwoQueryTiles ? 2 : 1) * kRoleWarps)",
       "kBarriers.scale_empty + slot), kRoleWarps)"}},
     "deadlock"},
    {"scales_in_the_order_of_keys",
     kRotary,
     {{"const int first_key = work.tiles.origin + (tiles.end - 1 - j) * spec::kBlockN;",
       "const int first_key = work.tiles.origin + (tiles.begin + j) * spec::kBlockN;"}},
     "wrong result"},
    {"scales_of_keys_for_queries", kRotary, {{"params_.q_scale[(batch", "params_.k_scale[(batch"}}, "wrong result"},
    {"scales_of_queries_for_keys", kRotary, {{"params.k_scale[at]", "params.q_scale[key]"}}, "wrong result"},
    {"scales_of_the_first_sequence_for_all",
     kRotary,
     {{"token = static_cast<int64_t>(work.coord.batch) * params.kv_len + key;", "token = key;"}},
     "wrong result"},
    {"scores_not_scaled_by_keys",
     kRotary,
     {{"if constexpr (kTokenScales) scale_by_keys(scores, key_tile_of(tile_, n));", ""}},
     "deadlock"},
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
}  // namespace kernelwright
