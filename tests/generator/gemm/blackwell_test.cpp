/// Which GEMMs the blackwell family supports, how it plans them, and that every plan fits the machine's tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <set>

#include "contract/gemm_sm100.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/predicted.h"
#include "kernelwright/generator/gemm/shared_map.h"

namespace kernelwright {
namespace {

using ::testing::HasSubstr;

GemmProblem problem(int n, int k, DType operands = DType::kBf16, ScaleKind scales = ScaleKind::kNone) {
  GemmProblem of;
  of.n = n;
  of.k = k;
  of.dtype = {operands, operands, DType::kBf16, DType::kBf16};
  of.scales = is_block_scaled(operands) ? ScaleKind::kPerBlock : scales;
  return of;
}

GemmSchedule tile(int block_n, int cta_group = 1) {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = block_n;
  schedule.cta_group = cta_group;
  return schedule;
}
GemmSchedule any_tile() {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  return schedule;
}
template <class Change>
GemmSchedule with(GemmSchedule schedule, Change change) {
  change(schedule);
  return schedule;
}

std::string refusal(const GemmProblem& of, const GemmSchedule& schedule) {
  try {
    plan_gemm(of, schedule, Arch::kSm100a);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

GemmSpec planned(const GemmProblem& of, const GemmSchedule& schedule) {
  return plan_gemm(of, schedule, Arch::kSm100a).variants.back().spec;
}

const DType kOperands[] = {DType::kF16,  DType::kBf16,  DType::kTf32,  DType::kE4m3,
                           DType::kE5m2, DType::kMxfp8, DType::kMxfp4, DType::kNvfp4};

TEST(BlackwellGemm, RefusesFieldsAndValuesByName) {
  const GemmProblem of = problem(4096, 4096);
  const auto refused = [&](auto change) { return refusal(of, with(tile(128), change)); };
  EXPECT_THAT(refused([](auto& s) { s.roles = Roles::kPingPong; }),
              HasSubstr("/schedule/roles: the blackwell family has no roles; its fields are arch, family, block_m"));
  EXPECT_THAT(refused([](auto& s) { s.block_m = 64; }),
              HasSubstr("/schedule/block_m: 64 is not built yet for the blackwell family; it has 128"));
  EXPECT_THAT(refused([](auto& s) { s.block_k = 128; }),
              HasSubstr("/schedule/block_k: 128 of \"bf16\" are not 32, 64 or 128 bytes of k; 64 would do"));
  EXPECT_THAT(refused([](auto& s) { s.split_mode = SplitMode::kCluster; }), HasSubstr("it has turnstile"));
  EXPECT_THAT(refused([](auto& s) { s.scheduler = Scheduler::kGrid; }), HasSubstr("it has persistent, queued"));
  EXPECT_THAT(refused([](auto& s) { s.k_group = 3; }), HasSubstr("it has 1, 2, 4"));
  EXPECT_THAT(refused([](auto& s) { s.store_stages = 3; }), HasSubstr("it has 1, 2"));
  EXPECT_THAT(refused([](auto& s) { s.split_k = 3; }), HasSubstr("it has 1, 2, 4, 8"));
  EXPECT_THAT(refused([](auto& s) { s.clc_depth = 4; }), HasSubstr("it has 0, 1, 2, 3"));
  EXPECT_THAT(refused([](auto& s) { s.block_k = 16, s.swizzle = Swizzle::k64B; }),
              HasSubstr("/schedule/swizzle: \"64B\" does not divide the 32 bytes of k that block_k 16 has; \"32B\" "
                        "would do"));
  EXPECT_THAT(refused([](auto& s) { s.cluster = ClusterShape{3, 1}; }), HasSubstr("/schedule/cluster: [3, 1]"));
  EXPECT_THAT(refused([](auto& s) { s.cluster = ClusterShape{4, 4}; }), HasSubstr("[4, 2], [1, 4], [2, 4]"));
  EXPECT_THAT(refused([](auto& s) {
                s.cta_group = 2, s.cluster = ClusterShape{1, 2};
              }),
              HasSubstr("[4, 2] with cta_group 2"));
  EXPECT_THAT(
      refused([](auto& s) { s.clc_depth = 2, s.scheduler = Scheduler::kPersistent; }),
      HasSubstr("/schedule/clc_depth: 2 answers on their way, and scheduler \"persistent\" asks for none; 0, or "
                "\"queued\", would do"));
  EXPECT_THAT(refused([](auto& s) { s.clc_depth = 0, s.scheduler = Scheduler::kQueued; }), HasSubstr("2 would do"));
  EXPECT_THAT(
      refused([](auto& s) { s.split_k = 2, s.scheduler = Scheduler::kQueued; }),
      HasSubstr("/schedule/split_k: 2: parts of a tile begin in their order, and a queue hands them out in any; 1, "
                "or scheduler \"persistent\", would do"));
}

TEST(BlackwellGemm, RefusesOperandsThatItDoesNotMultiply) {
  GemmProblem of = problem(4096, 4096, DType::kE4m3);
  of.layout = OperandLayout::kNn;
  EXPECT_THAT(refusal(of, tile(128)), HasSubstr("/problem/layout: \"nn\""));
  EXPECT_THAT(refusal(problem(4092, 4096), tile(128)), HasSubstr("/problem/n: 4092 leaves rows of d"));
  EXPECT_THAT(refusal(problem(4096, 4080, DType::kNvfp4), tile(128)), HasSubstr("/problem/k: 4080"));
  of = problem(4096, 4096);
  of.batch_invariant = true;
  EXPECT_THAT(
      refusal(of, with(tile(128), [](auto& s) { s.split_k = 2; })),
      HasSubstr("/schedule/split_k: 2: parts of k are added in another order than the whole, and the problem is "
                "batch_invariant; 1 would do"));
}

TEST(BlackwellGemm, RefusesTilesWithWhatWouldDo) {
  const GemmProblem bf16 = problem(4096, 4096);
  EXPECT_THAT(refusal(bf16, tile(24)), HasSubstr("/schedule/block_n: 24 columns do not fit; 16 would do"));
  EXPECT_THAT(refusal(bf16, tile(144, 2)),
              HasSubstr("/schedule/block_n: 144 columns do not fit: two CTAs have half of them each; 128 would do"));
  EXPECT_THAT(refusal(problem(4096, 4096, DType::kNvfp4), tile(96)),
              HasSubstr("96 columns do not fit: scales of nvfp4 are copied in atoms of 128 columns; 64 would do"));
  EXPECT_THAT(refusal(problem(4096, 4096, DType::kMxfp8), tile(32, 2)), HasSubstr("64 would do"));
  EXPECT_THAT(refusal(problem(4096, 4096, DType::kE4m3, ScaleKind::kPerBlock), tile(256)),
              HasSubstr("256 columns do not fit: threads hold the sums of a row while scales of blocks multiply; 128 "
                        "would do"));
  EXPECT_THAT(refusal(bf16, with(tile(48),
                                 [](auto& s) {
                                   s.cluster = ClusterShape{4, 1};
                                 })),
              HasSubstr("48 columns do not fit: 4 CTAs load shares of whole groups of 8; 32 would do"));
  GemmProblem nn = bf16;
  nn.layout = OperandLayout::kNn;
  EXPECT_THAT(refusal(nn, tile(192, 2)),
              HasSubstr("two CTAs have half of them each, layout \"nn\" is loaded by the 64; 128 would do"));
  EXPECT_THAT(refusal(bf16, with(tile(256), [](auto& s) { s.accumulator_stages = 3; })),
              HasSubstr("/schedule/accumulator_stages: 3 of 256 columns need 768 columns of tensor memory, and sm_100a "
                        "has 512; 2 would fit"));
  EXPECT_THAT(refusal(problem(4096, 4096, DType::kNvfp4), with(tile(256), [](auto& s) { s.accumulator_stages = 2; })),
              HasSubstr("2 of 256 columns, and 48 of scales, need 560 columns of tensor memory, and sm_100a has 512; 1 "
                        "would fit"));
  EXPECT_THAT(
      refusal(bf16, with(tile(256), [](auto& s) { s.stages = 6; })),
      HasSubstr("/schedule/stages: gemm_sm100: needs 327824 shared bytes and sm_100a has 232448; stages 4 would "
                "fit"));
  EXPECT_THAT(refusal(bf16, with(tile(128), [](auto& s) { s.stages = 3, s.k_group = 2; })),
              HasSubstr("/schedule/stages: 3 are not two groups of 2 slabs or more; 4 would do"));
}

TEST(BlackwellGemm, PlansOnlyWhatTheTablesHold) {
  const ArchInfo& arch = arch_info(Arch::kSm100a);
  int fitting = 0;
  for (const DType operands : kOperands)
    for (const ScaleKind scales : {ScaleKind::kNone, ScaleKind::kPerBlock})
      for (const DType result : {DType::kBf16, DType::kF32, DType::kE4m3})
        for (int block_n = 8; block_n <= 256; block_n += 8)
          for (const ClusterShape cluster :
               {ClusterShape{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2}, {1, 4}, {2, 4}})
            for (const int cta_group : {1, 2}) {
              if (bits_of(operands) >= 16 && scales != ScaleKind::kNone) continue;
              if (cta_group == 2 && cluster.m == 1) continue;
              GemmProblem of = problem(4096, 4096, operands, scales);
              of.dtype.d = result;
              GemmSchedule schedule = tile(block_n, cta_group);
              schedule.cluster = cluster;
              if (!refusal(of, schedule).empty()) continue;
              const GemmSpec spec = planned(of, schedule);
              const contract::BlackwellGemmShape shape = blackwell_gemm_shape_of(spec);
              const contract::BlackwellGemmColumns columns = contract::blackwell_gemm_columns(shape);
              const contract::BlackwellGemmBoxes boxes = contract::blackwell_gemm_boxes(shape);
              const contract::BlackwellGemmLayout layout = contract::blackwell_gemm_layout(shape);
              SCOPED_TRACE(canonical_text(spec));
              ++fitting;
              EXPECT_LE(columns.allocated, arch.tensor_memory_columns);
              EXPECT_EQ(columns.allocated & (columns.allocated - 1), 0);
              EXPECT_GE(spec.accumulators, 1);
              EXPECT_LE(static_cast<int>(shared_bytes(spec)), arch.shared_bytes_per_cta);
              EXPECT_GE(spec.stages, 2 * spec.k_group);
              EXPECT_EQ(boxes.a_rows % 8, 0);
              EXPECT_EQ(boxes.b_rows % 8, 0) << "rows of a swizzle's pattern";
              EXPECT_EQ(boxes.b_rows * boxes.b_sharers * spec.cta_group, spec.block_n);
              EXPECT_EQ(layout.b % 1024, 0);
              EXPECT_EQ(layout.output % 1024, 0);
              EXPECT_EQ(contract::blackwell_gemm_b_bytes(shape) % 1024, 0);
              EXPECT_EQ(layout.scales_a % 128, 0);
              EXPECT_EQ(layout.scales_b % 128, 0);
              EXPECT_EQ(layout.items % 16, 0);
              EXPECT_EQ(layout.barriers % 8, 0);
              const int stored = contract::blackwell_gemm_store_columns(shape);
              EXPECT_EQ(spec.block_n % stored, 0);
              EXPECT_GE(stored * shape.d_bytes, 16) << "TMA stores whole 16 bytes";
            }
  EXPECT_GT(fitting, 1500);
}

TEST(BlackwellGemm, AccumulatorsAreWhatTensorMemoryHolds) {
  EXPECT_EQ(planned(problem(4096, 4096), tile(256)).accumulators, 2);
  EXPECT_EQ(planned(problem(4096, 4096, DType::kMxfp8), tile(256)).accumulators, 1);
  EXPECT_EQ(planned(problem(4096, 4096, DType::kNvfp4), tile(192)).accumulators, 2);
  const GemmSpec blocks = planned(problem(4096, 4096, DType::kE4m3, ScaleKind::kPerBlock), tile(128));
  EXPECT_EQ(blocks.accumulators, 4);
  EXPECT_EQ(blocks.promotion, 1);
  const GemmSpec many = planned(problem(4096, 4096, DType::kE4m3, ScaleKind::kPerBlock),
                                with(tile(16), [](auto& s) { s.accumulator_stages = 32; }));
  EXPECT_EQ(contract::blackwell_gemm_columns(blackwell_gemm_shape_of(many)).used, 512);
}

TEST(BlackwellGemm, SumsOfFp8StayInF32WhateverIsAsked) {
  GemmProblem of = problem(4096, 4096, DType::kE4m3, ScaleKind::kPerTensor);
  const GemmSpec plain = planned(of, tile(128));
  EXPECT_EQ(plain.promotion, 0);
  of.fast_accumulation = true;
  EXPECT_EQ(planned(of, tile(128)), plain);
}

TEST(BlackwellGemm, MapsNameAllOfSharedAndTensorMemory) {
  for (const DType operands : kOperands)
    for (const Scheduler scheduler : {Scheduler::kPersistent, Scheduler::kQueued}) {
      const GemmSpec spec =
          planned(problem(4096, 4096, operands), with(tile(128), [&](auto& s) { s.scheduler = scheduler; }));
      std::uint32_t end = 0;
      for (const SharedRegion& region : shared_map(spec)) {
        EXPECT_EQ(region.offset, end) << region.name;
        end = region.offset + region.bytes;
      }
      EXPECT_EQ(end, shared_bytes(spec));
      const TensorMemoryMap memory = tensor_memory_map(spec);
      int column = 0;
      for (const TensorMemoryRegion& region : memory.regions) {
        EXPECT_EQ(region.column, column) << region.name;
        column = region.column + region.columns;
      }
      EXPECT_EQ(column, memory.used);
      EXPECT_GE(memory.allocated, memory.used);
    }
}

constexpr std::pair<int, int> kModels[] = {{2112, 7168},  {576, 7168},   {24576, 1536}, {32768, 512},  {7168, 16384},
                                           {4096, 7168},  {7168, 2048},  {10240, 8192}, {8192, 8192},  {57344, 8192},
                                           {8192, 28672}, {5120, 8192},  {28672, 8192}, {8192, 14336}, {6144, 4096},
                                           {4096, 4096},  {28672, 4096}, {4096, 14336}};

TEST(BlackwellGemmPlan, AModelsDenseLayersShareFewKernels) {
  for (const DType operands : {DType::kBf16, DType::kE4m3, DType::kMxfp8, DType::kNvfp4}) {
    std::set<std::string> kernels;
    for (const auto& [n, k] : kModels) {
      const GemmPlan plan = plan_gemm(problem(n, k, operands), any_tile(), Arch::kSm100a);
      int before = 0;
      for (const GemmVariant& variant : plan.variants) {
        EXPECT_GT(variant.most_m, before);
        before = variant.most_m;
        kernels.insert(canonical_text(variant.spec));
      }
      EXPECT_EQ(before, INT_MAX);
      EXPECT_LE(plan.variants.front().spec.block_n, 64) << n << " x " << k << ": small tiles for 16 rows";
      EXPECT_EQ(plan.variants.back().spec.cta_group, 2) << n << " x " << k;
    }
    EXPECT_LE(kernels.size(), 14u) << to_string(operands);
    EXPECT_GE(kernels.size(), 4u) << to_string(operands);
  }
}

TEST(BlackwellGemmPlan, ManyTilesAreQueuedAndFewDealtOut) {
  const GemmPlan plan = plan_gemm(problem(8192, 8192), any_tile(), Arch::kSm100a);
  EXPECT_EQ(plan.variants.back().spec.scheduler, Scheduler::kQueued);
  EXPECT_EQ(plan.variants.back().spec.clc_depth, 2);
  EXPECT_EQ(plan.variants.front().spec.scheduler, Scheduler::kPersistent);
  EXPECT_EQ(plan.variants.front().spec.clc_depth, 0);
}

TEST(BlackwellGemmPlan, ABatchInvariantProblemHasNoPartsOfK) {
  GemmProblem of = problem(576, 7168);
  EXPECT_GT(plan_gemm(of, any_tile(), Arch::kSm100a).variants.front().spec.split_k, 1) << "too few tiles";
  of.batch_invariant = true;
  for (const GemmVariant& variant : plan_gemm(of, any_tile(), Arch::kSm100a).variants)
    EXPECT_EQ(variant.spec.split_k, 1);
}

TEST(BlackwellGemmPlan, AClusterIsWhatItsPairsNeed) {
  const GemmProblem of = problem(4096, 4096);
  EXPECT_EQ(planned(of, tile(256, 2)).cluster_m, 2);
  EXPECT_EQ(planned(of, with(any_tile(), [](auto& s) { s.cluster = ClusterShape{1, 2}; })).cta_group, 1);
  EXPECT_EQ(planned(of, with(any_tile(), [](auto& s) { s.clc_depth = 3; })).scheduler, Scheduler::kQueued);
}

Predicted predicted(int n, int k, int m, DType operands = DType::kBf16, const GemmSchedule& schedule = any_tile()) {
  const GemmProblem of = problem(n, k, operands);
  return *predict(plan_gemm(of, schedule, Arch::kSm100a), of, {"", m});
}

TEST(BlackwellGemmPrediction, SaysWhatALaunchWaitsFor) {
  const Predicted large = predicted(8192, 8192, 8192);
  EXPECT_GT(large.tflops(), 1400);
  EXPECT_LT(large.tflops(), 2250) << "the data sheet's";
  EXPECT_EQ(large.bound, "L2");
  EXPECT_GT(large.term("products"), 0.7 * large.microseconds);
  EXPECT_EQ(predicted(28672, 8192, 16).bound, "memory");
  EXPECT_EQ(predicted(256, 128, 128).bound, "latency");
  EXPECT_FALSE(large.machine->measured);
}

TEST(BlackwellGemmPrediction, HalfAsManyBitsTakeLessTime) {
  const double bf16 = predicted(8192, 8192, 8192).microseconds;
  const double fp8 = predicted(8192, 8192, 8192, DType::kE4m3).microseconds;
  const double fp4 = predicted(8192, 8192, 8192, DType::kNvfp4).microseconds;
  EXPECT_NEAR(fp8 / bf16, 0.5, 0.05);
  EXPECT_LT(fp4, 0.7 * fp8);
}

TEST(BlackwellGemmPrediction, AnExposedEpilogueCosts) {
  const auto time = [](int accumulators) {
    return predicted(8192, 1024, 8192, DType::kBf16,
                     with(tile(256, 2), [&](auto& s) { s.accumulator_stages = accumulators; }))
        .microseconds;
  };
  EXPECT_GT(time(1), 1.05 * time(2));
}

TEST(BlackwellGemmLaunch, GridsAreTilesOrWhatFits) {
  GemmSpec spec = planned(problem(4096, 4096), tile(256, 2));
  spec.scheduler = Scheduler::kPersistent, spec.clc_depth = 0;
  const LaunchPlan walked = plan_launch(spec, {4096, 4096, 4096}, 148, 74);
  EXPECT_EQ(walked.grid[0], 2 * 64u) << "256 clusters: 4 rounds of 64";
  EXPECT_EQ(walked.cluster, 2u);
  EXPECT_EQ(walked.block, 256u);
  EXPECT_EQ(plan_launch(spec, {4096, 4096, 4096, 20}, 148, 74).grid[0], 20u);
  EXPECT_FALSE(takes_all_sms(spec));
  spec.scheduler = Scheduler::kQueued, spec.clc_depth = 2;
  EXPECT_EQ(plan_launch(spec, {4096, 4096, 4096}, 148, 74).grid[0], 2 * 256u);
  EXPECT_EQ(plan_launch(spec, {4097, 4100, 4096}, 148, 74).grid[0], 2 * 17u * 17u);
  EXPECT_TRUE(takes_all_sms(spec));
  spec.cluster_m = 4, spec.cluster_n = 2;
  EXPECT_EQ(plan_launch(spec, {4096, 4096, 4096}, 148, 16).grid[0], 8 * 8u * 8u) << "512 rows by 512 columns";
}

TEST(BlackwellGemmLaunch, PartsOfKHaveCtasAndMemoryOfTheirOwn) {
  GemmSpec spec = planned(problem(4096, 4096), tile(64));
  EXPECT_EQ(plan_workspace(spec, {200, 100, 4096}).bytes, 0u);
  spec.split_k = 4;
  const GemmExtent extent{200, 100, 4096};  // 2 x 2 tiles
  EXPECT_EQ(plan_launch(spec, extent, 148, 0).grid[0], 16u);
  EXPECT_TRUE(takes_all_sms(spec));
  const GemmWorkspace workspace = plan_workspace(spec, extent);
  EXPECT_EQ(workspace.turns, 16u);
  EXPECT_EQ(workspace.zeros, 16u + 4u * 4 * 4) << "4 tiles of 4 warps";
  EXPECT_EQ(workspace.bytes, workspace.partials + 4u * 64 * 128 * 4);
  spec.swap_ab = true;
  EXPECT_EQ(plan_workspace(spec, extent).zeros, 16u + 4u * 4 * 4) << "100 by 200: 1 x 4 tiles";
  spec.cluster_m = 2, spec.cluster_n = 2;
  EXPECT_EQ(plan_workspace(spec, extent).zeros, 16u + 8u * 4 * 4) << "1 x 2 clusters of 4";
  EXPECT_EQ(plan_launch(spec, extent, 148, 0).grid[0], 32u);
  EXPECT_EQ(plan_workspace(spec, {0, 100, 4096}).bytes, 0u);
}

}  // namespace
}  // namespace kernelwright
