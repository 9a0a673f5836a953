// Deliberate mistakes in how a CTA of attention_sm100 goes on from item to item, and in how it gathers rows of small
// pages. Each is found on the emulator. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright {
namespace {

using enum BlackwellForm;

const BlackwellFault kFaults[] = {
    // ---- the way to the next item ----
    {"nobody_asks", kQueued, {{"if (kQueued && j == tiles.end - tiles.begin - 1) items.ask();", ""}}, "deadlock"},
    {"asked_for_every_tile",
     kQueued,
     {{"if (kQueued && j == tiles.end - tiles.begin - 1) items.ask();", "items.ask();"}},
     "deadlock"},
    {"answer_not_waited_for",
     kQueued,
     {{"ptx::mbarrier_wait_parity(full(), slot_.phase);", ""}},
     "read of unwritten memory"},
    {"answer_written_over_one_that_is_still_needed",
     kQueued,
     {{"ptx::mbarrier_wait_parity(empty(), slot_.phase ^ 1);", ""},
      {"kBlackwellItemSlots = 2;", "kBlackwellItemSlots = 1;"}},  // or nobody would be late for two items
     "mbarrier misuse"},
    {"answer_read_by_one_warp_fewer",
     kQueued,
     {{"mbarrier_init(shared.barrier(kBarriers.item_empty + slot), contract::kBlackwellThreads / 32)",
       "mbarrier_init(shared.barrier(kBarriers.item_empty + slot), contract::kBlackwellThreads / 32 - 1)"}},
     "work outstanding at exit"},
    {"answer_not_expected",
     kQueued,
     {{"ptx::mbarrier_arrive_expect_tx(full(), ptx::kCancelResponseBytes);", "ptx::mbarrier_arrive(full());"}},
     "race"},
    // ---- queries and outputs ----
    {"queries_over_an_output_that_has_not_left",
     kQueued,
     {{"if constexpr (kQueued) ptx::mbarrier_wait_parity(shared.barrier(kBarriers.query_empty + tile), parity_of(lap + "
       "1));",
       ""}},
     "race"},
    {"queries_a_lap_early",
     kQueued,
     {{"shared.barrier(kBarriers.query_empty + tile), parity_of(lap + 1)",
       "shared.barrier(kBarriers.query_empty + tile), parity_of(lap)"}},
     "deadlock"},
    {"outputs_told_of_by_nobody",
     kQueued,
     {{"if (lane_ == 0) ptx::mbarrier_arrive(shared_.barrier(kBarriers.query_empty + slot));", ""}},
     "deadlock"},
    {"output_told_of_without_a_proxy_fence",
     kQueued,
     {{"ptx::fence_proxy_async_shared(); __syncwarp(); if (lane_ == 0)", "__syncwarp(); if (lane_ == 0)"}},
     "missing proxy fence"},
    {"output_told_of_by_three_warps", kQueued, {{"(kTwoQueryTiles ? 1 : 2) * kRoleWarps)", "3)"}}, "race"},
    {"output_of_one_query_tile_told_of_by_half",
     kQueuedOne,
     {{"(kTwoQueryTiles ? 1 : 2) * kRoleWarps)", "kRoleWarps)"}},
     "race"},
    {"output_told_of_before_it_has_left",
     kQueued,
     {{"store_passes<0>(columns_of); release_queries(tile_);",
       "release_queries(tile_);\n store_passes<0>(columns_of);"}},
     "race"},
    // ---- phases that run on ----
    {"products_count_phases_of_one_item",
     kQueued,
     {{"before_.add(key_tiles); if constexpr (kQueued) ++items_;", "if constexpr (kQueued) ++items_;"}},
     "deadlock"},
    {"products_count_no_item",
     kQueued,
     {{"before_.add(key_tiles); if constexpr (kQueued) ++items_;", "before_.add(key_tiles);"}},
     "race"},
    {"softmax_counts_no_steps", kQueued, {{"before_.steps += steps;", ";"}}, "deadlock"},
    {"correction_begins_the_next_item_at_once",
     kQueued,
     {{"ptx::mbarrier_wait_parity(shared_.barrier(kBarriers.output_full + tile), parity_of(before_[tile] + steps - "
       "1));",
       ""}},
     "mbarrier misuse"},
    {"correction_counts_a_factor_for_every_step",
     kQueued,
     {{"items_before_.add(min(key_tiles, kTwoQueryTiles ? 1 : 2));", ""}},
     "deadlock"},
    {"cleaned_where_the_first_item_had_them",
     kQueued,
     {{"before_ = (before_ + (kSharedRing ? 2 : 1) * key_tiles) % spec::kNumKvStages;", "before_ = 0;"}},
     "race"},
    {"cleaned_values_counted_by_nobody_who_multiplies",
     kQueued,
     {{"parity_of(cleaned_)); if constexpr (kQueued) ++cleaned_;", "parity_of(cleaned_));"}},
     "race"},
    // ---- rows that are gathered ----
    {"gathered_rows_read_without_a_proxy_fence",
     kGathered,
     {{"if constexpr (kGathersKv) ptx::fence_proxy_async_shared();", ""}},
     "missing proxy fence"},
    {"gathered_rows_of_one_warp_waited_for",
     kGathered,
     {{"kGathersKv ? kGatherThreads : 1, 1);", "kGathersKv ? kGatherThreads / 2 : 1, 1);"}},
     "deadlock"},
    {"values_of_the_keys_of_another_step",
     kGathered,
     {{"rows.gather_values(values, static_cast<uint32_t>(j));",
       "rows.gather_values(values, static_cast<uint32_t>(j + 1));"}},
     "read of unwritten memory"},
    {"rows_looked_up_while_lanes_still_read_them",
     kGathered,
     {{"__syncwarp(); // all lanes have read what the tables held", ""}},
     "race between lanes"},
    {"rows_read_before_they_are_looked_up",
     kGathered,
     {{"ptx::st_shared_u64(value_table(step) + entry, v); } __syncwarp();",
       "ptx::st_shared_u64(value_table(step) + entry, v); }"}},
     "race between lanes"},
};

class BlackwellWalkFaults : public BlackwellFaults {};

TEST_P(BlackwellWalkFaults, AreFound) {
  const test::Findings findings = findings_of(GetParam());
  EXPECT_THAT(findings.found, testing::Contains(GetParam().found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, BlackwellWalkFaults, testing::ValuesIn(kFaults), name_of_fault);

class BlackwellWalkForms : public BlackwellFaults {};

TEST_F(BlackwellWalkForms, AreCleanAsWritten) {
  for (const BlackwellForm form : {kQueued, kQueuedOne, kGathered}) {
    const test::Findings findings = findings_of({"as_written", form, {}, ""});
    EXPECT_THAT(findings.found, testing::IsEmpty()) << findings.text;
    EXPECT_EQ(findings.text, "");
  }
}

}  // namespace
}  // namespace kernelwright
