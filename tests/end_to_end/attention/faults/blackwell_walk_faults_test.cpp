// Deliberate mistakes in how a CTA of attention_sm100 goes from item to item, and in how it gathers rows of small
// pages. The emulator must find each. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright::blackwell_walk_faults_test {
namespace {

using enum BlackwellForm;

const BlackwellFault kFaults[] = {
    // ---- the way to the next item ----
    {"nobody_asks", kQueued, {drop("load", "ask #2")}, "deadlock"},
    {"asked_for_every_tile",
     kQueued,
     {change("load", "kQueued tiles", "if (kQueued && j == tiles.end - tiles.begin - 1)", "")},
     "deadlock"},
    {"answer_not_waited_for", kQueued, {drop("LaunchQueue::next", "item_full")}, "read of unwritten memory"},
    {"answer_written_over_one_that_is_still_needed",
     kQueued,
     {drop("ItemWalk::ask", "await_readers"),
      change("", "kBlackwellItemSlots", "2", "1")},  // otherwise no CTA would be late for two items
     "mbarrier misuse"},
    {"answer_read_by_one_warp_fewer",
     kQueued,
     {change("Shared::item_empty", "Barrier", "32", "32 - 1")},
     "work outstanding at exit"},
    {"answer_not_expected",
     kQueued,
     {change("expect_answer", "item_full", "expect_bytes(ptx::kCancelResponseBytes)", "arrive()")},
     "race"},
    // ---- queries and outputs ----
    {"queries_over_an_output_that_has_not_left", kQueued, {drop("load_query_tile", "query_empty")}, "race"},
    {"queries_a_lap_early", kQueued, {change("load_query_tile", "query_empty", "wait_before", "wait")}, "deadlock"},
    {"outputs_told_of_by_nobody", kQueued, {drop("release_queries", "query_empty")}, "deadlock"},
    {"output_told_of_without_a_proxy_fence",
     kQueued,
     {drop("release_queries", "fence_proxy_async_shared")},
     "missing proxy fence"},
    {"output_told_of_by_three_warps",
     kQueued,
     {change("Shared::query_empty", "Barrier", "(kTwoQueryTiles ? 1 : 2) * kRoleWarps", "3")},
     "race"},
    {"output_of_one_query_tile_told_of_by_half",
     kQueuedOne,
     {change("Shared::query_empty", "Barrier", "(kTwoQueryTiles ? 1 : 2) *", "")},
     "race"},
    {"output_told_of_before_it_has_left",
     kQueued,
     {drop("SoftmaxThread::store", "release_queries"),
      before("SoftmaxThread::store", "store_passes", "release_queries(tile_);")},
     "race"},
    // ---- phases that run on ----
    {"products_count_phases_of_one_item", kQueued, {drop("Multiplier::run", "add")}, "deadlock"},
    {"products_count_no_item", kQueued, {drop("Multiplier::run", "items_ #2")}, "race"},
    {"softmax_counts_no_steps", kQueued, {drop("SoftmaxThread::run", "before_ #2")}, "deadlock"},
    {"correction_begins_the_next_item_at_once", kQueued, {drop("end", "output_full")}, "mbarrier misuse"},
    {"correction_counts_a_factor_for_every_step", kQueued, {drop("end", "min")}, "deadlock"},
    {"cleaned_where_the_first_item_had_them",
     kQueued,
     {change("Cleaner::run", "before_", "(before_ + (kSharedRing ? 2 : 1) * key_tiles) % spec::kNumKvStages", "0")},
     "race"},
    {"cleaned_values_counted_by_nobody_who_multiplies", kQueued, {drop("take_values", "cleaned_ #2")}, "race"},
    // ---- rows that are gathered ----
    {"gathered_rows_read_without_a_proxy_fence",
     kGathered,
     {drop("take_gathered", "fence_proxy_async_shared")},
     "missing proxy fence"},
    {"gathered_rows_of_one_warp_waited_for",
     kGathered,
     {change("init_barriers", "init", "kGatherThreads", "kGatherThreads / 2")},
     "deadlock"},
    {"values_of_the_keys_of_another_step",
     kGathered,
     {change("gather", "gather_values", "j", "j + 1")},
     "read of unwritten memory"},
    {"rows_looked_up_while_lanes_still_read_them", kGathered, {drop("look_up", "__syncwarp #1")}, "race between lanes"},
    {"rows_read_before_they_are_looked_up", kGathered, {drop("look_up", "__syncwarp #2")}, "race between lanes"},
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
}  // namespace kernelwright::blackwell_walk_faults_test
