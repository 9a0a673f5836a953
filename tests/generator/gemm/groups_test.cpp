/// How a GEMM of groups is planned.
#include <gtest/gtest.h>

#include <tuple>

#include "kernelwright/generator/gemm/planner.h"

namespace kernelwright::groups_plan_test {
namespace {

GemmProblem problem(int n, int k, int groups) {
  GemmProblem of;
  of.n = n, of.k = k;
  of.groups = {GroupKind::kRows, groups, GroupBounds::kStarts};
  return of;
}

GemmVariant variant_of(const GemmProblem& problem, int rows) {
  return plan_by_model(problem, {}, Arch::kSm90a).variant_for(rows);
}

/// As an H200 measured them: bench/results/gemm/2026-11-30-h200-groups-of-16-bits.md.
TEST(GemmGroupsPlan, WarpgroupsTakeTurnsWhereAWarpDealsTilesOf16Bits) {
  const auto tile = [](const GemmProblem& problem, int rows) {
    const GemmSpec spec = variant_of(problem, rows).spec;
    return std::tuple{spec.block_m, spec.block_n, spec.roles, spec.cluster_m};
  };
  constexpr Roles kTurns = Roles::kPingPong;
  EXPECT_EQ(tile(problem(4096, 7168, 4), 8192), (std::tuple{128, 128, kTurns, 1}));
  EXPECT_EQ(tile(problem(7168, 2048, 8), 4096), (std::tuple{128, 128, kTurns, 1}));
  EXPECT_EQ(tile(problem(4096, 7168, 32), 256), (std::tuple{128, 128, kTurns, 1}));
  EXPECT_EQ(tile(problem(1536, 2048, 128), 512), (std::tuple{128, 128, kTurns, 1}));
  EXPECT_EQ(tile(problem(768, 2048, 128), 128), (std::tuple{64, 256, kTurns, 1}));
  EXPECT_EQ(tile(problem(2880, 2880, 32), 4096), (std::tuple{128, 192, kTurns, 1}));  // 15 whole tiles
  GemmProblem gates = problem(2880, 2880, 32);                                        // not measured
  gates.epilogue = "silu(gate) * up";
  EXPECT_EQ(variant_of(gates, 4096).spec.roles, Roles::kCooperative);
}

/// As an H200 measured them: bench/results/gemm/2026-11-30-h200-three-warpgroups.md.
TEST(GemmGroupsPlan, ThreeWarpgroupsShareTilesWithScalesOfBlocks) {
  const auto tile = [](int n, int k, int groups, int rows, const char* epilogue = "acc") {
    GemmProblem of = problem(n, k, groups);
    of.dtype.a = of.dtype.b = DType::kE4m3, of.scales = ScaleKind::kPerBlock, of.epilogue = epilogue;
    if (groups == 0) of.groups = {};
    const GemmSpec spec = variant_of(of, rows).spec;
    return std::tuple{spec.block_m, spec.block_n, spec.math_warpgroups};
  };
  constexpr std::tuple kThree{192, 128, 3};
  EXPECT_EQ(tile(4096, 7168, 4, 8192), kThree);
  EXPECT_EQ(tile(4096, 7168, 8, 4096), kThree);
  EXPECT_EQ(tile(7168, 2048, 4, 8192), kThree);
  EXPECT_EQ(tile(8192, 8192, 0, 8192), kThree);
  // Even groups of these rows fill fewer tiles of 192 rows.
  EXPECT_EQ(tile(4096, 7168, 32, 256), (std::tuple{128, 192, 2}));
  EXPECT_EQ(tile(1536, 2048, 128, 512), (std::tuple{128, 192, 2}));
  // One round of 128 tiles, and an epilogue that was not measured.
  EXPECT_EQ(tile(2048, 2048, 0, 2048), (std::tuple{256, 128, 2}));
  EXPECT_NE(tile(4096, 7168, 4, 8192, "silu(acc)"), kThree);
}

/// Bands of columns hold half as many tiles of 128 x 192.
TEST(GemmGroupsPlan, WideTilesThatAreStoredBehindHaveBandsOfColumns) {
  const auto bands_of_n = [](bool blocks, int rows) {
    GemmProblem of = problem(4096, 7168, 32);
    if (blocks) of.dtype.a = of.dtype.b = DType::kE4m3, of.scales = ScaleKind::kPerBlock;
    const GemmVariant variant = variant_of(of, rows);
    return std::tuple{variant.spec.block_m, variant.spec.block_n, variant.bands_of_n};
  };
  EXPECT_EQ(bands_of_n(true, 256), (std::tuple{128, 192, true}));
  EXPECT_EQ(bands_of_n(false, 256), (std::tuple{128, 128, false}));
}

}  // namespace
}  // namespace kernelwright::groups_plan_test
