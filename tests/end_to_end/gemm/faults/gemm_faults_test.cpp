// Deliberate mistakes in gemm_sm90, one at a time: in its ring, its products, its clusters and parts of k, its stores,
// and where it waits for a kernel ahead. The emulator must find each, under the right name. Needs NVRTC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernelwright/runtime/engine/emulated_machine.h"
#include "support/emulated_gemm.h"
#include "support/kernel_faults.h"

namespace kernelwright::gemm_faults_test {
namespace {

using test::after, test::before, test::change, test::drop, test::replace;

/// The kernel in which the mistake is made. In all forms but parts of k, a CTA walks several tiles, and rings go round.
enum class Form {
  kWaits,       // each product is waited for before its slot is released
  kPlain,       // one stays in flight
  kGroups,      // of two slabs behind a pair of barriers
  kPingPong,    // a tile for each of two warpgroups
  kCluster,     // of two CTAs, which share B
  kParts,       // of k, two
  kTurns,       // parts of k that take turns, two
  kBlocks,      // 8 bits with scales of blocks
  kBehind,      // the same: a tile is stored while the next one's first products run
  kStrips,      // two strips of 64 bytes of k to a slab, two products of 64 rows
  kBoxes,       // m and n innermost, boxes of 64 bytes of them
  kBatch,       // of three groups side by side, 8 bits with scales of blocks
  kDealt,       // of three groups, stored as kBehind; a warp deals their tiles
  kDealtTurns,  // the same, for two warpgroups that take turns
  kSlices,      // of three groups, each with a slice of k; two warpgroups share a slot
  kScatters,    // rows of three groups to rows of d, which have other addends
  kPointers,    // to the matrices b of three groups, whose rows are gathered
};

struct Fault {
  const char* name;
  Form form;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // "deadlock", "race", ..: must be among the findings
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

GemmProblem problem_of(Form form) {
  if (form == Form::kBatch) {
    GemmProblem problem = test::gemm_problem(DType::kE4m3, DType::kBf16, 128, 256, "acc", ScaleKind::kPerBlock);
    problem.groups = {.kind = GroupKind::kBatch, .count = 3};
    return problem;
  }
  if (form == Form::kDealt || form == Form::kDealtTurns) {
    GemmProblem problem = form == Form::kDealt
                              ? test::gemm_problem(DType::kE4m3, DType::kBf16, 256, 272, "acc", ScaleKind::kPerBlock)
                              : test::gemm_problem(DType::kBf16, DType::kBf16, 136, 104);
    problem.groups = {.kind = GroupKind::kRows, .count = 3};
    return problem;
  }
  if (form == Form::kSlices) {
    GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kBf16, 136, 104);
    problem.layout = OperandLayout::kTn;
    problem.groups = {.kind = GroupKind::kK, .count = 3};
    return problem;
  }
  if (form == Form::kScatters) {
    GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kBf16, 136, 104, "acc + c");
    problem.groups = {.kind = GroupKind::kRows, .count = 3, .scatter = true};
    return problem;
  }
  if (form == Form::kPointers) {
    GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kBf16, 136, 104);
    problem.groups = {.kind = GroupKind::kRows, .count = 3, .gather = true, .pointers = true};
    return problem;
  }
  if (form == Form::kBlocks || form == Form::kBehind)
    return test::gemm_problem(DType::kE4m3, DType::kBf16, 256, 640, "acc", ScaleKind::kPerBlock);
  GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kBf16, form == Form::kParts ? 128 : 136, 392);
  if (form == Form::kBoxes) problem.layout = OperandLayout::kTn;
  return problem;
}

GemmSchedule schedule_of(Form form) {
  GemmSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.block_m = 64;
  const bool wide = form == Form::kParts || form == Form::kBlocks || form == Form::kBehind || form == Form::kBatch ||
                    form == Form::kDealt;
  schedule.block_n = wide ? 128 : 64;
  schedule.stages = form == Form::kGroups ? 4 : 3;
  schedule.k_group = form == Form::kGroups ? 2 : 1;
  const bool behind = form == Form::kBehind || form == Form::kDealt;
  const bool turns = form == Form::kPingPong || form == Form::kDealtTurns;
  schedule.mma_in_flight = form == Form::kWaits || behind ? 0 : 1;
  schedule.roles = turns ? Roles::kPingPong : Roles::kCooperative;
  schedule.math_warpgroups = turns || form == Form::kSlices ? 2 : 1;
  if (form == Form::kSlices) schedule.block_m = 128;
  if (form == Form::kScatters) schedule.block_n = 128, schedule.store_stages = 1;
  if (form == Form::kStrips || form == Form::kBoxes) schedule.block_m = 128, schedule.swizzle = Swizzle::k64B;
  if (form == Form::kBoxes) schedule.block_k = 32;
  if (form == Form::kCluster) schedule.cluster = ClusterShape{2, 1};
  if (form == Form::kParts || form == Form::kTurns) schedule.split_k = 2;
  if (form == Form::kTurns) schedule.split_mode = SplitMode::kTurnstile;
  return schedule;
}

const Fault kFaults[] = {
    // ---- the ring ----
    {"fewer_bytes_expected",
     Form::kPlain,
     {change("InputProducerStage::expect_bytes", "mbarrier_arrive_expect_tx", "bytes", "bytes / 2")},
     "race"},
    {"more_bytes_expected",
     Form::kPlain,
     {change("InputProducerStage::expect_bytes", "mbarrier_arrive_expect_tx", "bytes", "bytes + 16")},
     "deadlock"},
    {"slots_filled_before_they_are_free", Form::kPlain, {drop("InputProducer::acquire", "producer_wait")}, "race"},
    {"slots_read_before_they_land",
     Form::kPlain,
     {drop("InputConsumer::acquire", "consumer_wait")},
     "read of unwritten memory"},
    {"parity_of_the_lap_before",
     Form::kPlain,
     {change("consumer_wait_at", "mbarrier_wait_parity", "phase", "phase ^ 1")},
     "read of unwritten memory"},
    {"parity_of_the_lap_after",
     Form::kPlain,
     {change("producer_wait", "mbarrier_wait_parity", "phase", "phase ^ 1")},
     "deadlock"},
    {"columns_of_the_next_slot",
     Form::kPlain,
     {change("multiply", "descriptor_b", "from.b()", "stage.payload().b((stage.tile(j) + 1) % spec::kStages)")},
     "race"},
    {"first_slab_of_a_group_twice",
     Form::kGroups,
     {change("Loader::load", "kSlabDepth", "(slab + j)", "slab")},
     "wrong result"},
    {"barriers_not_fenced", Form::kPlain, {drop("StagedPipeline::init", "fence_mbarrier_init")}, "mbarrier misuse"},
    {"an_arrival_too_few_for_a_slot",
     Form::kPlain,
     {change("KERNELWRIGHT_ENTRY", "init", "kCluster", "kCluster - 1")},
     "race"},
    // ---- products ----
    {"slot_let_go_of_ahead_of_the_wait",
     Form::kWaits,
     {before("multiply", "wgmma_wait_group #2", "stage.release_early();")},
     "race"},
    {"slot_let_go_of_twice",
     Form::kWaits,
     {after("multiply", "wgmma_wait_group #2", "input_.release({stage.index()}, release);")},
     "deadlock"},
    {"slot_let_go_of_at_the_scopes_end_too",
     Form::kPlain,
     {change("TileStage::TileStage", "signals_ if", "if (signals_)", "")},
     "race"},
    {"slot_not_let_go_of_at_the_scopes_end", Form::kWaits, {drop("TileStage::TileStage", "signal #2")}, "deadlock"},
    {"scope_does_not_step_on", Form::kPlain, {drop("TileStage::TileStage", "step")}, "race"},
    {"slot_let_go_of_a_product_early",
     Form::kPlain,
     {replace("multiply", "input_ held #1", "stage.release_early();"),
      change("multiply", "group if", "group > 0", "true"), drop("multiply", "input_ held #2")},
     "race"},
    {"last_slot_kept", Form::kPlain, {drop("multiply", "input_ held #2")}, "deadlock"},
    {"products_not_fenced",
     Form::kPlain,
     {drop("multiply", "wgmma_fence")},
     "register of a wgmma or tcgen05.ld in flight"},
    {"sums_read_while_products_run",
     Form::kPlain,
     {drop("multiply", "wgmma_wait_group #3")},
     "register of a wgmma or tcgen05.ld in flight"},
    {"scaled_products_read_while_they_run",
     Form::kBlocks,
     {drop("multiply_and_add_round", "wgmma_wait_group kLag")},
     "register of a wgmma or tcgen05.ld in flight"},
    {"scales_of_the_slab_before",
     Form::kBlocks,
     {change("Loader::load", "scales_ load", "slab + j", "max(slab + j - 1, 0)")},
     "wrong result"},
    // ---- slabs in strips and boxes ----
    {"steps_across_strips_as_if_they_were_one",
     Form::kStrips,
     {change("step_offset", "width", "/ width() * part_bytes() + k % width()", "")},
     "wrong result"},
    {"strips_all_to_the_first_place",
     Form::kStrips,
     {change("load_a", "part_bytes", "+ i * kASlab.part_bytes()", "")},
     "race"},
    {"strips_of_the_same_k", Form::kStrips, {change("load_a", "load_rows #2", "+ within", "")}, "wrong result"},
    {"rows_as_long_as_the_slab_is_deep",
     Form::kStrips,
     {change("row_offset", "width_elements", "width()", "bytes")},
     "wrong result"},
    {"patterns_of_128_bytes", Form::kStrips, {change("pattern_bytes", "width", "width()", "128")}, "wrong result"},
    {"products_of_another_swizzle",
     Form::kStrips,
     {change("descriptor_a", "leading_bytes", "spec::kSwizzleBytes", "32")},
     "wrong result"},
    {"boxes_one_upon_the_other",
     Form::kBoxes,
     {change("leading_bytes", "part_bytes #1", "mn_major ? part_bytes() :", "")},
     "wrong result"},
    {"steps_of_boxes_of_128_bytes",
     Form::kBoxes,
     {change("step_offset", "width", "width() :", "128 :")},
     "wrong result"},
    {"boxes_of_the_same_rows", Form::kBoxes, {change("load_a", "load_rows #1", "+ within", "")}, "wrong result"},
    // ---- warpgroups that take turns ----
    {"turn_not_passed", Form::kPingPong, {drop("MathWarpgroup::run_in_turn", "pass")}, "deadlock"},
    {"slots_of_the_others_tile_not_passed_over",
     Form::kPingPong,
     {drop("MathWarpgroup::run_in_turn", "skip sharers")},
     "deadlock"},
    {"arrivals_of_both_warpgroups_awaited",
     Form::kPingPong,
     {change("KERNELWRIGHT_ENTRY", "Input init", "4 * kTileWarpgroups * kCluster", "kMathWarps")},
     "deadlock"},
    // ---- clusters ----
    {"peers_slots_filled_before_they_are_free",
     Form::kCluster,
     {change("", "Release", "kCluster", "1"), change("KERNELWRIGHT_ENTRY", "Input init", "* kCluster", "")},
     "race"},
    {"exit_while_a_peer_may_arrive", Form::kCluster, {drop("Loader::run", "drain")}, "work outstanding at exit"},
    {"peers_barriers_used_before_they_are_made",
     Form::kCluster,
     {replace("KERNELWRIGHT_ENTRY", "barrier_cluster_arrive", "__syncthreads();"),
      drop("KERNELWRIGHT_ENTRY", "barrier_cluster_wait")},
     "mbarrier misuse"},
    {"share_kept_to_itself",
     Form::kCluster,
     {change("load_for_all", "cp_async_bulk_tensor_2d_multicast", "kAll", "1 << rank_in_cluster()")},
     "deadlock"},
    {"same_share_from_both",
     Form::kCluster,
     {change("load_b", "kBlockN", "+ rank * (spec::kBlockN / kCluster)", "")},
     "wrong result"},
    // ---- parts of k ----
    {"sums_sent_into_rings_in_use", Form::kParts, {drop("exchange_and_store", "sync_cluster #1")}, "race"},
    {"sums_read_before_they_are_sent", Form::kParts, {drop("exchange_and_store", "sync_cluster #3")}, "race"},
    {"every_part_of_all_k", Form::kParts, {change("part", "if", "if constexpr (kParts == 1)", "")}, "wrong result"},
    // ---- parts of k that take turns ----
    // The checker knows of no order between CTAs in global memory. Parts of a tile that begin the wrong way round tell
    // by the result.
    {"turns_not_awaited",
     Form::kTurns,
     {drop("take_turn", "wait"), change("take_item", "atom_add_relaxed_gpu_u32",
                                        "ptx::atom_add_relaxed_gpu_u32(params.begun, 1)", "blockIdx.x ^ 1")},
     "wrong result"},
    {"turns_not_passed", Form::kTurns, {drop("take_turn", "pass")}, "deadlock"},
    {"turns_passed_to_the_first_warp",
     Form::kTurns,
     {change("take_turn", "Turnstile", "warp", "(part == 0 ? 0 : warp)")},
     "deadlock"},
    {"parts_before_not_added",
     Form::kTurns,
     {change("exchange", "own before", "= before[j] + own[i + j]", "+= 0 * before[j]")},
     "wrong result"},
    {"sums_of_two_threads_in_one_place",
     Form::kTurns,
     {change("take_turn", "exchange", "thread", "thread % 64")},
     "wrong result"},
    {"every_part_finishes", Form::kTurns, {change("is_last", "part_", "part_ == kParts - 1", "true")}, "deadlock"},
    {"parts_in_the_order_of_the_grid",
     Form::kTurns,
     {change("take_item", "atom_add_relaxed_gpu_u32", "ptx::atom_add_relaxed_gpu_u32(params.begun, 1)",
             "static_cast<uint32_t>((blockIdx.x + spec::kSplitK - 1) % gridDim.x)")},
     "deadlock"},
    {"item_taken_ahead_of_the_launch_before",
     Form::kTurns,
     {drop("take_item", "griddepcontrol_wait")},
     "missing griddepcontrol.wait"},
    {"item_read_before_it_is_taken", Form::kTurns, {drop("KERNELWRIGHT_ENTRY", "__syncthreads")}, "race"},
    {"parts_of_the_same_slabs", Form::kTurns, {change("part", "min", "part /", "0 /")}, "wrong result"},
    // ---- stores ----
    {"results_not_fenced", Form::kPlain, {drop("WarpSlabs::send", "fence_proxy_async_shared")}, "missing proxy fence"},
    {"stores_not_in_a_group", Form::kPlain, {drop("WarpSlabs::send", "cp_async_bulk_commit_group #2")}, "race"},
    {"exit_while_results_are_stored",
     Form::kPlain,
     {drop("TileStore::finish", "cp_async_bulk_wait_group_read")},
     "work outstanding at exit"},
    // ---- a tile that is stored behind the next one's first products ----
    {"the_last_tile_not_stored",
     Form::kBehind,
     {drop("MathWarpgroup::run_and_store_behind", "store_piece #2")},
     "wrong result"},
    {"sums_of_two_tiles_added", Form::kBehind, {drop("MathWarpgroup::run_and_store_behind", "clear")}, "wrong result"},
    {"results_in_the_next_tile",
     Form::kBehind,
     {change("MathWarpgroup::run_and_store_behind", "stored first_row", "stored = tile", "stored = next")},
     "wrong result"},
    {"scales_of_the_same_tile",
     Form::kBehind,
     {change("MathWarpgroup::run_and_store_behind", "begin_scales", "tile", "stored")},
     "wrong result"},
    {"the_first_slot_taken_for_landed",
     Form::kBehind,
     {change("MathWarpgroup::run_and_store_behind", "bool landed", "landed = false", "landed = true")},
     "race"},
    // ---- tiles that a warp deals ----
    {"tile_read_before_it_is_dealt",
     Form::kDealt,
     {drop("DealtWork::take", "consumer_wait")},
     "read of unwritten memory"},
    {"tile_dealt_over_one_that_is_read", Form::kDealt, {drop("Dealer::run", "producer_wait")}, "deadlock"},
    {"tiles_not_released", Form::kDealt, {drop("DealtWork::release", "WarpRelease")}, "deadlock"},
    {"the_loader_leaves_tiles", Form::kDealt, {drop("Loader::run", "pass_last_tiles")}, "work outstanding at exit"},
    {"no_tile_behind_the_last_one",
     Form::kDealt,
     {change("Dealer::run", "is_last count", "t >= work_.count()", "t + work_.step >= work_.count()")},
     "deadlock"},
    {"the_others_tile_not_passed_over",
     Form::kDealtTurns,
     {drop("MathWarpgroup::run_in_turn", "pass_tile #2")},
     "deadlock"},
    {"both_warpgroups_take_the_first_tile",
     Form::kDealtTurns,
     {drop("MathWarpgroup::run_in_turn", "pass_tile #1")},
     "wrong result"},
    {"rounds_of_one_tile",
     Form::kDealtTurns,
     {change("DealtTiles", "kRound kPingPong", "kPingPong ? spec::kMathWarpgroups : 1", "1")},
     "deadlock"},
    // ---- a batch ----
    {"left_operand_of_the_first_group",
     Form::kBatch,
     {change("load_rows", "cp_async_bulk_tensor_3d", "group", "0")},
     "wrong result"},
    {"right_operand_of_the_first_group",
     Form::kBatch,
     {change("load_for_all", "cp_async_bulk_tensor_3d", "group", "0")},
     "wrong result"},
    {"scales_of_the_first_group",
     Form::kBatch,
     {change("RowScales::load", "blocks #2", "tile.group", "0")},
     "wrong result"},
    {"column_scales_of_the_first_group",
     Form::kBatch,
     {change("BlockScales", "tile group kKinds", "tile.group", "0")},
     "wrong result"},
    {"results_in_the_first_group",
     Form::kBatch,
     {change("WarpSlabs::send_by_tma", "cp_async_bulk_tensor_3d_store", "tile.group", "0")},
     "wrong result"},
    {"tiles_of_one_group_alone",
     Form::kBatch,
     {change("BatchedWork::BatchedWork", "batch_of", "batch_of(params).count", "1")},
     "wrong result"},
    // ---- slices of k ----
    {"end_of_a_slice_not_fenced",
     Form::kSlices,
     {drop("clear_end", "fence_proxy_async_shared")},
     "missing proxy fence"},
    {"end_of_a_slice_read_while_it_is_cleared", Form::kSlices, {drop("clear_end", "bar_sync")}, "race"},
    {"half_of_the_end_cleared",
     Form::kSlices,
     {change("clear_rows", "st_shared_v4", "piece * contract::kPieceBytes", "piece / 2 * contract::kPieceBytes")},
     "wrong result"},
    {"rows_of_the_next_slice_added", Form::kSlices, {drop("multiply", "clear_end")}, "wrong result"},
    {"slices_of_the_first_group",
     Form::kSlices,
     {change("Loader::load", "first_k", "tile.first_k", "0")},
     "wrong result"},
    // ---- rows that are scattered ----
    {"results_copied_before_they_are_written",
     Form::kScatters,
     {drop("WarpSlabs::send", "__syncwarp #1")},
     "race between lanes"},
    {"results_written_before_they_are_copied",
     Form::kScatters,
     {drop("WarpSlabs::wait_for_slab", "__syncwarp #1")},
     "race between lanes"},
    {"rows_not_scattered",
     Form::kScatters,
     {change("ScatteredRows::of", "__shfl_sync #1", "rows_[0]", "first")},
     "wrong result"},
    {"addends_of_rows_in_order",
     Form::kScatters,
     {change("Addends::load_as", "scattered_row", "policy::scattered_row(params.groups, at, at < tile.row_end)", "at")},
     "wrong result"},
    {"rows_without_a_place_written",
     Form::kScatters,
     {change("scattered_row", "return", "exists && fits ? to : -1", "exists ? to & 127 : -1")},
     "wrong result"},
    // ---- matrices by pointers ----
    {"copies_not_fenced",
     Form::kPointers,
     {drop("MathWarpgroup::take_copied", "fence_proxy_async_shared")},
     "missing proxy fence"},
    {"slots_full_before_copies_land",
     Form::kPointers,
     {replace("CopyLoader::run", "arrive_with_copies", "ptx::mbarrier_arrive(stage.full());")},
     "race"},
    {"matrix_of_the_first_group",
     Form::kPointers,
     {change("MatrixCopies::begin", "ld_global_s64", "tile.group", "0")},
     "wrong result"},
    {"the_same_slab_again", Form::kPointers, {drop("MatrixCopies::copy", "from_ kSlabDepth")}, "wrong result"},
    {"columns_past_the_matrix",
     Form::kPointers,
     {change("MatrixCopies::copy", "exists", "line < left_", "true")},
     "out of bounds"},
    // ---- a kernel ahead ----
    {"operands_loaded_ahead_of_it",
     Form::kPlain,
     {drop("Loader::run", "griddepcontrol_wait")},
     "missing griddepcontrol.wait"},
};

/// The findings in the form's kernel with `edits`.
test::Findings findings_in(Form form, const std::vector<test::TemplateEdit>& edits = {}) {
  const int rows = form == Form::kBatch                                 ? 3 * 70
                   : form == Form::kDealt || form == Form::kDealtTurns  ? 320
                   : form == Form::kSlices                              ? 3 * 136
                   : form == Form::kScatters || form == Form::kPointers ? 150
                                                                        : 200;
  const GemmCase call =
      make_gemm_inputs(problem_of(form), {.name = "fault", .m = rows}, {.seed = 1, .side_by_side = true});
  return test::run_with_edits("gemm_sm90", call, schedule_of(form), edits, Arch::kSm90a, 2);
}

class GemmFaults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(GemmFaults, AreFound) {
  const test::Findings findings = findings_in(GetParam().form, GetParam().edits);
  EXPECT_THAT(findings.found, testing::Contains(GetParam().found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, GemmFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

/// Without a mistake nothing is found, in any of the forms. So above, the mistake is what is found.
TEST(GemmWithoutFaults, NothingIsFound) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  for (const Form form : {Form::kWaits, Form::kPlain, Form::kGroups, Form::kPingPong, Form::kCluster, Form::kParts,
                          Form::kTurns, Form::kBlocks, Form::kBehind, Form::kDealt, Form::kDealtTurns, Form::kBatch,
                          Form::kSlices, Form::kScatters, Form::kPointers}) {
    const test::Findings findings = findings_in(form);
    EXPECT_TRUE(findings.found.empty()) << findings.text;
  }
}

/// Two layers. The second runs behind the first with weights that no kernel writes: only these weights may be loaded
/// before the first has ended. The faulty kernel loads the other operand early.
TEST(GemmFaultAhead, TheWrongOperandLoadedEarlyIsFound) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const GemmProblem problem = test::gemm_problem(DType::kBf16, DType::kBf16, 192, 192);
  const GemmCase call = make_gemm_inputs(problem, {.name = "layers", .m = 72});
  EmulatorBackendOptions emulated;
  emulated.arch = Arch::kSm90a;
  emulated.hazards = true;
  emulated.num_sms = 2;
  const auto kinds_with = [&](const std::vector<test::TemplateEdit>& edits) {
    const std::shared_ptr<EmulatorBackend> backend = make_emulator_backend(emulated);
    EngineOptions options;
    options.custom_backend = backend;
    options.custom_store = std::make_shared<test::FaultyStore>("gemm_sm90", edits);
    Engine engine(options);
    const GemmKernel kernel = engine.prepare(problem, schedule_of(Form::kPlain));
    GemmDeviceCase first(engine.device(0), call, kernel), second(engine.device(0), call, kernel);
    for (GemmDeviceCase* layer : {&first, &second}) {
      layer->poison();
      layer->tensors().pdl = layer->tensors().constant_b = true;
    }
    second.use(first.stream());
    second.tensors().a = first.tensors().d;
    second.tensors().a_stride = first.tensors().d_stride;
    first.launch();
    second.launch();
    second.wait();
    std::set<std::string> kinds;
    for (const emulator::KernelHazard& hazard : backend->take_reports())
      kinds.insert(std::string(emulator::name_of(hazard.report.kind)));
    return kinds;
  };
  EXPECT_TRUE(kinds_with({}).empty());
  EXPECT_THAT(kinds_with({change("Loader::load", "kRows kWhich",
                                 "(kWhich == Operand::kConstant) =", "(kWhich == Operand::kConstant) !")}),
              testing::Contains("missing griddepcontrol.wait"));
}

}  // namespace
}  // namespace kernelwright::gemm_faults_test
