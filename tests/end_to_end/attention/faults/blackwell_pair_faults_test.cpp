// Deliberate mistakes in what a pair of CTAs of attention_sm100 shares: products, halves of operands, barriers of one
// CTA on which both arrive, and the beginning and end of the pair. The emulator must find each. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright::blackwell_pair_faults_test {
namespace {

constexpr BlackwellForm kPair = BlackwellForm::kPair;

const BlackwellFault kFaults[] = {
    // ---- the multiplying CTA ----
    {"both_multiply",
     kPair,
     {change("run_other_role", "cluster_rank", "cluster_rank() == kLeader &&", "")},
     "deadlock"},
    {"nobody_multiplies",
     kPair,
     {change("run_other_role", "cluster_rank", "cluster_rank() == kLeader && ptx::elect_one()", "false")},
     "deadlock"},
    {"products_of_128_rows", kPair, {change("instruction", "kProductRows", "kCtas *", "")}, "read of unwritten memory"},
    {"scores_by_one_cta", kPair, {change("ScoreProduct::issue", "kInstruction", "kCtas", "1")}, "fault"},
    {"outputs_by_one_cta", kPair, {change("OutputProduct::issue", "step_offset", "kCtas", "1")}, "fault"},
    {"slabs_of_all_keys_in_each_cta", kPair, {change("ScoreProduct::issue", "kKeyRows kFirst", "/ kCtas", "")}, "race"},
    // ---- commits ----
    {"first_cta_alone_told_of_products",
     kPair,
     {change("commit", "tcgen05_commit_multicast", "(1 << kCtas) -", "")},
     "deadlock"},
    {"second_cta_alone_told_of_products",
     kPair,
     {change("commit", "tcgen05_commit_multicast", "(1 << kCtas) - 1", "2")},
     "deadlock"},
    {"products_committed_for_one_cta",
     kPair,
     {change("commit", "tcgen05_commit_multicast", "tcgen05_commit_multicast<kCtas>(barrier, (1 << kCtas) - 1)",
             "tcgen05_commit(barrier)")},
     "fault"},
    {"commit_of_a_group_of_one", kPair, {change("commit", "tcgen05_commit_multicast", "kCtas>", "1>")}, "fault"},
    // ---- barriers of the first CTA ----
    {"own_barrier_in_place_of_the_first_ctas",
     kPair,
     {change("PhasedBarrier::publish_at", "mbarrier_arrive_cluster", "ptx::mbarrier_arrive_cluster(address, rank)",
             "arrive()")},
     "deadlock"},
    {"probabilities_told_on_the_own_barrier",
     kPair,
     {change("PhasedBarrier::arrive_at", "mbarrier_arrive_remote", "ptx::mbarrier_arrive_remote(address, rank)",
             "arrive()")},
     "deadlock"},
    {"other_ctas_barrier",
     kPair,
     {change("PhasedBarrier::publish_at", "mbarrier_arrive_cluster", "rank", "1 - rank")},
     "deadlock"},
    {"probabilities_of_one_cta_counted",
     kPair,
     {change("Shared::probability_ready", "Barrier", "kCtas *", "")},
     "deadlock"},
    {"last_probabilities_of_one_cta_counted",
     kPair,
     {change("Shared::probability_rest", "Barrier", "kCtas *", "")},
     "deadlock"},
    {"clean_values_of_one_cta_counted", kPair, {change("Shared::values_clean", "Barrier", "kCtas", "1")}, "deadlock"},
    {"values_cleaned_in_the_first_cta_alone",
     kPair,
     {change("take_values", "for rank", "rank < kCtas", "rank < 1")},
     "deadlock"},
    // ---- loads ----
    {"bytes_of_one_cta_expected",
     kPair,
     {change("PairBoxes::target", "cluster_rank", "kCtas *", "")},
     "mbarrier misuse"},
    {"bytes_expected_by_both",
     kPair,
     {change("PairBoxes::target", "cluster_rank", "cluster_rank() == kLeader", "true")},
     "mbarrier misuse"},
    {"queries_of_one_cta_expected", kPair, {change("load_query_tile", "expect_bytes", "kCtas *", "")}, "race"},
    {"tiles_told_of_on_the_own_barrier",
     kPair,
     {change("PairBoxes::target", "leaders", "{leaders(own.full), own.smem}", "own")},
     "deadlock"},
    {"queries_told_of_on_the_own_barrier",
     kPair,
     {change("load_query_tile", "queries", "leaders(full.address)", "full.address")},
     "deadlock"},
    {"same_half_of_the_keys_in_both",
     kPair,
     {change("HalfOfKeys::first_row", "cluster_rank", "static_cast<int>(cluster_rank()) * kRows", "0")},
     "wrong result"},
    {"halves_of_the_keys_exchanged",
     kPair,
     {change("HalfOfKeys::first_row", "cluster_rank", "static_cast<int>(cluster_rank())",
             "(1 - static_cast<int>(cluster_rank()))")},
     "wrong result"},
    {"same_half_of_the_columns_in_both",
     kPair,
     {change("HalfOfColumns::first_column", "cluster_rank",
             "static_cast<int>(cluster_rank()) * (contract::blackwell_output_columns(kShape) / kCtas)", "0")},
     "wrong result"},
    // ---- the pair's beginning and end ----
    {"barriers_of_the_other_cta_used_before_they_are_made",
     kPair,
     {change("KERNELWRIGHT_ENTRY", "sync_ctas #2", "ptx::sync_ctas<kCtas>", "__syncthreads")},
     "mbarrier misuse"},
    {"allocated_for_one_cta", kPair, {change("set_up", "tcgen05_alloc", "kCtas", "1")}, "fault"},
    {"freed_for_one_cta", kPair, {change("KERNELWRIGHT_ENTRY", "tcgen05_dealloc", "kCtas", "1")}, "tensor memory"},
    {"drained_by_nobody", kPair, {drop("load", "drain")}, "work outstanding at exit"},
};

class BlackwellPairFaults : public BlackwellFaults {};

TEST_P(BlackwellPairFaults, AreFound) {
  const test::Findings findings = findings_of(GetParam());
  EXPECT_THAT(findings.found, testing::Contains(GetParam().found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, BlackwellPairFaults, testing::ValuesIn(kFaults), name_of_fault);

}  // namespace
}  // namespace kernelwright::blackwell_pair_faults_test
