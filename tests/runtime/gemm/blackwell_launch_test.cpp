/// What a launch of gemm_sm100 passes to the device: its tensor maps, and which arguments it refuses.
#include "contract/gemm_sm100.h"
#include "kernelwright/runtime/engine/notes.h"
#include "kernelwright/runtime/gemm/arguments.h"
#include "kernelwright/runtime/gemm/tensor_maps.h"
#include "runtime/gemm/launch_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using contract::BlackwellGemmParams;
using detail::BlackwellGemmTensorMaps;
using detail::LoadedGemm;

GemmProblem mlp(DType operands = DType::kBf16, ScaleKind scales = ScaleKind::kNone) {
  return mlp_of_depth(320, operands, scales);
}

GemmSchedule tile(int block_n, int cta_group = 1, ClusterShape cluster = {1, 1}) {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = block_n;
  schedule.cta_group = cta_group;
  schedule.cluster = cluster;
  return schedule;
}

LoadedGemm loaded(const GemmProblem& problem, const GemmSchedule& schedule) {
  return detail::describe(problem, plan_gemm(problem, schedule, Arch::kSm100a), DeviceInfo{.num_sms = 148});
}
BlackwellGemmTensorMaps maps_of(const GemmProblem& problem, const GemmSchedule& schedule, const GemmTensors& tensors) {
  const LoadedGemm kernel = loaded(problem, schedule);
  const GemmSpec& spec = kernel.variant_for(tensors.m).spec;
  return detail::blackwell_tensor_maps_of(spec, tensors, detail::matrices_of(kernel, spec, tensors), problem.groups);
}
std::string refusal(const GemmProblem& problem, const GemmSchedule& schedule, const GemmTensors& tensors) {
  const LoadedGemm kernel = loaded(problem, schedule);
  const GemmSpec& spec = kernel.variant_for(tensors.m).spec;
  const detail::GemmMatrices of = detail::matrices_of(kernel, spec, tensors);
  std::vector<Violation> violations = detail::broken_rules(kernel, spec, tensors, of);
  if (violations.empty()) return "";
  EXPECT_FALSE(detail::surely_fine(kernel, spec, tensors, of)) << "it would have been launched";
  return ConfigError(std::move(violations)).what();
}

TEST(BlackwellGemmTensorMaps, OfAPairHaveHalfOfTheColumnsEach) {
  GemmTensors tensors = some_operands();
  tensors.a_stride = 328;
  const BlackwellGemmTensorMaps maps = maps_of(mlp(), tile(192, 2, {2, 1}), tensors);
  EXPECT_EQ(maps.a.address, 0x100000u);
  EXPECT_THAT(dims(maps.a), ElementsAre(320, 100));
  EXPECT_EQ(maps.a.strides_bytes[0], 328u * 2);
  EXPECT_THAT(box(maps.a), ElementsAre(64, 128));
  EXPECT_EQ(maps.a.swizzle, Swizzle::k128B);
  EXPECT_THAT(dims(maps.b), ElementsAre(320, 512));
  EXPECT_THAT(box(maps.b), ElementsAre(64, 96));
  EXPECT_THAT(dims(maps.d), ElementsAre(512, 100));
  EXPECT_THAT(box(maps.d), ElementsAre(64, 32));
  EXPECT_EQ(maps.d.swizzle, Swizzle::k128B);
  EXPECT_FALSE(maps.has_scales_a || maps.has_scales_b);
}

TEST(BlackwellGemmTensorMaps, OfAClusterAreSharesOfWhatItsCtasRead) {
  const BlackwellGemmTensorMaps alone = maps_of(mlp(), tile(128, 1, {4, 2}), some_operands());
  EXPECT_THAT(box(alone.a), ElementsAre(64, 64)) << "two columns of CTAs share rows";
  EXPECT_THAT(box(alone.b), ElementsAre(64, 32)) << "four rows of CTAs share columns";
  const BlackwellGemmTensorMaps pairs = maps_of(mlp(), tile(128, 2, {4, 2}), some_operands());
  EXPECT_THAT(box(pairs.a), ElementsAre(64, 64));
  EXPECT_THAT(box(pairs.b), ElementsAre(64, 32)) << "a half, shared by two pairs";
}

TEST(BlackwellGemmTensorMaps, OfGroupsHaveAMatrixForEach) {
  GemmProblem problem = mlp();
  problem.groups = {GroupKind::kRows, 8, GroupBounds::kStarts};
  GemmTensors tensors = some_operands();
  tensors.b_stride = 328;
  const BlackwellGemmTensorMaps maps = maps_of(problem, tile(128), tensors);
  EXPECT_THAT(dims(maps.a), ElementsAre(320, 100)) << "rows of all groups";
  EXPECT_THAT(dims(maps.b), ElementsAre(320, 512, 8));
  EXPECT_THAT(box(maps.b), ElementsAre(64, 128, 1));
  EXPECT_EQ(maps.b.strides_bytes[1], 512u * 328 * 2);
  GemmSchedule swapped = tile(32);
  swapped.swap_ab = true;
  EXPECT_THAT(dims(maps_of(problem, swapped, tensors).a), ElementsAre(320, 512, 8));
}

TEST(BlackwellGemmTensorMaps, OfGatheredRowsBringOneRowEach) {
  GemmProblem problem = mlp();
  problem.groups = {GroupKind::kRows, 8, GroupBounds::kStarts, true};
  GemmTensors tensors = some_operands();
  tensors.source_rows = 40;
  const BlackwellGemmTensorMaps maps = maps_of(problem, tile(128, 2, {2, 1}), tensors);
  EXPECT_THAT(dims(maps.a), ElementsAre(320, 40));
  EXPECT_THAT(box(maps.a), ElementsAre(64, 1));
  EXPECT_THAT(box(maps.b), ElementsAre(64, 64, 1));
  EXPECT_THAT(dims(maps.d), ElementsAre(512, 100));
}

TEST(BlackwellGemmTensorMaps, RowsThatAreScatteredNeedNoMap) {
  GemmProblem problem = mlp();
  EXPECT_TRUE(maps_of(problem, tile(128), some_operands()).has_d);
  problem.groups = {GroupKind::kRows, 8, GroupBounds::kStarts, false, true};
  GemmTensors tensors = some_operands();
  tensors.result_rows = 70;
  EXPECT_FALSE(maps_of(problem, tile(128), tensors).has_d);
}

TEST(BlackwellGemmTensorMaps, MatricesByPointersNeedNoMap) {
  GemmProblem problem = mlp();
  problem.groups = {GroupKind::kRows, 8, GroupBounds::kStarts, false, false, true};
  GemmSchedule schedule = tile(64);
  EXPECT_TRUE(maps_of(problem, schedule, some_operands()).has_a);
  EXPECT_FALSE(maps_of(problem, schedule, some_operands()).has_b);
  schedule.swap_ab = true;
  EXPECT_FALSE(maps_of(problem, schedule, some_operands()).has_a);
  EXPECT_TRUE(maps_of(problem, schedule, some_operands()).has_b);
}

TEST(BlackwellGemmTensorMaps, OfGatesStoreHalfAsManyColumns) {
  GemmProblem problem = mlp();
  problem.epilogue = "silu(gate) * up";
  const BlackwellGemmTensorMaps maps = maps_of(problem, tile(128), some_operands());
  EXPECT_THAT(dims(maps.d), ElementsAre(256, 100));
  EXPECT_THAT(box(maps.d), ElementsAre(32, 32));
  EXPECT_EQ(maps.d.swizzle, Swizzle::k64B);
  GemmSchedule swapped = tile(32);
  swapped.swap_ab = true;
  EXPECT_THAT(box(maps_of(problem, swapped, some_operands()).d), ElementsAre(16, 32));
}

TEST(BlackwellGemmTensorMaps, OfOtherLayoutsAreCutAlongK) {
  GemmProblem problem = mlp();
  problem.layout = OperandLayout::kTn;
  GemmTensors tensors = some_operands();
  tensors.m = 104;
  const BlackwellGemmTensorMaps maps = maps_of(problem, tile(128, 2, {4, 2}), tensors);
  EXPECT_THAT(dims(maps.a), ElementsAre(104, 320));
  EXPECT_THAT(box(maps.a), ElementsAre(64, 32)) << "64 rows of k, shared by two";
  EXPECT_THAT(dims(maps.b), ElementsAre(512, 320));
  EXPECT_THAT(box(maps.b), ElementsAre(64, 32));
}

TEST(BlackwellGemmTensorMaps, SwappedOperandsChangePlaces) {
  GemmSchedule schedule = tile(16);
  schedule.swap_ab = true;
  const BlackwellGemmTensorMaps maps = maps_of(mlp(), schedule, some_operands());
  EXPECT_EQ(maps.a.address, 0x200000u);
  EXPECT_THAT(box(maps.a), ElementsAre(64, 128));
  EXPECT_EQ(maps.b.address, 0x100000u);
  EXPECT_THAT(box(maps.b), ElementsAre(64, 16));
  EXPECT_THAT(dims(maps.d), ElementsAre(512, 100));
  EXPECT_THAT(box(maps.d), ElementsAre(32, 16)) << "32 columns of d, 16 rows";
  EXPECT_EQ(maps.d.swizzle, Swizzle::kNone);
}

TEST(BlackwellGemmTensorMaps, OfResultsAreSwizzledByTheirRowsBytes) {
  const auto stored = [](int block_n, DType result) {
    GemmProblem problem = mlp();
    problem.dtype.d = result;
    return maps_of(problem, tile(block_n), some_operands()).d;
  };
  EXPECT_THAT(box(stored(160, DType::kBf16)), ElementsAre(32, 32)) << "of 160 a power of two";
  EXPECT_EQ(stored(160, DType::kBf16).swizzle, Swizzle::k64B);
  EXPECT_EQ(stored(16, DType::kBf16).swizzle, Swizzle::k32B);
  EXPECT_THAT(box(stored(256, DType::kF32)), ElementsAre(32, 32));
  EXPECT_EQ(stored(256, DType::kF32).swizzle, Swizzle::k128B);
  EXPECT_THAT(box(stored(48, DType::kE4m3)), ElementsAre(16, 32));
  EXPECT_EQ(stored(48, DType::kE4m3).swizzle, Swizzle::kNone) << "16 bytes";
}

TEST(BlackwellGemmTensorMaps, OfPackedElementsAreOfBytesAndOfScalesOfAtoms) {
  GemmTensors tensors = scaled_operands();
  tensors.m = 300;
  tensors.a_stride = 384;
  tensors.scale_a_stride = 7;
  const BlackwellGemmTensorMaps maps = maps_of(mlp(DType::kNvfp4), tile(192), tensors);
  EXPECT_EQ(maps.a.dtype, DType::kE4m3);
  EXPECT_THAT(dims(maps.a), ElementsAre(160, 300)) << "320 elements of 4 bits";
  EXPECT_EQ(maps.a.strides_bytes[0], 192u);
  EXPECT_THAT(box(maps.a), ElementsAre(128, 128));
  EXPECT_THAT(box(maps.b), ElementsAre(128, 192));
  ASSERT_TRUE(maps.has_scales_a && maps.has_scales_b);
  EXPECT_EQ(maps.scales_a.dtype, DType::kF32);
  EXPECT_EQ(maps.scales_a.address, 0x500000u);
  EXPECT_THAT(dims(maps.scales_a), ElementsAre(128, 5, 3)) << "an atom is 128 rows by 64 of k";
  EXPECT_THAT(box(maps.scales_a), ElementsAre(128, 4, 1)) << "a slab is 256 elements";
  EXPECT_EQ(maps.scales_a.strides_bytes[0], 512u);
  EXPECT_EQ(maps.scales_a.strides_bytes[1], 7u * 512);
  EXPECT_THAT(dims(maps.scales_b), ElementsAre(128, 5, 4));
  EXPECT_THAT(box(maps.scales_b), ElementsAre(128, 4, 2)) << "192 columns lie in two rows of atoms";
  EXPECT_EQ(maps.scales_b.strides_bytes[1], 5u * 512);
  const BlackwellGemmTensorMaps eight = maps_of(mlp(DType::kMxfp8), tile(64), scaled_operands());
  EXPECT_EQ(eight.a.dtype, DType::kMxfp8);
  EXPECT_THAT(dims(eight.scales_a), ElementsAre(128, 3, 1));
  EXPECT_THAT(box(eight.scales_a), ElementsAre(128, 1, 1));
}

TEST(BlackwellGemmTensorMaps, SwappedScalesChangePlacesToo) {
  GemmSchedule schedule = tile(32);
  schedule.swap_ab = true;
  GemmTensors tensors = scaled_operands();
  tensors.scale_b_stride = 9;
  const BlackwellGemmTensorMaps maps = maps_of(mlp(DType::kMxfp4), schedule, tensors);
  EXPECT_EQ(maps.scales_a.address, 0x600000u);
  EXPECT_EQ(maps.scales_a.strides_bytes[1], 9u * 512);
  EXPECT_THAT(dims(maps.scales_a), ElementsAre(128, 3, 4));
  EXPECT_THAT(dims(maps.scales_b), ElementsAre(128, 3, 1));
}

TEST(BlackwellGemmTensorMaps, OfGatheredRowsHaveNoScales) {
  GemmProblem problem = mlp(DType::kMxfp8);
  problem.groups = {GroupKind::kRows, 2, GroupBounds::kStarts, true};
  GemmTensors tensors = scaled_operands();
  tensors.scale_a = 0;  // null, where there is no row to gather
  GemmSchedule schedule = tile(64);
  for (const bool swap : {false, true}) {
    schedule.swap_ab = swap;
    const BlackwellGemmTensorMaps maps = maps_of(problem, schedule, tensors);
    EXPECT_EQ(maps.has_scales_a, swap);
    EXPECT_EQ(maps.has_scales_b, !swap);
    EXPECT_EQ((swap ? maps.scales_a : maps.scales_b).address, 0x600000u);
  }
}

TEST(BlackwellGemmArguments, AtomsOfScalesHaveTheirRules) {
  GemmTensors tensors = scaled_operands();
  EXPECT_EQ(refusal(mlp(DType::kMxfp8), tile(128), tensors), "");
  tensors.scale_a = 0x500008;
  tensors.scale_b_stride = 2;
  EXPECT_THAT(
      refusal(mlp(DType::kMxfp8), tile(128), tensors),
      ::testing::AllOf(HasSubstr("/tensors/scale_a: address 0x500008 is not a multiple of 16"),
                       HasSubstr("/tensors/scale_b_stride: 2 is less than the 3 atoms of scales, of 128 elements "
                                 "each, that k = 320 has")));
}

TEST(BlackwellGemmArguments, KernelsThatTakeAllSmsSaySo) {
  GemmTensors tensors = some_operands();
  tensors.sm_budget = 8;
  GemmSchedule schedule = tile(128);
  EXPECT_EQ(refusal(mlp(), schedule, tensors), "");
  schedule.scheduler = Scheduler::kQueued;
  EXPECT_THAT(
      refusal(mlp(), schedule, tensors),
      HasSubstr("/tensors/sm_budget: is 8, and the kernel for 100 rows takes all SMs, for CTAs that are done take "
                "over tiles that wait; 0, or a schedule with scheduler \"persistent\", would do"));
}

TEST(BlackwellGemmArguments, PartsOfKNeedAWorkspace) {
  GemmSchedule schedule = tile(64);
  schedule.split_k = 2;
  GemmTensors tensors = some_operands();
  constexpr std::uint64_t kTiles = 8, kBytes = 16 + kTiles * (16 + 64 * 128 * 4);
  EXPECT_THAT(refusal(mlp(), schedule, tensors),
              HasSubstr("/tensors/workspace: 0 bytes are given and " + std::to_string(kBytes) +
                        " are needed to add 2 parts of k; see GemmKernel::workspace_bytes()"));
  tensors.workspace = 0x900008;
  tensors.workspace_bytes = kBytes;
  EXPECT_THAT(refusal(mlp(), schedule, tensors), HasSubstr("/tensors/workspace: address 0x900008 is not a multiple"));
  tensors.workspace = 0x900000;
  EXPECT_EQ(refusal(mlp(), schedule, tensors), "");
}

TEST(BlackwellGemmArguments, RowsAndTilesStayWithinThirtyTwoBits) {
  GemmProblem narrow = mlp();
  narrow.n = 64;
  const auto refused = [&](const GemmProblem& problem, const GemmSchedule& schedule, std::int64_t m) {
    return refusal(problem, schedule, far_apart(static_cast<int>(m)));
  };
  constexpr std::int64_t kEnd = std::int64_t{1} << 31;
  EXPECT_EQ(refused(narrow, tile(128), kEnd - 128), "");
  EXPECT_THAT(refused(narrow, tile(128), kEnd - 127), HasSubstr("/tensors/m: 2147483521 is more than 2147483520 rows"));
  EXPECT_EQ(refused(narrow, tile(128, 2, {4, 1}), kEnd - 512), "");
  EXPECT_THAT(refused(narrow, tile(128, 2, {4, 1}), kEnd - 511), HasSubstr("more than 2147483136 rows"));
  GemmSchedule swapped = tile(16, 1, {1, 2});
  swapped.swap_ab = true;
  EXPECT_EQ(refused(narrow, swapped, kEnd - 32), "");
  EXPECT_THAT(refused(narrow, swapped, kEnd - 31), HasSubstr("more than 2147483616 rows"));
  GemmProblem wide = mlp();
  wide.n = 1 << 24;
  EXPECT_EQ(refused(wide, tile(64), 128 << 10), "");
  EXPECT_THAT(refused(wide, tile(64), (128 << 10) + 1),
              HasSubstr("/tensors/m: 131073 rows and 16777216 columns are 268697600 tiles of 128 x 64, and a launch "
                        "has at most 268435456"));
}

struct BlackwellGemmLaunchTest : GemmLaunches<BlackwellGemmParams> {
  BlackwellGemmLaunchTest() : GemmLaunches(Arch::kSm100a, 148) {}
};

TEST_F(BlackwellGemmLaunchTest, PassesSizesStridesAndNumbers) {
  Engine engine(options());
  const GemmKernel kernel = engine.prepare(with_full_epilogue(mlp()), tile(64, 2, {2, 1}));
  GemmTensors tensors = operands_of_the_full_epilogue();
  tensors.m = 300;
  expect_the_full_epilogue(kernel, tensors, 320);
  const BlackwellGemmParams params = launched();
  EXPECT_EQ(params.turnstile.turns, nullptr);
  EXPECT_GT(params.launch.bands.band, 0);
  EXPECT_EQ(launch_config().grid[0], 2u * 8 * 2) << "2 x 8 tiles of 256 x 64, of 2 CTAs each";
  EXPECT_EQ(launch_config().cluster[0], 2u);
  EXPECT_EQ(launch_config().block, 256u);
  EXPECT_EQ(device().tensor_map(&params.b).box[1], 32u);
  EXPECT_EQ(device().last_fill().bytes, 0u) << "nothing to clear";
}

TEST_F(BlackwellGemmLaunchTest, SwappedLaunchesAreTheKernelsView) {
  Engine engine(options());
  GemmSchedule schedule = tile(32);
  schedule.swap_ab = true;
  GemmTensors tensors = scaled_operands();
  tensors.scale_a_stride = 4;
  engine.prepare(mlp(DType::kMxfp8), schedule).launch(tensors, some_stream());
  const BlackwellGemmParams params = launched();
  EXPECT_EQ(params.m, 512);
  EXPECT_EQ(params.n, 100);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.scale_a), 0x600000u);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.scale_b), 0x500000u);
  EXPECT_EQ(params.scale_a_stride, 3) << "atoms of 128 elements of k";
  EXPECT_EQ(params.scale_b_stride, 4);
  EXPECT_EQ(device().tensor_map(&params.scales_b).address, 0x500000u);
  EXPECT_EQ(launch_config().grid[0], 4u * 4u);
}

TEST_F(BlackwellGemmLaunchTest, PartsOfKHaveTheirWordsClearedAheadOfThem) {
  Engine engine(options());
  GemmSchedule schedule = tile(64);
  schedule.split_k = 2;
  const GemmKernel kernel = engine.prepare(mlp(), schedule);
  GemmTensors tensors = some_operands();
  EXPECT_EQ(kernel.workspace_bytes(tensors.m), 16u + 8 * (16 + 64 * 128 * 4));
  EXPECT_EQ(kernel.workspace_bytes(0), 0u);
  expect_a_cleared_turnstile(kernel, tensors, 16u + 8 * 16);
  EXPECT_EQ(launch_config().grid[0], 16u);
}

TEST_F(BlackwellGemmLaunchTest, NoDepthReadsZerosOrNoScaleAtAll) {
  Engine engine(options());
  GemmProblem flat = mlp(DType::kNvfp4);
  flat.k = 0;
  GemmTensors tensors = some_operands();
  tensors.a = tensors.b = 0;  // empty
  engine.prepare(flat, tile(128)).launch(tensors, some_stream());
  BlackwellGemmParams params = launched();
  EXPECT_EQ(params.k, 1) << "of which there is one element, and it is zero";
  EXPECT_EQ(params.scale_b_stride, 0) << "one row of atoms for all";
  EXPECT_THAT(dims(device().tensor_map(&params.scales_a)), ElementsAre(128, 1, 1));
  flat = mlp(DType::kE4m3, ScaleKind::kPerBlock);
  flat.k = 0;
  engine.prepare(flat, tile(128)).launch(tensors, some_stream());
  EXPECT_EQ(launched().k, 0) << "no slab is added";
}

TEST_F(BlackwellGemmLaunchTest, ABudgetOfSmsIsThePersistentGrids) {
  Engine engine(options());
  GemmProblem large = mlp();
  large.n = 8192;
  GemmTensors tensors = some_operands();
  tensors.d = 0x40000000;
  tensors.m = 2048;
  tensors.sm_budget = 20;
  GemmSchedule schedule = tile(256, 2, {2, 1});
  schedule.scheduler = Scheduler::kPersistent;
  engine.prepare(large, schedule).launch(tensors, some_stream());
  EXPECT_EQ(launch_config().grid[0], 20u);
  schedule.scheduler = Scheduler::kQueued;
  const GemmKernel queued = engine.prepare(large, schedule);
  EXPECT_THAT(message_of<ConfigError>([&] { queued.launch(tensors, some_stream()); }), HasSubstr("takes all SMs"));
  tensors.sm_budget = 0;
  queued.launch(tensors, some_stream());
  EXPECT_EQ(launch_config().grid[0], 8u * 32 * 2);
}

TEST(BlackwellGemmNotes, NameRolesAndMemory) {
  const GemmSpec spec = plan_gemm(mlp(), tile(128), Arch::kSm100a).variants[0].spec;
  const KernelNotes notes = notes_of(spec);
  std::uint32_t warps = 0;
  for (const KernelNotes::Role& role : notes.roles) {
    EXPECT_EQ(role.first_warp, warps) << role.name;
    warps += role.num_warps;
  }
  EXPECT_EQ(warps * 32, static_cast<std::uint32_t>(spec.threads()));
  EXPECT_EQ(notes.roles[1].name, "mma");
  EXPECT_EQ(notes.shared[0].name, "A");
  EXPECT_EQ(notes.shared[0].stage_bytes, 128u * 128);
  EXPECT_EQ(notes.shared.back().offset + notes.shared.back().bytes, shared_bytes(spec));
}

struct BlackwellGemmGroupsLaunchTest : GemmLaunches<contract::BlackwellGemmGroupedParams> {
  BlackwellGemmGroupsLaunchTest() : GemmLaunches(Arch::kSm100a, 148) {}
};

TEST_F(BlackwellGemmGroupsLaunchTest, PassesTheBoundsAndWhereRowsOfDGo) {
  Engine engine(options());
  GemmProblem problem = mlp();
  problem.groups = {GroupKind::kMasked, 5, GroupBounds::kCounts};
  GemmTensors tensors = some_operands();
  tensors.bounds = 0x900000, tensors.status = 0xa00000, tensors.d_stride = 520;
  engine.prepare(problem, tile(64, 2, {2, 1})).launch(tensors, some_stream());
  const contract::BlackwellGemmGroupedParams params = launched();
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.groups.bounds), 0x900000u);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.groups.status), 0xa00000u);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.groups.d), 0x400000u);
  EXPECT_EQ(params.groups.d_stride, 520);
  EXPECT_EQ(params.groups.count, 5);
  EXPECT_EQ(params.groups.capacity, 20);
  EXPECT_EQ(launch_config().grid[0], 5u * 8 * 2) << "a tile of a pair for each group at most, and 8 of columns";
}

}  // namespace
}  // namespace kernelwright::test
