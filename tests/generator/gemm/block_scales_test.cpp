/// How a GEMM with scales of blocks is planned.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "contract/tile_bands.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"

namespace kernelwright::block_scales_test {
namespace {

GemmProblem problem(int n, int k) {
  GemmProblem of;
  of.n = n;
  of.k = k;
  return of;
}

/// As an H200 measured them: bench/results/gemm/2026-11-30-h200-dealer.md.
TEST(GemmPlan, GroupsWithScalesOfBlocksHaveTilesOfOneProduct) {
  const auto tile = [](int n, int k, int rows, bool gather, DType d = DType::kBf16) {
    GemmProblem problem;
    problem.n = n, problem.k = k, problem.scales = ScaleKind::kPerBlock;
    problem.dtype.a = problem.dtype.b = DType::kE4m3, problem.dtype.d = d;
    problem.groups = {GroupKind::kRows, 128, GroupBounds::kStarts, gather};
    const GemmSpec spec = plan_by_model(problem, {}, Arch::kSm90a).variant_for(rows).spec;
    return std::tuple{spec.block_m, spec.block_n, spec.mma_in_flight, spec.store_stages};
  };
  EXPECT_EQ(tile(1536, 2048, 512, false), (std::tuple{128, 192, 0, 3}));
  EXPECT_EQ(tile(7168, 2048, 8192, false), (std::tuple{192, 128, 0, 2}));  // three warpgroups
  EXPECT_EQ(tile(7168, 2048, 8192, false, DType::kF32), (std::tuple{128, 192, 0, 2}));
  EXPECT_EQ(tile(1536, 2048, 512, false, DType::kF32), (std::tuple{128, 192, 0, 2}));  // three would not hold a tile
  EXPECT_EQ(tile(1536, 2048, 512, true), (std::tuple{128, 256, 0, 2}));                // threads copy rows
}

/// bench/results/gemm/2026-11-30-h200-first-tile.md: gates, and results with scales, have the tiles of plain results.
TEST(GemmPlan, ResultsOfSumsAloneHaveTilesOfThreeWarpgroups) {
  const auto tile = [](DType d, const char* epilogue) {
    GemmProblem blocks = problem(28672, 4096);
    blocks.dtype.a = blocks.dtype.b = DType::kE4m3, blocks.dtype.d = d;
    blocks.scales = ScaleKind::kPerBlock, blocks.epilogue = epilogue;
    const GemmSpec spec = plan_by_model(blocks, {}, Arch::kSm90a).variant_for(8192).spec;
    return std::tuple{spec.block_m, spec.block_n, spec.mma_in_flight, spec.may_store_behind()};
  };
  const std::tuple of_three{192, 128, 0, true};
  EXPECT_EQ(tile(DType::kBf16, "acc"), of_three);
  EXPECT_EQ(tile(DType::kBf16, "silu(gate) * up"), of_three);
  EXPECT_EQ(tile(DType::kE4m3, "d = quantize(acc, e4m3, per=token_group(128), scale=s)"), of_three);
  EXPECT_EQ(tile(DType::kE4m3, "x = silu(gate) * up; d = quantize(x, e4m3, per=token_group(128), scale=s)"), of_three);
  // What else they read, or share, keeps the tiles that were measured.
  EXPECT_NE(tile(DType::kBf16, "silu(gate + bias) * (up + bias)"), of_three);
  EXPECT_NE(tile(DType::kBf16, "acc + c"), of_three);
}

/// Pairs of tiles are items: they are what is counted, and what bands are of.
TEST(GemmPlan, ScaledGatesMayHaveHalvesOfWhatSharesAScale) {
  GemmProblem blocks = problem(28672, 4096);
  blocks.dtype.a = blocks.dtype.b = blocks.dtype.d = DType::kE4m3, blocks.scales = ScaleKind::kPerBlock;
  blocks.epilogue = "x = silu(gate) * up; d = quantize(x, e4m3, per=token_group(128), scale=s)";
  const auto columns = [&](int n, int k, int rows) {
    blocks.n = n, blocks.k = k;
    return plan_by_model(blocks, {}, Arch::kSm90a).variant_for(rows).spec.block_n;
  };
  // As an H200 measured them: bench/results/gemm/2026-11-30-h200-gates-in-halves.md.
  EXPECT_EQ(columns(6144, 2048, 2048), 128);
  EXPECT_EQ(columns(4096, 7168, 4096), 256) << "pairs of tiles would leave a part of the third round idle";
  EXPECT_EQ(columns(28672, 4096, 8192), 128);
  blocks.groups = {GroupKind::kRows, 4, GroupBounds::kStarts};
  EXPECT_EQ(columns(28672, 4096, 8192), 256) << "pairs of groups were not timed";
  blocks.groups = {};
  GemmSchedule schedule;
  schedule.block_m = 192, schedule.block_n = 128, schedule.math_warpgroups = 3;
  const GemmSpec spec = plan_gemm(blocks, schedule, Arch::kSm90a).variants.back().spec;
  EXPECT_EQ(spec.halves(), 2);
  EXPECT_TRUE(spec.may_store_behind());
  EXPECT_EQ(std::tuple(spec.mma_in_flight, spec.store_stages), (std::tuple{0, 2}));
  EXPECT_EQ(count_items(spec, {8192, 28672, 4096}), 43 * 112);
  EXPECT_EQ(choose_bands(spec, {8192, 28672, 4096}, 132, 0, false).by_tiles,
            contract::reciprocal_of(
                static_cast<std::uint32_t>(choose_bands(spec, {8192, 28672, 4096}, 132, 0, false).band * 112)));
  const auto refused = [&](const GemmProblem& of) {
    try {
      plan_gemm(of, schedule, Arch::kSm90a);
      return std::string();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  const std::string part =
      "/schedule/block_n: 128 columns hold a part of the 256 gates and ups that share a scale of d";
  schedule.store_stages = 1;
  EXPECT_NE(refused(blocks).find(part), std::string::npos) << "one slab has no room for a tile's results";
  schedule.store_stages = {}, schedule.block_m = 256, schedule.math_warpgroups = 2;
  EXPECT_NE(refused(blocks).find(part), std::string::npos) << "a warpgroup has two products of rows";
  schedule.block_m = 192, schedule.math_warpgroups = 3;
  EXPECT_EQ(refused(blocks), "");
  blocks.groups = {GroupKind::kRows, 4, GroupBounds::kStarts, /*gather=*/true};
  EXPECT_NE(refused(blocks).find(part), std::string::npos) << "threads copy rows, so a tile is not stored behind";
}

TEST(GemmPlan, StagesThatAScheduleNamesLeaveAsMuchRoomAsTheyDid) {
  GemmProblem blocks = problem(4096, 4096);
  blocks.dtype.a = blocks.dtype.b = DType::kE4m3, blocks.scales = ScaleKind::kPerBlock;
  const auto store_stages = [&](int stages) {
    GemmSchedule schedule;
    schedule.block_m = 128, schedule.block_n = 160, schedule.stages = stages;
    return plan_gemm(blocks, schedule, Arch::kSm90a).variants.back().spec.store_stages;
  };
  EXPECT_EQ(store_stages(4), 3);
  EXPECT_EQ(store_stages(5), 2);
  GemmSchedule schedule;  // two groups of slots are the least, and leave no room for three store stages
  schedule.block_m = 64, schedule.block_n = 144, schedule.k_group = 4, schedule.math_warpgroups = 1;
  const GemmSpec spec = plan_gemm(blocks, schedule, Arch::kSm90a).variants.back().spec;
  EXPECT_EQ(spec.store_stages, 2);
  EXPECT_LE(shared_bytes(spec), 232448u);
}

TEST(GemmPlan, SlotsOfAWideTileHaveABarrierEach) {
  GemmProblem problem;
  problem.n = 4096, problem.k = 7168, problem.scales = ScaleKind::kPerBlock;
  problem.dtype.a = problem.dtype.b = DType::kE4m3;
  problem.groups = {GroupKind::kRows, 4, GroupBounds::kStarts};
  const auto slabs_of_a_slot = [&](int block_n) {
    GemmSchedule schedule;
    schedule.block_m = 128, schedule.block_n = block_n, schedule.mma_in_flight = 0;
    return plan_gemm(problem, schedule, Arch::kSm90a).variants.back().spec.k_group;
  };
  for (const int block_n : {128, 192, 256}) EXPECT_EQ(slabs_of_a_slot(block_n), 1) << block_n;
}

/// Sums of blocks: two sets of products are worth it while a product stays wide.
TEST(GemmPlan, ProductsOfScaledBlocksStayWide) {
  GemmProblem blocks = problem(4096, 4096);
  blocks.dtype.a = blocks.dtype.b = DType::kE4m3;
  blocks.scales = ScaleKind::kPerBlock;
  const GemmVariant many = plan_gemm(blocks, {}, Arch::kSm90a).variants.back();
  EXPECT_EQ(many.spec.block_m, 192);
  EXPECT_EQ(many.spec.block_n, 128);
  EXPECT_EQ(many.spec.mma_in_flight, 0);
  EXPECT_TRUE(many.bands_of_n);

  const auto in_flight = [&](int block_m, int block_n, int math_warpgroups) {
    GemmSchedule schedule;
    schedule.block_m = block_m, schedule.block_n = block_n, schedule.math_warpgroups = math_warpgroups;
    schedule.roles = Roles::kCooperative;
    return plan_gemm(blocks, schedule, Arch::kSm90a).variants.back().spec.mma_in_flight;
  };
  EXPECT_EQ(in_flight(128, 128, 2), 1);  // 128 columns either way
  EXPECT_EQ(in_flight(128, 192, 2), 0);  // would be 96
  EXPECT_EQ(in_flight(64, 64, 1), 1);    // 64 either way
  EXPECT_EQ(in_flight(256, 128, 2), 0);  // would be 64

  GemmSchedule schedule;
  schedule.block_m = 256, schedule.block_n = 128, schedule.raster = Raster::kAlongM, schedule.mma_in_flight = 1;
  const GemmVariant said = plan_gemm(blocks, schedule, Arch::kSm90a).variants.back();
  EXPECT_EQ(said.spec.mma_in_flight, 1);
  EXPECT_FALSE(said.bands_of_n);
}

/// Rows that memory bounds: one warpgroup multiplies, and tiles are as wide as keeps the SMs busy.
TEST(GemmPlan, FewRowsWithScalesOfBlocksHaveTilesOfTheirOwn) {
  const auto tile = [](int rows, int n, int k, GroupKind groups = GroupKind::kNone) {
    GemmProblem blocks = problem(n, k);
    blocks.dtype.a = blocks.dtype.b = DType::kE4m3;
    blocks.scales = ScaleKind::kPerBlock;
    if (groups != GroupKind::kNone) blocks.groups = {.kind = groups, .count = 4};
    const GemmSpec spec = plan_gemm(blocks, {}, Arch::kSm90a).variant_for(rows).spec;
    return fmt::format("{} x {} by {}{}, {} slabs", spec.block_m, spec.block_n, spec.math_warpgroups,
                       spec.swap_ab ? " swapped" : "", spec.k_group);
  };
  EXPECT_EQ(tile(64, 7168, 4096), "64 x 64 by 1, 2 slabs");
  EXPECT_EQ(tile(96, 7168, 4096), "64 x 112 by 1, 2 slabs");
  EXPECT_EQ(tile(128, 8192, 8192), "64 x 128 by 1, 2 slabs");
  EXPECT_EQ(tile(128, 4096, 7168), "64 x 64 by 1, 2 slabs");
  // Too few tiles of these forms, too few rows, too many, and groups.
  EXPECT_EQ(tile(64, 4096, 7168), "64 x 32 by 1 swapped, 4 slabs");
  EXPECT_EQ(tile(128, 2112, 7168), "64 x 32 by 1 swapped, 4 slabs");
  EXPECT_EQ(tile(32, 7168, 4096), "64 x 32 by 1 swapped, 4 slabs");
  EXPECT_EQ(tile(129, 7168, 4096), "128 x 128 by 2, 1 slabs");
  EXPECT_NE(tile(64, 7168, 4096, GroupKind::kRows), "64 x 64 by 1, 2 slabs");
}

}  // namespace
}  // namespace kernelwright::block_scales_test
