// Deliberate mistakes in how CTAs of attention_sm100 share the keys of an item: through the workspace, and through the
// shared memory of a cluster. Each is found on the emulator. Needs NVRTC.
#include "end_to_end/attention/faults/blackwell_faults.h"

namespace kernelwright {
namespace {

using enum BlackwellForm;

const BlackwellFault kFaults[] = {
    // ---- which keys are whose ----
    {"each_part_of_the_workspace_has_all_keys",
     kParts,
     {{"tiles.list.take_part(item.coord.split, params.num_splits);", ";"}},
     "wrong result"},
    {"parts_of_the_workspace_in_one_place",
     kParts,
     {{"+ item.coord.split * WorkItem::partial_rows(params)", ""}},
     "wrong result"},
    {"each_part_of_a_cluster_has_the_first_keys",
     kCluster,
     {{"tiles.list.take_part(item.coord.split, kClusterParts);", "tiles.list.take_part(0, kClusterParts);"}},
     "wrong result"},
    {"sink_in_every_part", kParts, {{"&& work_.item.coord.split == 0)", ")"}}, "wrong result"},
    {"sink_in_every_part_of_a_cluster", kCluster, {{"&& work_.item.coord.split == 0)", ")"}}, "wrong result"},
    // ---- a part on its way to the workspace ----
    {"natural_logarithm_of_a_part",
     kParts,
     {{"params_.partial_lse[part_offset(params_, work_.item, row())] = softmax.log2_sum(scale_);",
       "params_.partial_lse[part_offset(params_, work_.item, row())] = softmax.log2_sum(scale_) * policy::kLn2;"}},
     "wrong result"},
    {"slab_stored_before_it_is_written",
     kParts,
     {{"put_part_slab(index, slab, columns_of); __syncwarp();", "put_part_slab(index, slab, columns_of);"}},
     "race between lanes"},
    {"slab_written_before_the_one_before_is_stored",
     kParts,
     {{"store_part(params_, work_.item, slab, index, warp_ * kWarpRows, first_row(), lane_); __syncwarp();",
       "store_part(params_, work_.item, slab, index, warp_ * kWarpRows, first_row(), lane_);"}},
     "race between lanes"},
    {"both_warpgroups_by_way_of_one_slab",
     kParts,
     {{"tile_ == 0 ? shared_.queries(0) : shared_.keys(), columns_of", "shared_.queries(0), columns_of"}},
     "race"},
    {"slab_read_without_its_swizzle",
     kParts,
     {{"part_piece(slab, slab_row + r, lane % 8)", "part_piece(slab, 0, lane % 8) + (slab_row + r) * kRowBytes"}},
     "wrong result"},
    {"last_slab_forgotten",
     kParts,
     {{"kPartSlabs = (spec::kHeadDimV + kPartColumns - 1) / kPartColumns;", "kPartSlabs = spec::kHeadDimV / 64;"}},
     "wrong result"},
    {"half_of_the_slabs_by_both",
     kParts,
     {{"store_part_slabs(tile_ * kHalf, tile_ == 0 ? kHalf : kPartSlabs,", "store_part_slabs(0, kHalf,"}},
     "wrong result"},
    // ---- who comes last ----
    {"counter_not_opened",
     kParts,
     {{"if (params_.num_splits > 1 && threadIdx.x == 0) last_arrival(params_).open();", ";"}},
     "wrong result"},
    {"nobody_merges", kParts, {{"if (ptx::ld_shared_u32(shared_.arrived_last()) != 0)", "if (false)"}}, "wrong result"},
    {"merged_one_part_early",
     kParts,
     {{"last_arrival(params_).arrive(params_.num_splits)", "last_arrival(params_).arrive(params_.num_splits - 1)"}},
     "wrong result"},
    {"answer_read_before_it_is_there",
     kParts,
     {{"last_arrival(params_).arrive(params_.num_splits)); ptx::bar_sync(kMergeBarrier, 2 * kTileRows);",
       "last_arrival(params_).arrive(params_.num_splits));"}},
     "race"},
    {"a_part_without_keys_does_not_arrive",
     kParts,
     {{"last = last_arrival(params).arrive(params.num_splits);", ";"}},
     "wrong result"},
    {"a_part_without_keys_is_not_written", kParts, {{"fill_part(params, item);", ";"}}, "wrong result"},
    // ---- a cluster ----
    {"parts_read_before_they_are_published",
     kCluster,
     {{"meet_cluster(); merge_in_cluster(params_, shared_,", "merge_in_cluster(params_, shared_,"},
      {"corrector.run(extent(items).tiles); }); if constexpr (kClusterParts > 1) meet_cluster();",
       "corrector.run(extent(items).tiles); });"},
      {"load_only_queries<false>(params, shared); } if constexpr (kClusterParts > 1) meet_cluster();",
       "load_only_queries<false>(params, shared); }"},
      {"ptx::minus_infinity(), 0); meet_cluster();", "ptx::minus_infinity(), 0);"}},
     "race"},
    {"cta_gone_while_others_read_its_part",
     kCluster,
     {{"if constexpr (kClusterParts > 1) meet_cluster(); // nor another CTA this one's shared memory",
       "if constexpr (kClusterParts > 1) __syncthreads();"},
      {"merge_in_cluster(params, shared, item, warp); meet_cluster();",
       "merge_in_cluster(params, shared, item, warp);"}},
     "work outstanding at exit"},
    {"sums_not_published",
     kCluster,
     {{"ptx::st_shared_f32(shared.published(1, row), sum);", ""}},
     "read of unwritten memory"},
    {"maxima_not_published",
     kCluster,
     {{"ptx::st_shared_f32(shared.published(0, row), maximum);", ""}},
     "read of unwritten memory"},
    {"a_part_without_keys_publishes_nothing",
     kCluster,
     {{"if (threadIdx.x < kTileRows) publish(shared, static_cast<int>(threadIdx.x), ptx::minus_infinity(), 0);", ";"}},
     "read of unwritten memory"},
    {"a_part_without_keys_is_read",
     kCluster,
     {{"if (weights[part] != 0 && column", "if (column"}},
     "read of unwritten memory"},
    {"first_ctas_part_for_all",
     kCluster,
     {{"row, lane % 8), static_cast<uint32_t>(part));", "row, lane % 8), 0u);"}},
     "wrong result"},
    {"parts_weighed_by_their_maxima_alone",
     kCluster,
     {{"ptx::ex2_approx_ftz(weights[part] - largest)) * sums[part];",
       "ptx::ex2_approx_ftz(weights[part] - largest));"}},
     "wrong result"},
    {"rows_of_the_first_cta_by_all",
     kCluster,
     {{"int row = item.coord.split * kSoftmaxWarps + warp;", "int row = warp;"}},
     "wrong result"},
    {"slabs_of_a_part_over_each_other",
     kCluster,
     {{"put_part_slab(slab, shared_.queries(0) + slab * kPartSlabBytes, columns_of);",
       "put_part_slab(slab, shared_.queries(0) + slab / 2 * kPartSlabBytes, columns_of);"}},
     "wrong result"},
    {"part_put_over_queries_of_products_that_run",
     kCluster,
     {{"if (steps > 0) await(shared_.barrier(kBarriers.output_full + tile_), before_.steps + steps - 1);", ""}},
     "race"},
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
}  // namespace kernelwright
