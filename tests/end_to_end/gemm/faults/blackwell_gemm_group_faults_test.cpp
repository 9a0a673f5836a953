// Deliberate mistakes in how gemm_sm100 walks groups, gathers their rows and multiplies gates with ups. The emulator
// must find each. Needs NVRTC.
#include "end_to_end/gemm/faults/blackwell_gemm_faults.h"

namespace kernelwright::blackwell_gemm_group_faults_test {
namespace {

enum class Form {
  kRows,      // e4m3 with f32 scales of blocks, a CTA by itself
  kPair,      // bf16, pairs of CTAs with gathered rows and tokens' scales
  kSwapped,   // masked rows, swapped, with gates
  kScatter,   // bf16, scattered rows
  kPointers,  // e4m3 with f32 scales of blocks, matrices by pointers
  kBlocks,    // mxfp8 with gates, results in mxfp8
  kScales,    // masked rows, e4m3 results with f32 scales
  kGathered,  // mxfp4, gathered rows whose scales threads copy
  kHalves,    // e4m3 with f32 scales of blocks, gates and e4m3 results: two tiles to an item
  kSlices,    // bf16, slices of k, pairs of CTAs
  kBatch,     // e4m3 with scales of tokens, swapped, a batch
};

struct Fault {
  const char* name;
  Form form;
  std::vector<test::TemplateEdit> edits;
  const char* found;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

const Fault kFaults[] = {
    {"bounds_read_ahead_of_the_launch_before",
     Form::kRows,
     {drop("KERNELWRIGHT_ENTRY", "griddepcontrol_wait")},
     "missing griddepcontrol.wait"},
    {"tiles_from_a_table_that_is_not_there", Form::kRows, {drop("KERNELWRIGHT_ENTRY", "sync_ctas #2")}, "race"},
    {"rows_behind_a_groups_end_stored",
     Form::kRows,
     {change("copies", "if last end", "last <= end", "true")},
     "wrong result"},
    {"slabs_copied_before_all_lanes_wrote", Form::kRows, {drop("copies", "__syncwarp")}, "race between lanes"},
    {"copied_slabs_not_counted", Form::kRows, {drop("copies", "cp_async_bulk_commit_group")}, "race"},
    {"pieces_in_the_order_of_no_swizzle",
     Form::kRows,
     {change("copy_slab", "ld_shared_v4", "(piece ^ pattern)", "piece")},
     "wrong result"},
    {"rows_of_the_first_group",
     Form::kRows,
     {change("GroupedWork::at", "return #2", "item.first + row", "row")},
     "wrong result"},
    {"matrix_of_the_first_group",
     Form::kRows,
     {change("Loader::load", "rank_m", "group_of(item)", "0")},
     "wrong result"},
    {"scales_of_the_first_group",
     Form::kRows,
     {change("SlabScales", "columns_ group_of", "group_of(item)", "0")},
     "wrong result"},
    {"the_first_row_gathered_for_all",
     Form::kPair,
     {change("source_row", "source_rows", "? source : -1", "? 0 : -1")},
     "wrong result"},
    {"slots_of_gathered_rows_not_armed", Form::kPair, {drop("GatherLoader::run", "begin stage")}, "deadlock"},
    {"gathered_rows_complete_at_home",
     Form::kPair,
     {change("GatherLoader::gather", "leaders", "leaders(stage.full(), rank_)", "stage.full()")},
     "deadlock"},
    {"four_rows_for_all_lanes",
     Form::kPair,
     {change("copy_of", "lane_", "static_cast<int>(lane_)", "0")},
     "wrong result"},
    {"rows_scattered_in_their_order",
     Form::kScatter,
     {change("copy_slab", "places __shfl_sync at #1", "at % 32", "0")},
     "wrong result"},
    {"slabs_over_some_still_copied", Form::kScatter, {drop("TileStore::put", "__syncwarp #1")}, "race between lanes"},
    {"copied_matrices_without_a_fence",
     Form::kPointers,
     {drop("Multiplier::issue", "fence_proxy_async_shared")},
     "missing proxy fence"},
    {"copied_matrices_not_told_of", Form::kPointers, {drop("MatrixCopier::run", "arrive_with_copies")}, "deadlock"},
    {"copies_not_waited_for",
     Form::kPointers,
     {change("init_barriers", "init kConsumers", "+ kCopyThreads", "+ 32")},
     "race"},
    {"matrices_in_the_order_of_no_swizzle",
     Form::kPointers,
     {change("MatrixCopier::run", "to line_", "swizzle_of_row(line_, kLineBytes)", "swizzle_of_row(0, kLineBytes)")},
     "wrong result"},
    {"atoms_of_all_groups_where_the_first_has_them",
     Form::kBlocks,
     {change("store_blocks", "result item atom", "item.atom", "0")},
     "wrong result"},
    {"atoms_counted_before_all_warps_have_told", Form::kBlocks, {drop("GroupAtoms::make", "__syncthreads #1")}, "race"},
    {"scales_of_a_where_the_first_group_has_them",
     Form::kBlocks,
     {change("place_of_scales", "return item atom", "item.atom", "0")},
     "wrong result"},
    {"scales_of_the_first_matrix",
     Form::kBlocks,
     {change("place_of_scales", "return item group", "int64_t{item.group}", "int64_t{0}")},
     "wrong result"},
    {"scales_of_rows_as_they_lie_in_a",
     Form::kGathered,
     {change("ScaleGatherer::run", "source source_row", "source_row(params_, row, within < kRowsOfTile && row < end)",
             "within < kRowsOfTile && row < end ? row % 90 : -1")},
     "wrong result"},
    {"scales_of_matrices_not_loaded_by_the_gathering_warp",
     Form::kGathered,
     {drop("GatherLoader::gather", "load_scales")},
     "deadlock"},
    {"one_scale_of_the_second_half_alone",
     Form::kHalves,
     {change("ScaledRun::store_both", "largest_ max_nan_f32", "fabsf(values_[i])", "0.f")},
     "wrong result"},
    {"rows_of_the_next_slice_gathered",
     Form::kSlices,
     {change("SliceLoader::gather", "rows row first end", "row + first + i < end", "true")},
     "wrong result"},
    {"slots_of_slices_not_armed", Form::kSlices, {drop("SliceLoader::run", "expect_bytes")}, "deadlock"},
    {"a_batchs_results_in_the_first_group",
     Form::kBatch,
     {change("TileStore::put", "cp_async_bulk_tensor_3d_store", "group_of(item)", "0")},
     "wrong result"},
    {"a_batchs_tokens_counted_from_the_first_groups",
     Form::kBatch,
     {change("load_scales", "scales load all", "tokens_ahead()", "0")},
     "wrong result"},
    {"scales_of_masked_groups_in_one_place",
     Form::kScales,
     {change("ScaledRun::store", "line group_of", "int64_t{group_of(item)}", "int64_t{0}")},
     "wrong result"},
    {"the_largest_of_the_last_columns",
     Form::kScales,
     {change("ScaledRun::take", "largest_ max_nan_f32", "first + i == 0", "i == 0")},
     "wrong result"},
    {"lanes_exchange_what_they_keep",
     Form::kSwapped,
     {change("apply_gates", "other own __shfl_xor_sync", "up ? own[i] : own[i + 1]", "up ? own[i + 1] : own[i]")},
     "wrong result"},
    {"gates_of_columns_for_ups",
     Form::kSwapped,
     {change("lane_of_gates", "return", "lane / 8 % 2 * 16", "(1 - lane / 8 % 2) * 16")},
     "wrong result"},
};

GemmCase case_of(Form form) {
  GemmShape shape{"groups", 300, true};
  shape.group_rows = {140, 0, 33, 21, 70};
  if (form == Form::kPair) {
    GemmProblem problem = test::gemm_problem(DType::kE4m3, DType::kBf16, 136, 400, "acc", ScaleKind::kPerToken);
    problem.groups = {GroupKind::kRows, 5, GroupBounds::kStarts, true};
    shape.source_rows = 90;
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  if (form == Form::kSwapped) {
    GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kBf16, 304, 200, "silu(gate) * up");
    problem.groups = {GroupKind::kMasked, 5, GroupBounds::kCounts};
    shape.group_rows = {40, 0, 33, 21, 60};
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  if (form == Form::kScatter) {
    GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kF32, 200, 200);
    problem.groups = {GroupKind::kRows, 5, GroupBounds::kStarts, false, true};
    shape.result_rows = 310;
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  if (form == Form::kBlocks) {
    GemmProblem problem = test::gemm_problem(
        DType::kMxfp8, DType::kMxfp8, 576, 160,
        "x = silu(gate) * up; d = quantize(x, mxfp8, per=token_group(32), scale=s)", ScaleKind::kPerBlock);
    problem.groups = {GroupKind::kRows, 5, GroupBounds::kStarts};
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  if (form == Form::kGathered) {
    GemmProblem problem = test::gemm_problem(DType::kMxfp4, DType::kBf16, 136, 416, "acc", ScaleKind::kPerBlock);
    problem.groups = {GroupKind::kRows, 5, GroupBounds::kStarts, true};
    shape.source_rows = 90;
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  if (form == Form::kHalves) {
    GemmProblem problem =
        test::gemm_problem(DType::kE4m3, DType::kE4m3, 512, 272,
                           "d = quantize(silu(gate) * up, e4m3, per=token_group(128), scale=s)", ScaleKind::kPerBlock);
    problem.groups = {GroupKind::kRows, 5, GroupBounds::kStarts};
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  if (form == Form::kSlices) {
    GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kBf16, 200, 64);
    problem.layout = OperandLayout::kTn;
    problem.groups = {GroupKind::kK, 5, GroupBounds::kStarts};
    shape.m = 5 * 72, shape.source_rows = 300;
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  if (form == Form::kBatch) {
    GemmProblem problem = test::gemm_problem(DType::kE4m3, DType::kBf16, 136, 272, "acc", ScaleKind::kPerToken);
    problem.groups = {GroupKind::kBatch, 5};
    return make_gemm_inputs(problem, {"batch", 5 * 40, true}, {.seed = 3});
  }
  if (form == Form::kScales) {
    GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kE4m3, 256, 72,
                                             "d = quantize(acc, e4m3, per=token_group(128), scale=s)");
    problem.groups = {GroupKind::kMasked, 5, GroupBounds::kCounts};
    shape.group_rows = {40, 0, 33, 21, 60};
    return make_gemm_inputs(problem, shape, {.seed = 3});
  }
  GemmProblem problem = test::gemm_problem(DType::kE4m3, DType::kBf16, 200, 400, "acc", ScaleKind::kPerBlock);
  problem.groups = {GroupKind::kRows, 5, GroupBounds::kStarts, false, false, form == Form::kPointers};
  return make_gemm_inputs(problem, shape, {.seed = 3});
}
GemmSchedule schedule_of(Form form) {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.swap_ab = form == Form::kSwapped || form == Form::kBatch;
  const bool pair = form == Form::kPair || form == Form::kSlices;
  const bool whole = form == Form::kScales || form == Form::kSlices || form == Form::kHalves;
  schedule.block_n = form == Form::kBlocks ? 256 : whole ? 128 : schedule.swap_ab.value_or(false) ? 32 : 64;
  schedule.cta_group = pair ? 2 : 1;
  schedule.cluster = ClusterShape{pair ? 2 : 1, 1};
  schedule.stages = 3;
  if (form == Form::kScatter) schedule.store_stages = 1;
  return schedule;
}
test::Findings findings_of(Form form, const std::vector<test::TemplateEdit>& edits) {
  return test::run_with_edits("gemm_sm100", case_of(form), schedule_of(form), edits, Arch::kSm100a, 2);
}

class BlackwellGemmGroupFaults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(BlackwellGemmGroupFaults, AreFound) {
  const test::Findings findings = findings_of(GetParam().form, GetParam().edits);
  EXPECT_THAT(findings.found, testing::Contains(GetParam().found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, BlackwellGemmGroupFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BlackwellGemmGroups, HaveNoFindingWithoutAMistake) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  for (const Form form : {Form::kRows, Form::kPointers, Form::kBlocks, Form::kSlices}) {
    const test::Findings findings = findings_of(form, {});
    EXPECT_THAT(findings.found, testing::IsEmpty()) << findings.text;
  }
}

}  // namespace
}  // namespace kernelwright::blackwell_gemm_group_faults_test
