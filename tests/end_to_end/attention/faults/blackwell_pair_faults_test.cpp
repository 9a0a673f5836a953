// Deliberate mistakes in what a pair of CTAs of attention_sm100 shares: products, halves of operands, barriers of one
// CTA on which both arrive, and the pair's own beginning and end. Each is found on the emulator. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright {
namespace {

constexpr BlackwellForm kPair = BlackwellForm::kPair;

const BlackwellFault kFaults[] = {
    // ---- who multiplies ----
    {"both_multiply",
     kPair,
     {{"if (cluster_rank() == kLeader && ptx::elect_one()) {", "if (ptx::elect_one()) {"}},
     "deadlock"},
    {"nobody_multiplies",
     kPair,
     {{"if (cluster_rank() == kLeader && ptx::elect_one()) {", "if (false) {"}},
     "deadlock"},
    {"products_of_128_rows",
     kPair,
     {{"descriptor.m = kCtas * kProductRows", "descriptor.m = kProductRows"}},
     "read of unwritten memory"},
    {"scores_by_one_cta",
     kPair,
     {{"ptx::tcgen05_mma_ss<Type::kind, kCtas>", "ptx::tcgen05_mma_ss<Type::kind, 1>"}},
     "fault"},
    {"outputs_by_one_cta",
     kPair,
     {{"ptx::tcgen05_mma_ts<Type::kind, kCtas>", "ptx::tcgen05_mma_ts<Type::kind, 1>"}},
     "fault"},
    {"slabs_of_all_keys_in_each_cta", kPair, {{"kKeyRows = kKeys / kCtas,", "kKeyRows = kKeys,"}}, "race"},
    // ---- commits ----
    {"first_cta_alone_told_of_products",
     kPair,
     {{"ptx::tcgen05_commit_multicast<kCtas>(barrier, (1 << kCtas) - 1);",
       "ptx::tcgen05_commit_multicast<kCtas>(barrier, 1);"}},
     "deadlock"},
    {"second_cta_alone_told_of_products",
     kPair,
     {{"ptx::tcgen05_commit_multicast<kCtas>(barrier, (1 << kCtas) - 1);",
       "ptx::tcgen05_commit_multicast<kCtas>(barrier, 2);"}},
     "deadlock"},
    {"products_committed_for_one_cta",
     kPair,
     {{"ptx::tcgen05_commit_multicast<kCtas>(barrier, (1 << kCtas) - 1);", "ptx::tcgen05_commit(barrier);"}},
     "fault"},
    {"commit_of_a_group_of_one",
     kPair,
     {{"ptx::tcgen05_commit_multicast<kCtas>(barrier, (1 << kCtas) - 1);",
       "ptx::tcgen05_commit_multicast<1>(barrier, (1 << kCtas) - 1);"}},
     "fault"},
    // ---- barriers of the first CTA ----
    {"own_barrier_in_place_of_the_first_ctas",
     kPair,
     {{"ptx::mbarrier_arrive_cluster(barrier, rank);", "ptx::mbarrier_arrive(barrier);"}},
     "deadlock"},
    {"probabilities_told_on_the_own_barrier",
     kPair,
     {{"ptx::mbarrier_arrive_remote(barrier, kLeader);", "ptx::mbarrier_arrive(barrier);"}},
     "deadlock"},
    {"other_ctas_barrier",
     kPair,
     {{"ptx::mbarrier_arrive_cluster(barrier, rank);", "ptx::mbarrier_arrive_cluster(barrier, 1 - rank);"}},
     "deadlock"},
    {"probabilities_of_one_cta_counted", kPair, {{"kCtas * 2 * kRoleWarps", "2 * kRoleWarps"}}, "deadlock"},
    {"last_probabilities_of_one_cta_counted", kPair, {{"kCtas * kRoleWarps", "kRoleWarps"}}, "deadlock"},
    {"clean_values_of_one_cta_counted",
     kPair,
     {{"shared.barrier(kBarriers.values_clean), kCtas)", "shared.barrier(kBarriers.values_clean), 1)"}},
     "deadlock"},
    {"values_cleaned_in_the_first_cta_alone",
     kPair,
     {{"for (uint32_t rank = 0; rank < kCtas; ++rank) arrive_at(shared_.barrier(kBarriers.values_landed), rank);",
       "arrive_at(shared_.barrier(kBarriers.values_landed), kLeader);"}},
     "deadlock"},
    // ---- loads ----
    {"bytes_of_one_cta_expected",
     kPair,
     {{"get_tile<kPart>(cluster_rank() == kLeader, kCtas * Ring::tile_bytes)",
       "get_tile<kPart>(cluster_rank() == kLeader, Ring::tile_bytes)"}},
     "mbarrier misuse"},
    {"bytes_expected_by_both",
     kPair,
     {{"get_tile<kPart>(cluster_rank() == kLeader, kCtas * Ring::tile_bytes)",
       "get_tile<kPart>(true, kCtas * Ring::tile_bytes)"}},
     "mbarrier misuse"},
    {"queries_of_one_cta_expected",
     kPair,
     {{"ptx::mbarrier_arrive_expect_tx(full, kCtas * kSlabsQk * kQuerySlabBytes)",
       "ptx::mbarrier_arrive_expect_tx(full, kSlabsQk * kQuerySlabBytes)"}},
     "race"},
    {"tiles_told_of_on_the_own_barrier", kPair, {{"return {leaders(own.full), own.smem};", "return own;"}}, "deadlock"},
    {"queries_told_of_on_the_own_barrier",
     kPair,
     {{"tile * kTileRows, leaders(full));", "tile * kTileRows, full);"}},
     "deadlock"},
    {"same_half_of_the_keys_in_both",
     kPair,
     {{"return static_cast<int>(cluster_rank()) * kRows;", "return 0;"}},
     "wrong result"},
    {"halves_of_the_keys_exchanged",
     kPair,
     {{"return static_cast<int>(cluster_rank()) * kRows;", "return (1 - static_cast<int>(cluster_rank())) * kRows;"}},
     "wrong result"},
    {"same_half_of_the_columns_in_both",
     kPair,
     {{"return static_cast<int>(cluster_rank()) * (contract::blackwell_output_columns(kShape) / kCtas);", "return 0;"}},
     "wrong result"},
    // ---- the pair's beginning and end ----
    {"barriers_of_the_other_cta_used_before_they_are_made",
     kPair,
     {{"ptx::prefetch_tensormap(params.v); } } sync_ctas();",
       "ptx::prefetch_tensormap(params.v); } } __syncthreads();"}},
     "mbarrier misuse"},
    {"allocated_for_one_cta", kPair, {{"ptx::tcgen05_alloc<kCtas>", "ptx::tcgen05_alloc<1>"}}, "fault"},
    {"freed_for_one_cta", kPair, {{"ptx::tcgen05_dealloc<kCtas>", "ptx::tcgen05_dealloc<1>"}}, "tensor memory"},
    {"drained_by_nobody", kPair, {{"rings.drain(); // no commit", "// no commit"}}, "work outstanding at exit"},
};

class BlackwellPairFaults : public BlackwellFaults {};

TEST_P(BlackwellPairFaults, AreFound) {
  const test::Findings findings = findings_of(GetParam());
  EXPECT_THAT(findings.found, testing::Contains(GetParam().found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, BlackwellPairFaults, testing::ValuesIn(kFaults), name_of_fault);

}  // namespace
}  // namespace kernelwright
