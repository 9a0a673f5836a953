/// How a GEMM is planned, and what is refused.
#include "kernelwright/generator/gemm/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>
#include <tuple>

#include "contract/tile_bands.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/generator/source/specialize.h"

namespace kernelwright::planner_test {
namespace {

using ::testing::HasSubstr;

GemmProblem problem(int n, int k) {
  GemmProblem of;
  of.n = n;
  of.k = k;
  return of;
}

std::string refusal(const GemmProblem& of, const GemmSchedule& schedule) {
  try {
    plan_gemm(of, schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Epilogue, ReadsItsParts) {
  EXPECT_EQ(parse_epilogue("acc"), Epilogue{});
  EXPECT_EQ(parse_epilogue(" acc+bias "), (Epilogue{.bias = true}));
  EXPECT_EQ(parse_epilogue("alpha*acc + beta * c"), (Epilogue{.alpha = true, .c = true, .beta = true}));
  EXPECT_EQ(parse_epilogue("gelu_tanh(alpha * acc + bias) + c"),
            (Epilogue{.alpha = true, .bias = true, .c = true, .activation = Activation::kGeluTanh}));
  EXPECT_EQ(parse_epilogue("silu(acc) + beta*c"), (Epilogue{.c = true, .beta = true, .activation = Activation::kSilu}));
}

TEST(Epilogue, ReadsGatesAndUps) {
  const auto gated = [](Epilogue epilogue) {
    epilogue.gated = true;
    return epilogue;
  };
  EXPECT_EQ(parse_epilogue("silu(gate) * up"), gated({.activation = Activation::kSilu}));
  EXPECT_EQ(parse_epilogue("gate*up"), gated({}));
  EXPECT_EQ(parse_epilogue("(alpha * gate) * (alpha * up)"), gated({.alpha = true}));
  EXPECT_EQ(parse_epilogue("gelu(alpha * gate + bias) * (alpha * up + bias)"),
            gated({.alpha = true, .bias = true, .activation = Activation::kGelu}));
  const Epilogue clamped = gated({.clamped = true, .limit = 7, .steepness = 1.702f});
  EXPECT_EQ(parse_epilogue("(clamp(up, -7, 7) + 1) * min(gate, 7.0) * sigmoid(1.702 * min(gate, 7))"), clamped);

  GemmProblem problem;
  problem.n = 96;
  EXPECT_EQ(result_columns(problem), 96);
  problem.epilogue = "silu(gate) * up";
  EXPECT_EQ(result_columns(problem), 48);
}

TEST(Epilogue, ReadsAResultThatIsQuantised) {
  const auto quantised = [](Epilogue epilogue) {
    epilogue.quantizes = true;
    return epilogue;
  };
  EXPECT_EQ(parse_epilogue("d = quantize(acc, e4m3, per=token_group(128), scale=s)"), quantised({}));
  EXPECT_EQ(parse_epilogue("x = silu(gate) * up; d = quantize(x, e4m3, per=token_group(128), scale=s)"),
            quantised({.activation = Activation::kSilu, .gated = true}));
  Epilogue other = quantised({.alpha = true, .bias = true, .c = true, .power_of_two = true});
  other.to = DType::kE5m2;
  EXPECT_EQ(parse_epilogue("h_1 = alpha * acc + bias + c; "
                           "d = quantize(h_1, e5m2, scale = s, round = power_of_two, per = token_group(128)) ; "),
            other);

  Epilogue blocks = quantised({.activation = Activation::kRelu});
  blocks.to = DType::kMxfp4, blocks.round_up = blocks.rows_of_scales = true;
  EXPECT_EQ(parse_epilogue("d = quantize(relu(acc), mxfp4, per=token_group(32), layout=rows, scale=s, round=up)"),
            blocks);
  blocks.round_up = blocks.rows_of_scales = false;
  EXPECT_EQ(parse_epilogue("d = quantize(relu(acc), mxfp4, round=ocp, per=token_group(32), layout=atoms, scale=s)"),
            blocks);
  blocks.to = DType::kNvfp4;
  EXPECT_EQ(parse_epilogue("d = quantize(relu(acc), nvfp4, per=token_group(16), scale=s)"), blocks);

  GemmProblem problem;
  problem.n = 512, problem.epilogue = "d = quantize(gate * up, e4m3, per=token_group(128), scale=s)";
  EXPECT_EQ(result_columns(problem), 256);
  EXPECT_TRUE(quantizes(problem));
}

TEST(Epilogue, ReadsOutputsBesideD) {
  const Epilogue both = parse_epilogue("x = acc + c; d = x; amax = amax(x); squares = sum(x * x, over=n)");
  EXPECT_TRUE(both.c && both.amax && both.squares && !both.quantizes);
  const Epilogue quantised = parse_epilogue(
      "h = alpha * rstd * acc; squares = sum(h * h, over=n); "
      "d = quantize(h, e4m3, per=token_group(128), scale=s);");
  EXPECT_TRUE(quantised.alpha && quantised.rstd && quantised.squares && quantised.quantizes && !quantised.amax);
  EXPECT_TRUE(parse_epilogue("silu(rstd * gate + bias) * (rstd * up + bias)").rstd);
  EXPECT_EQ(parse_epilogue("x = silu(acc); d = x"), parse_epilogue("silu(acc)"));
  GemmProblem problem;
  problem.epilogue = "x = acc; d = x; amax = amax(x)";
  EXPECT_TRUE(measures(problem));
}

TEST(GemmPlan, TilesThatMeasureHoldWholeSums) {
  GemmProblem of = problem(4096, 7168);
  of.epilogue = "x = rstd * acc + c; d = x; squares = sum(x * x, over=n)";
  for (const Arch arch : {Arch::kSm80, Arch::kSm90a, Arch::kSm100a})
    for (const GemmVariant& variant : plan_gemm(of, {}, arch).variants) {
      EXPECT_TRUE(variant.spec.squares && variant.spec.rstd && !variant.spec.swap_ab);
      EXPECT_EQ(variant.spec.block_n % 128, 0);
    }
}

TEST(GemmPlan, TilesThatWriteACacheHoldWholeHeads) {
  for (const int head_dim : {64, 128, 256}) {
    GemmProblem of = problem(6 * head_dim, 4096);
    of.kv_write.emplace();
    of.kv_write->head_dim = {head_dim, head_dim}, of.kv_write->heads = {4, 1};
    of.kv_write->kv_layout = {KvLayoutKind::kPaged, 16};
    for (const Arch arch : {Arch::kSm80, Arch::kSm90a, Arch::kSm100a})
      for (const GemmVariant& variant : plan_gemm(of, {}, arch).variants) {
        EXPECT_TRUE(variant.spec.writes_kv && variant.spec.kv.head_dim_qk == head_dim);
        EXPECT_EQ((variant.spec.swap_ab ? variant.spec.block_m : variant.spec.block_n) % head_dim, 0);
      }
    EXPECT_EQ(result_columns(of), 4 * head_dim);
  }
}

/// ptxas spills where four parts of k each have the steps of a norm and of scales per token.
TEST(GemmPlan, FewPartsWriteACacheOfManySteps) {
  GemmProblem of = problem(1536, 4096);
  of.kv_write.emplace();
  of.kv_write->head_dim = {256, 256}, of.kv_write->heads = {4, 1};
  of.kv_write->kv_layout = {KvLayoutKind::kPaged, 16};
  const auto most_parts = [&] {
    int most = 0;
    for (const GemmVariant& variant : plan_gemm(of, {}, Arch::kSm90a).variants)
      if (variant.spec.swap_ab) most = std::max(most, variant.spec.split_k);
    return most;
  };
  EXPECT_EQ(most_parts(), 4);
  of.kv_write->dtype.kv = DType::kE4m3;
  of.kv_write->scales.k = of.kv_write->scales.v = ScaleKind::kPerToken;
  EXPECT_EQ(most_parts(), 2);
}

TEST(Epilogue, SaysWhereItStopped) {
  const auto stops = [](std::string_view text) -> std::string {
    try {
      parse_epilogue(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(stops("gelu(acc"), HasSubstr("\"gelu(acc\": the end where \"+\" or \")\" would do"));
  EXPECT_THAT(stops("acc + acc"), HasSubstr("\"acc\" where bias, c or beta would do"));
  EXPECT_THAT(stops("tanh(acc)"), HasSubstr("\"tanh\" where acc, alpha or an activation would do"));
  EXPECT_THAT(stops("alpha acc"), HasSubstr("\"acc\" where \"*\" would do"));
  EXPECT_THAT(stops("acc + c + c"), HasSubstr("\"+\" where the end would do"));
  EXPECT_THAT(stops("relu(acc + c)"), HasSubstr("\"c\" where bias would do"));
  EXPECT_THAT(stops("silu(gate)"), HasSubstr("the end where \"*\" would do"));
  EXPECT_THAT(stops("silu(gate) * up + c"), HasSubstr("\"+\" where the end would do"));
  EXPECT_THAT(stops("silu(up) * gate"), HasSubstr("\"up\" where gate would do"));
  EXPECT_THAT(stops("silu(gate + bias) * up"), HasSubstr("\"up\" where \"(\", and alpha and bias as the gate has"));
  EXPECT_THAT(stops("silu(gate) * (up + bias)"), HasSubstr("\"+\" where \")\" would do"));
  EXPECT_THAT(stops("silu(gate + bias) * (up)"), HasSubstr("where \"+\" and bias, as the other factor has it"));
  EXPECT_THAT(stops("(clamp(up, -7, 6) + 1) * min(gate, 7) * sigmoid(1.702 * min(gate, 7))"),
              HasSubstr("\"6\" where the same limit would do"));
  EXPECT_THAT(stops("(clamp(up, -x, 7) + 1)"), HasSubstr("\"x\" where the limit, a number would do"));
  EXPECT_THAT(stops("d = quantize(acc, e4m3, scale=s)"),
              HasSubstr("\")\" where per=token_group(128) would do; it takes "
                        "d = quantize(x, e4m3, per=token_group(128), scale=s)"));
  EXPECT_THAT(stops("d = quantize(acc, e4m3, per=token_group(128))"), HasSubstr("\")\" where scale=s would do"));
  EXPECT_THAT(stops("d = quantize(acc, e4m3, per=token_group(64), scale=s)"), HasSubstr("\"64\" where 128 would do"));
  EXPECT_THAT(stops("d = quantize(acc, bf16, per=token_group(128), scale=s)"),
              HasSubstr("\"bf16\" where e4m3, e5m2, mxfp8, mxfp4 or nvfp4 would do"));
  EXPECT_THAT(stops("d = quantize(acc, nvfp4, per=token_group(32), scale=s)"), HasSubstr("\"32\" where 16 would do"));
  EXPECT_THAT(stops("d = quantize(acc, mxfp8, scale=s)"), HasSubstr("\")\" where per=token_group(32) would do"));
  EXPECT_THAT(stops("d = quantize(acc, mxfp8, per=token_group(32), round=power_of_two, scale=s)"),
              HasSubstr("\"power_of_two\" where ocp or up would do"));
  EXPECT_THAT(stops("d = quantize(acc, nvfp4, per=token_group(16), round=up, scale=s)"),
              HasSubstr("\"round\" where per, scale or layout would do"));
  EXPECT_THAT(stops("d = quantize(acc, e4m3, layout=rows, per=token_group(128), scale=s)"),
              HasSubstr("\"layout\" where per, scale or round would do"));
  EXPECT_THAT(stops("d = quantize(acc, mxfp8, layout=columns, per=token_group(32), scale=s)"),
              HasSubstr("\"columns\" where atoms or rows would do"));
  EXPECT_THAT(stops("x = acc; d = quantize(acc, e4m3, per=token_group(128), scale=s)"),
              HasSubstr("\"acc\" where x would do"));
  EXPECT_THAT(stops("up = acc; d = quantize(up, e4m3, per=token_group(128), scale=s)"),
              HasSubstr("\"up\" where d, or a new name of the value, would do"));
  EXPECT_THAT(stops("x = acc d = quantize(x, e4m3, per=token_group(128), scale=s)"), HasSubstr("\"d\" where \";\""));
  EXPECT_THAT(stops("x = acc; amax = amax(x)"),
              HasSubstr("the end where d = ... would do; it takes x = ...; d = x, or"));
  EXPECT_THAT(stops("x = acc; d = x; d = x"), HasSubstr("\"d\" where another output, amax or squares, would do"));
  EXPECT_THAT(stops("x = acc; d = y; amax = amax(x)"), HasSubstr("\"y\" where \"quantize\" or x would do"));
  EXPECT_THAT(stops("x = acc; d = x; squares = sum(x * x)"), HasSubstr("\")\" where \",\" would do"));
  EXPECT_THAT(stops("d = quantize(acc, e4m3, per=token_group(128), scale=s); amax = amax(acc)"),
              HasSubstr("\"acc\" where a name of the value ahead of the outputs would do"));
  EXPECT_THAT(stops("silu(rstd * gate) * up"), HasSubstr("\"up\" where \"(\""));
  EXPECT_THAT(stops("d = quantize(acc, e4m3, per=token_group(128), scale=s, scale=s)"),
              HasSubstr("\"scale\" where another option would do"));
}

TEST(GemmPlan, TilesOfAQuantisedResultHoldWholeScales) {
  GemmProblem of = problem(4096, 7168);
  of.dtype.d = DType::kE4m3;
  for (const char* value : {"acc", "silu(gate) * up"})
    for (const Arch arch : {Arch::kSm89, Arch::kSm90a, Arch::kSm100a}) {
      of.epilogue = std::string("x = ") + value + "; d = quantize(x, e4m3, per=token_group(128), scale=s)";
      for (const GemmVariant& variant : plan_gemm(of, {}, arch).variants) {
        EXPECT_TRUE(variant.spec.quantizes);
        EXPECT_EQ((variant.spec.swap_ab ? variant.spec.block_m : variant.spec.block_n) % variant.spec.scaled_columns(),
                  0);
      }
    }
}

TEST(GemmPlan, BlackwellServesQuantisedResultsItself) {
  GemmProblem of = problem(4096, 7168);
  for (const DType format : {DType::kE4m3, DType::kMxfp8})
    for (const GroupKind kind : {GroupKind::kNone, GroupKind::kRows}) {
      of.dtype.d = format;
      of.epilogue = std::string("x = silu(gate) * up; d = quantize(x, ") +
                    (format == DType::kE4m3 ? "e4m3, per=token_group(128)" : "mxfp8, per=token_group(32)") +
                    ", scale=s)";
      of.groups = {kind, kind == GroupKind::kNone ? 1 : 16};
      for (const GemmVariant& variant : plan_gemm(of, {}, Arch::kSm100a).variants) {
        EXPECT_EQ(variant.spec.family, Family::kBlackwell);
        EXPECT_FALSE(variant.spec.swap_ab);
        EXPECT_EQ(variant.spec.block_n, 256);
      }
    }
}

TEST(GemmPlan, VariantsCoverEveryRowCountOnce) {
  for (const auto& [n, k] : {std::pair{4096, 4096}, {7168, 2048}, {512, 7168}, {128256, 4096}, {8, 64}}) {
    const GemmPlan plan = plan_gemm(problem(n, k), {}, Arch::kSm90a);
    ASSERT_FALSE(plan.variants.empty());
    int before = 0;
    for (const GemmVariant& variant : plan.variants) {
      EXPECT_GT(variant.most_m, before);
      before = variant.most_m;
    }
    EXPECT_EQ(before, INT_MAX);
    for (std::size_t i = 1; i < plan.variants.size(); ++i) EXPECT_NE(plan.variants[i - 1].spec, plan.variants[i].spec);
    EXPECT_EQ(plan.variant_for(1).spec, plan.variants.front().spec);
    EXPECT_EQ(plan.variant_for(1 << 20).spec, plan.variants.back().spec);
  }
}

/// As an H100 measured them: bench/results/moe/2026-11-27-h100-layers.md and gemm/2026-11-27-h100-gates-tiles.csv.
TEST(GemmPlan, TilesOfGatesAndGroupsAreTheMeasuredOnes) {
  const auto tile = [](const GemmProblem& problem, int m) {
    const GemmSpec& spec = plan_by_model(problem, {}, Arch::kSm90a).variant_for(m).spec;
    return std::tuple{spec.block_m, spec.block_n, spec.swap_ab};
  };
  GemmProblem gates;
  gates.n = 28672, gates.k = 4096, gates.epilogue = "silu(gate) * up";
  EXPECT_EQ(tile(gates, 8192), (std::tuple{128, 176, false}));
  GemmProblem qwen;
  qwen.n = 1536, qwen.k = 2048, qwen.epilogue = "silu(gate) * up";
  qwen.groups = {GroupKind::kRows, 128, GroupBounds::kStarts, true};
  for (const int rows : {256, 2048}) EXPECT_EQ(tile(qwen, rows), (std::tuple{128, 256, false})) << rows;
  EXPECT_EQ(tile(qwen, 4), (std::tuple{64, 32, true}));
  GemmProblem deepseek;
  deepseek.n = 7168, deepseek.k = 256, deepseek.scales = ScaleKind::kPerBlock;
  deepseek.dtype.a = deepseek.dtype.b = DType::kE4m3;
  deepseek.groups = {GroupKind::kRows, 256, GroupBounds::kStarts, false};
  EXPECT_EQ(tile(deepseek, 1), (std::tuple{128, 16, true}));
  EXPECT_EQ(tile(deepseek, 4), (std::tuple{128, 32, true}));
}

TEST(GemmPlan, AModelsDenseLayersShareKernels) {
  std::set<std::string> kernels;
  for (const auto& [n, k] : {std::pair{2112, 7168},
                             {576, 7168},
                             {24576, 1536},
                             {32768, 512},
                             {7168, 16384},
                             {4096, 7168},
                             {7168, 2048},
                             {10240, 8192},
                             {8192, 8192},
                             {57344, 8192},
                             {8192, 28672},
                             {5120, 8192},
                             {28672, 8192},
                             {8192, 14336},
                             {6144, 4096},
                             {4096, 4096},
                             {28672, 4096},
                             {4096, 14336}})
    for (const GemmVariant& variant : plan_gemm(problem(n, k), {}, Arch::kSm90a).variants)
      kernels.insert(canonical_text(variant.spec));
  EXPECT_LE(kernels.size(), 48u);
  EXPECT_GE(kernels.size(), 4u);
}

TEST(GemmPlan, AScheduleThatSaysItsTileHasOneVariant) {
  GemmSchedule schedule;
  schedule.block_m = 128;
  schedule.block_n = 176;
  schedule.roles = Roles::kPingPong;
  schedule.math_warpgroups = 2;
  schedule.k_group = 1;
  const GemmPlan plan = plan_gemm(problem(4352, 4096), schedule, Arch::kSm90a);  // no tuned row has it
  ASSERT_EQ(plan.variants.size(), 1u);
  EXPECT_EQ(plan.variants[0].spec.block_n, 176);
  EXPECT_LE(shared_bytes(plan.variants[0].spec), 232448u);
}

TEST(GemmPlan, RefusesWhatNoTileFits) {
  GemmSchedule schedule;
  schedule.block_m = 128;
  schedule.block_n = 208;
  schedule.roles = Roles::kPingPong;
  schedule.math_warpgroups = 2;
  EXPECT_THAT(refusal(problem(4096, 4096), schedule),
              HasSubstr("/schedule/block_n: 208 columns of 128 rows take 208 registers a thread, too many for 2 math "
                        "warpgroups; 200 would fit"));
  schedule.block_n = 128;
  schedule.stages = 7;
  schedule.k_group = 1;
  EXPECT_THAT(refusal(problem(4096, 4096), schedule), HasSubstr("stages 6 would fit"));
  schedule.stages = 4;
  schedule.split_k = 2;
  EXPECT_THAT(refusal(problem(4096, 4096), schedule), HasSubstr("/schedule/split_k: 2: CTAs of a cluster either"));
  GemmSchedule narrow;
  narrow.block_n = 24;
  GemmProblem bytes = problem(4096, 4096);
  bytes.dtype.d = DType::kE4m3;
  EXPECT_THAT(
      refusal(bytes, narrow),
      HasSubstr("/schedule/block_n: 24 columns of e4m3 are rows of no whole 16 bytes, which TMA stores; 32 would "
                "do"));
  narrow.swap_ab = true;
  EXPECT_EQ(refusal(bytes, narrow), "");
  GemmSchedule other;
  other.clc_depth = 2;
  EXPECT_THAT(refusal(problem(4096, 4096), other), HasSubstr("the hopper family has no clc_depth"));
}

TEST(GemmPlan, PartsInAClusterNeedARingWithRoomForTheirSums) {
  GemmSchedule schedule;
  schedule.block_m = 128, schedule.block_n = 256, schedule.math_warpgroups = 2, schedule.stages = 2;
  schedule.roles = Roles::kCooperative;
  schedule.split_k = 4;
  EXPECT_THAT(
      refusal(problem(4096, 4096), schedule),
      HasSubstr("/schedule/stages: 2 slots have no room for the 131072 bytes of sums that 4 parts of a tile hand "
                "each other; 3 would do"));
  schedule.stages = 3;
  EXPECT_EQ(refusal(problem(4096, 4096), schedule), "");
  schedule.stages = 2;
  schedule.split_mode = SplitMode::kTurnstile;
  EXPECT_EQ(refusal(problem(4096, 4096), schedule), "");
}

TEST(GemmPlan, PartsOfKTakeTurnsWhereTheScheduleSaysSo) {
  GemmSchedule schedule;
  schedule.block_m = 64, schedule.block_n = 72, schedule.math_warpgroups = 1, schedule.stages = 4;
  schedule.split_k = 3;
  EXPECT_THAT(refusal(problem(4096, 4096), schedule),
              HasSubstr("/schedule/split_k: 3 is not built yet for the hopper family; it has 1, 2, 4, 8, and 1 to 16 "
                        "with split_mode \"turnstile\""));
  schedule.split_mode = SplitMode::kTurnstile;
  const GemmSpec spec = plan_gemm(problem(4096, 4096), schedule, Arch::kSm90a).variants[0].spec;
  EXPECT_TRUE(spec.takes_turns());
  EXPECT_EQ(spec.cluster(), 1);
  EXPECT_TRUE(takes_all_sms(spec));
  EXPECT_EQ(plan_launch(spec, {130, 4096, 4096}, 132, 0).grid[0], 3u * 57 * 3) << "a CTA for each part";
  const GemmWorkspace workspace = plan_workspace(spec, {130, 4096, 4096});
  EXPECT_EQ(workspace.zeros, 16u + 3 * 57 * 4 * 4) << "a word for each of 4 warps";
  EXPECT_EQ(workspace.bytes, workspace.zeros + 3 * 57 * 64 * 72 * 4);
  schedule.split_k = 17;
  EXPECT_THAT(
      refusal(problem(4096, 4096), schedule),
      HasSubstr("/schedule/split_k: 17 is not built yet for the hopper family; it has 1 to 16 with split_mode"));
  schedule.split_k = 2;
  schedule.split_mode = SplitMode::kTurnstile;
  schedule.cluster = ClusterShape{2, 1};
  EXPECT_THAT(refusal(problem(4096, 4096), schedule), HasSubstr("/schedule/split_k: 2: parts that take turns"));
}

TEST(GemmPlan, PartsOfKChangeTheOrderThatABatchInvariantProblemKeeps) {
  GemmProblem of = problem(4096, 4096);
  of.batch_invariant = true;
  GemmSchedule schedule;
  for (const SplitMode mode : {SplitMode::kCluster, SplitMode::kTurnstile}) {
    schedule.split_k = 2;
    schedule.split_mode = mode;
    EXPECT_THAT(refusal(of, schedule),
                HasSubstr("/schedule/split_k: 2: parts of k are added in another order than the whole, and the problem "
                          "is batch_invariant; 1 would do"));
    schedule.split_k = 1;
    EXPECT_EQ(refusal(of, schedule), "");
  }
}

TEST(GemmPlan, OnePartIsTheSameKernelInEitherMode) {
  GemmSchedule schedule;
  schedule.split_k = 1;
  const GemmPlan plain = plan_gemm(problem(4096, 4096), schedule, Arch::kSm90a);
  schedule.split_mode = SplitMode::kTurnstile;
  EXPECT_EQ(plan_gemm(problem(4096, 4096), schedule, Arch::kSm90a).variants, plain.variants);
}

TEST(GemmPlan, PortableServesWhatTheArchitecturesOwnDoesNot) {
  const auto family = [](const GemmProblem& of, Arch arch) {
    return plan_gemm(of, {}, arch).variants.back().spec.family;
  };
  EXPECT_EQ(family(problem(4096, 4096), Arch::kSm90a), Family::kHopper);
  EXPECT_EQ(family(problem(4096, 4096), Arch::kSm100a), Family::kBlackwell);
  EXPECT_EQ(family(problem(4096, 4096), Arch::kSm103a), Family::kBlackwell);
  EXPECT_EQ(family(problem(4095, 4096), Arch::kSm90a), Family::kPortable) << "rows of d begin anywhere";
  EXPECT_EQ(family(problem(4095, 4096), Arch::kSm100a), Family::kPortable) << "likewise";
  for (const ArchInfo& arch : all_archs()) {
    if (own_family(arch.arch)) continue;
    const GemmPlan plan = plan_gemm(problem(4096, 4096), {}, arch.arch);
    EXPECT_LT(plan.variants.front().spec.block_m, 64) << arch.name;
    EXPECT_EQ(plan.variants.back().spec.block_m * plan.variants.back().spec.block_n, 128 * 128) << arch.name;
    for (const GemmVariant& variant : plan.variants) {
      EXPECT_EQ(variant.spec.family, Family::kPortable);
      EXPECT_EQ(variant.spec.promotion, 0);
      EXPECT_GE(variant.spec.stages, 3);
      EXPECT_LE(static_cast<int>(shared_bytes(variant.spec)), arch.shared_bytes_per_cta);
    }
  }
}

TEST(GemmPlan, PortableAddsFp8SumsInF32UnlessToldNotTo) {
  GemmProblem of = problem(4096, 4096);
  of.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  EXPECT_EQ(plan_gemm(of, {}, Arch::kSm89).variants[0].spec.promotion, 1);
  of.fast_accumulation = true;
  EXPECT_EQ(plan_gemm(of, {}, Arch::kSm89).variants[0].spec.promotion, 0);
}

TEST(GemmPlan, PortableRefusesStagesThatDoNotFit) {
  GemmSchedule schedule;
  schedule.block_m = schedule.block_n = 128;
  const auto refused = [&](int stages) -> std::string {
    schedule.stages = stages;
    try {
      plan_gemm(problem(4096, 4096), schedule, Arch::kSm86);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused(4), HasSubstr("/schedule/stages: gemm_portable: needs 131072 shared bytes and sm_86 has 101376; "
                                    "stages 3 would fit"));
  EXPECT_THAT(refused(1), HasSubstr("/schedule/stages: 1: one slab is loaded while another is multiplied; 2 would do"));
  EXPECT_EQ(refused(3), "");
}

TEST(GemmLaunch, PortableCtasHaveATileEachUnlessThereShallBeFew) {
  const GemmSpec spec = plan_gemm(problem(4096, 4096), {}, Arch::kSm80).variants.back().spec;
  EXPECT_EQ(plan_launch(spec, {4096, 4096, 4096}, 108, 0).grid[0], 1024u);
  EXPECT_EQ(plan_launch(spec, {4096, 4096, 4096, 20}, 108, 0).grid[0], 20u);
}

TEST(GemmLaunch, GridsAreNoLargerThanTheMachineOrItsTiles) {
  GemmSpec spec = plan_gemm(problem(4096, 4096), {}, Arch::kSm90a).variants.back().spec;
  spec.block_m = 128, spec.block_n = 256;
  EXPECT_EQ(plan_launch(spec, {4096, 4096, 4096}, 132, 0).grid[0], 128u) << "512 tiles: 4 rounds of 128";
  EXPECT_EQ(plan_launch(spec, {4096, 4224, 4096}, 132, 0).grid[0], 109u) << "544 tiles: 5 rounds";
  EXPECT_EQ(plan_launch(spec, {128, 512, 4096}, 132, 0).grid[0], 2u);
  EXPECT_EQ(plan_launch(spec, {4096, 4096, 4096, 20}, 132, 0).grid[0], 20u);
  spec.cluster_m = 4;
  EXPECT_EQ(plan_launch(spec, {8192, 8192, 4096}, 132, 30).grid[0], 29u * 4) << "512 clusters: 18 rounds";
  EXPECT_EQ(plan_launch(spec, {8192, 8192, 4096}, 132, 30).cluster, 4u);
  EXPECT_EQ(plan_launch(spec, {8192, 8192, 4096, 1}, 132, 30).grid[0], 4u);
}

TEST(GemmLaunch, BandsReadFewRows) {
  GemmSpec spec;
  spec.family = Family::kHopper;
  spec.block_m = 128, spec.block_n = 176;
  const auto band = [&](int m, int n, int k, bool of_n = false) {
    return choose_bands(spec, {m, n, k}, 132, 0, of_n).band;
  };
  EXPECT_EQ(band(4096, 7168, 2048), 16);
  EXPECT_EQ(band(512, 7168, 2048), 4) << "there are four rows of tiles";
  EXPECT_EQ(band(4096, 7168, 2048, true), 8);
  spec.block_n = 128;
  EXPECT_EQ(band(4096, 7168, 2048), 8);
  EXPECT_EQ(band(4096, 512, 7168), 1) << "all tiles are worked on at a time: neighbours share A";
  EXPECT_EQ(band(384, 4096, 7168), 3) << "neighbours share B";
  EXPECT_EQ(band(1024, 1024, 7168), 8);
}

TEST(GemmSpecialization, NamesItsTemplateAndConstants) {
  const GemmSpec spec = plan_gemm(problem(4096, 4096), {}, Arch::kSm90a).variants.back().spec;
  const SourceUnit unit = specialize(spec);
  EXPECT_EQ(unit.kernel, "gemm_sm90");
  EXPECT_THAT(unit.spec_header, HasSubstr("constexpr DType kADType = DType::kBf16;"));
  EXPECT_THAT(unit.spec_header, HasSubstr("constexpr OperandLayout kLayout = OperandLayout::kNt;"));
  EXPECT_THAT(unit.spec_header, HasSubstr("constexpr int kBlockN = " + std::to_string(spec.block_n)));
  EXPECT_THAT(unit.spec_header, HasSubstr("#define KERNELWRIGHT_WGMMA_N0 " + std::to_string(spec.block_n)));
}

}  // namespace
}  // namespace kernelwright::planner_test
