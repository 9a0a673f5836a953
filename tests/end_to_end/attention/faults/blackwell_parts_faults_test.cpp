// Deliberate mistakes in how CTAs of attention_sm100 share the keys of an item: through the workspace, and through the
// shared memory of a cluster. The emulator must find each. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright::blackwell_parts_faults_test {
namespace {

using enum BlackwellForm;

const BlackwellFault kFaults[] = {
    // ---- which CTA has which keys ----
    {"each_part_of_the_workspace_has_all_keys", kParts, {drop("Work::Work", "num_splits")}, "wrong result"},
    {"parts_of_the_workspace_in_one_place",
     kParts,
     {change("part_offset", "partial_row", "+ item.coord.split * WorkItem::partial_rows(params)", "")},
     "wrong result"},
    {"each_part_of_a_cluster_has_the_first_keys",
     kCluster,
     {change("Work::Work", "take_part kClusterParts", "item.coord.split", "0")},
     "wrong result"},
    {"sink_in_every_part",
     kParts,
     {change("SoftmaxThread::run", "split", "&& work_.item.coord.split == 0", "")},
     "wrong result"},
    {"sink_in_every_part_of_a_cluster",
     kCluster,
     {change("SoftmaxThread::run", "split", "&& work_.item.coord.split == 0", "")},
     "wrong result"},
    // ---- a part on its way to the workspace ----
    {"natural_logarithm_of_a_part",
     kParts,
     {change("store_part_lse", "part_offset", "(scale_)", "(scale_) * policy::kLn2")},
     "wrong result"},
    {"slab_stored_before_it_is_written", kParts, {drop("store_part_slabs", "__syncwarp #1")}, "race between lanes"},
    {"slab_written_before_the_one_before_is_stored",
     kParts,
     {drop("store_part_slabs", "__syncwarp #2")},
     "race between lanes"},
    {"both_warpgroups_by_way_of_one_slab",
     kParts,
     {change("merge_and_store", "store_part_slabs", "tile_ == 0 ? shared_.queries(0) : shared_.keys()",
             "shared_.queries(0)")},
     "race"},
    {"slab_read_without_its_swizzle",
     kParts,
     {change("store_part", "st_global_v4", "(slab, slab_row + r, lane % 8)",
             "(slab, 0, lane % 8) + (slab_row + r) * kRowBytes")},
     "wrong result"},
    {"last_slab_forgotten",
     kParts,
     {change("", "kPartSlabs kHeadDimV", "(spec::kHeadDimV + kPartColumns - 1) / kPartColumns",
             "spec::kHeadDimV / 64")},
     "wrong result"},
    {"half_of_the_slabs_by_both",
     kParts,
     {change("merge_and_store", "store_part_slabs", "tile_ * kHalf, tile_ == 0 ? kHalf : kPartSlabs", "0, kHalf")},
     "wrong result"},
    // ---- the last part ----
    {"counter_not_opened", kParts, {drop("SoftmaxThread::run", "last_arrival")}, "wrong result"},
    {"nobody_merges",
     kParts,
     {change("merge_if_last", "ld_shared_u32", "ptx::ld_shared_u32(shared_.arrived_last()) != 0", "false")},
     "wrong result"},
    {"merged_one_part_early",
     kParts,
     {change("merge_if_last", "st_shared_u32", "num_splits", "num_splits - 1")},
     "wrong result"},
    {"answer_read_before_it_is_there", kParts, {drop("merge_if_last", "bar_sync #2")}, "race"},
    {"a_part_without_keys_does_not_arrive", kParts, {drop("end_without_keys_in_memory", "arrive")}, "wrong result"},
    {"a_part_without_keys_is_not_written", kParts, {drop("end_without_keys_in_memory", "fill_part")}, "wrong result"},
    // ---- a cluster ----
    {"parts_read_before_they_are_published",
     kCluster,
     {drop("SoftmaxThread::run", "meet_cluster"), drop("KERNELWRIGHT_ENTRY", "meet_cluster #1"),
      drop("KERNELWRIGHT_ENTRY", "meet_cluster #2"), drop("end_without_keys_in_cluster", "meet_cluster #1")},
     "race"},
    {"cta_gone_while_others_read_its_part",
     kCluster,
     {change("KERNELWRIGHT_ENTRY", "meet_cluster #3", "meet_cluster", "__syncthreads"),
      drop("end_without_keys_in_cluster", "meet_cluster #2")},
     "work outstanding at exit"},
    {"sums_not_published", kCluster, {drop("publish", "st_shared_f32 sum")}, "read of unwritten memory"},
    {"maxima_not_published", kCluster, {drop("publish", "st_shared_f32 maximum")}, "read of unwritten memory"},
    {"a_part_without_keys_publishes_nothing",
     kCluster,
     {drop("end_without_keys_in_cluster", "publish")},
     "read of unwritten memory"},
    {"a_part_without_keys_is_read",
     kCluster,
     {change("merge_in_cluster", "column weights", "weights[part] != 0 &&", "")},
     "read of unwritten memory"},
    {"first_ctas_part_for_all",
     kCluster,
     {change("merge_in_cluster", "ld_shared_cluster_v4", "static_cast<uint32_t>(part)", "0u")},
     "wrong result"},
    {"parts_weighed_by_their_maxima_alone",
     kCluster,
     {change("merge_in_cluster", "ex2_approx_ftz", "* sums[part]", "")},
     "wrong result"},
    {"rows_of_the_first_cta_by_all",
     kCluster,
     {change("merge_in_cluster", "coord", "item.coord.split * kSoftmaxWarps +", "")},
     "wrong result"},
    {"slabs_of_a_part_over_each_other",
     kCluster,
     {change("merge_and_store", "put_part_slab", "slab *", "slab / 2 *")},
     "wrong result"},
    {"part_put_over_queries_of_products_that_run", kCluster, {drop("merge_and_store", "output_full")}, "race"},
};

class BlackwellPartsFaults : public BlackwellFaults {};

TEST_P(BlackwellPartsFaults, AreFound) {
  const test::Findings findings = findings_of(GetParam());
  EXPECT_THAT(findings.found, testing::Contains(GetParam().found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, BlackwellPartsFaults, testing::ValuesIn(kFaults), name_of_fault);

class BlackwellPartsForms : public BlackwellFaults {};

TEST_F(BlackwellPartsForms, AreCleanAsWritten) {
  for (const BlackwellForm form : {kParts, kCluster}) {
    const test::Findings findings = findings_of({"as_written", form, {}, ""});
    EXPECT_THAT(findings.found, testing::IsEmpty()) << findings.text;
    EXPECT_EQ(findings.text, "");
  }
}

}  // namespace
}  // namespace kernelwright::blackwell_parts_faults_test
