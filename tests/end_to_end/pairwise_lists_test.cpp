#include "end_to_end/pairwise_lists.h"

#include <gtest/gtest.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kernels.h"

namespace kernelwright {
namespace {

using test::Factor;
using test::factor;

Mask mask_of(MaskKind kind, Window window = {}, int chunk = 0) {
  Mask mask{.kind = kind, .window = window, .chunk = chunk};
  if (kind == MaskKind::kAnd || kind == MaskKind::kOr)
    mask.operands = {Mask{.kind = MaskKind::kCausal}, Mask{.kind = MaskKind::kChunked, .chunk = 48}};
  return mask;
}

Mask causal_and_tensor() {
  Mask bytes{.kind = MaskKind::kTensor};
  bytes.tensor.heads = false;
  return {.kind = MaskKind::kAnd, .operands = {Mask{.kind = MaskKind::kCausal}, bytes}};
}

/// A field of the schedule: the planner's choice first, then each value.
template <class Config, class Schedule, class Value>
Factor<Config> choice(std::string name, Auto<Value> Schedule::*field, std::vector<Value> values) {
  Factor<Config> made{std::move(name), {[](Config&) {}}};
  for (const Value& value : values)
    made.values.push_back([field, value](Config& config) { config.schedule.*field = value; });
  return made;
}

/// Both lists restricted to what `arch` has: values that none of its families supports would only be drawn in vain.
template <class T>
std::vector<T> and_if(bool more, std::vector<T> values, const std::vector<T>& others) {
  if (more) values.insert(values.end(), others.begin(), others.end());
  return values;
}

std::vector<Factor<DrawnKernel>> attention_factors(Arch arch) {
  using K = DrawnKernel;
  using S = AttentionSchedule;
  const auto of_problem = [](std::string name, auto values, auto AttentionProblem::*field) {
    return factor<K>(std::move(name), values, [field](K& k, const auto& value) { k.problem.*field = value; });
  };
  constexpr DType bf16 = DType::kBf16, f16 = DType::kF16, f32 = DType::kF32, e4m3 = DType::kE4m3, e5m2 = DType::kE5m2;
  const bool blackwell = family_exists_on(Family::kBlackwell, arch);
  const Family mapped = blackwell ? Family::kBlackwell : Family::kHopper;
  std::vector<Factor<K>> factors = {
      choice<K, S, Family>("family", &S::family, {mapped, Family::kPortable}),
      of_problem("dtype",
                 and_if<AttentionDTypes>(blackwell,
                                         {{bf16, bf16, bf16},
                                          {f16, f16, f16},
                                          {bf16, bf16, f32},
                                          {bf16, e4m3, bf16},
                                          {f16, e5m2, f32},
                                          {e4m3, e4m3, bf16}},
                                         {{e4m3, e4m3, e4m3}}),
                 &AttentionProblem::dtype),
      of_problem("head_dim",
                 std::vector<HeadDim>{{128, 128},
                                      {16, 16},
                                      {32, 32},
                                      {64, 64},
                                      {72, 72},
                                      {80, 80},
                                      {96, 96},
                                      {112, 112},
                                      {160, 160},
                                      {192, 192},
                                      {192, 128},
                                      {256, 256}},
                 &AttentionProblem::head_dim),
      of_problem("heads", std::vector<Heads>{{4, 2}, {3, 3}, {12, 3}, {16, 2}, {6, 2}, {8, 1}},
                 &AttentionProblem::heads),
      of_problem("q_layout", std::vector{QLayout::kPadded, QLayout::kRagged}, &AttentionProblem::q_layout),
      of_problem("kv_layout",
                 std::vector<KvLayout>{{KvLayoutKind::kPadded, 0},
                                       {KvLayoutKind::kRagged, 0},
                                       {KvLayoutKind::kPaged, 1},
                                       {KvLayoutKind::kPaged, 5},
                                       {KvLayoutKind::kPaged, 16},
                                       {KvLayoutKind::kPaged, 64},
                                       {KvLayoutKind::kPaged, 128}},
                 &AttentionProblem::kv_layout),
      of_problem("v_layout", std::vector{VLayout::kRows, VLayout::kColumns}, &AttentionProblem::v_layout),
      of_problem("kv_offsets", std::vector<bool>{false, true}, &AttentionProblem::kv_offsets),
      of_problem("kv_starts", std::vector<bool>{false, true}, &AttentionProblem::kv_starts),
      of_problem("mask",
                 std::vector<Mask>{
                     mask_of(MaskKind::kNone), mask_of(MaskKind::kCausal), mask_of(MaskKind::kSlidingWindow, {79, 0}),
                     mask_of(MaskKind::kSlidingWindow, {9, 31}), mask_of(MaskKind::kChunked, {}, 64),
                     mask_of(MaskKind::kChunked, {}, 100), mask_of(MaskKind::kPadding), mask_of(MaskKind::kAnd),
                     mask_of(MaskKind::kOr), mask_of(MaskKind::kTensor), causal_and_tensor()},
                 &AttentionProblem::mask),
      of_problem("score_mod",
                 std::vector<ScoreMod>{{},
                                       {ScoreModKind::kSoftcap, 20.0},
                                       {ScoreModKind::kAlibi, 0},
                                       {.kind = ScoreModKind::kTensor, .dtype = bf16},
                                       {.kind = ScoreModKind::kTensor, .dtype = f32}},
                 &AttentionProblem::score_mod),
      of_problem("rope", std::vector<Rope>{{}, {64, bf16}, {16, f16}}, &AttentionProblem::rope),
      of_problem("sinks", std::vector<bool>{false, true}, &AttentionProblem::sinks),
      of_problem("lse", std::vector<bool>{false, true}, &AttentionProblem::lse),
      of_problem("scales",
                 std::vector{ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerToken,
                             ScaleKind::kPerPage},
                 &AttentionProblem::scales),
      of_problem("cache_length", std::vector{CacheLength::kAccurate, CacheLength::kPrompt},
                 &AttentionProblem::cache_length),
      of_problem("max_q_len", std::vector<int>{0, 1, 4, 300}, &AttentionProblem::max_q_len),
      of_problem("deterministic", std::vector<bool>{false, true}, &AttentionProblem::deterministic),
      of_problem("batch_invariant", std::vector<bool>{false, true}, &AttentionProblem::batch_invariant),
      choice<K, S, int>("block_m", &S::block_m, {16, 64, 128, 192}),
      choice<K, S, int>("block_n", &S::block_n, {32, 64, 80, 96, 112, 128, 176}),
      choice<K, S, int>("block_k", &S::block_k, {32, 64}),
      choice<K, S, int>("warp_n", &S::warp_n, {16, 32, 64}),
      choice<K, S, int>("num_stages", &S::num_stages, {1, 2, 3}),
      choice<K, S, Staging>("staging", &S::staging, {Staging::kRegisters, Staging::kCpAsync}),
      choice<K, S, bool>("token_gen", &S::token_gen, {false, true}),
      choice<K, S, int>("num_warps", &S::num_warps, {2, 4, 8}),
      choice<K, S, int>("q_stages", &S::q_stages, {1, 2}),
      choice<K, S, int>("num_kv_stages", &S::num_kv_stages, {2, 3, 4}),
      choice<K, S, int>("num_qk_stages", &S::num_qk_stages, {1, 2, 3}),
      choice<K, S, int>("num_mma_stages", &S::num_mma_stages, {1, 2, 3, 4}),
      choice<K, S, KvRing>("kv_ring", &S::kv_ring, {KvRing::kShared, KvRing::kSplit}),
      choice<K, S, int>("math_warpgroups", &S::math_warpgroups, {1, 2, 3}),
      choice<K, S, Overlap>("overlap", &S::overlap,
                            {Overlap::kNone, Overlap::kPingPong, Overlap::kIntra, Overlap::kBoth}),
      choice<K, S, Swizzle>("swizzle", &S::swizzle, {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B}),
      choice<K, S, ClusterShape>("cluster", &S::cluster,
                                 and_if<ClusterShape>(blackwell, {{1, 1}, {2, 1}, {4, 1}}, {{1, 2}, {1, 4}})),
      choice<K, S, Scheduler>("scheduler", &S::scheduler,
                              {Scheduler::kGrid, Scheduler::kPersistent, Scheduler::kLongestFirst, Scheduler::kQueued}),
      choice<K, S, bool>("pack_gqa", &S::pack_gqa, {false, true}),
      choice<K, S, int>("splits", &S::splits, {1, 3, 8}),
      choice<K, S, Merge>("merge", &S::merge, {Merge::kInKernel, Merge::kCombine}),
      choice<K, S, Rescale>("rescale", &S::rescale, {Rescale::kAlways, Rescale::kLazy}),
  };
  if (blackwell) {
    factors.push_back(choice<K, S, int>("num_q", &S::num_q, {1, 2}));
    factors.push_back(choice<K, S, int>("cta_group", &S::cta_group, {1, 2}));
    factors.push_back(choice<K, S, double>("exp2_emulated", &S::exp2_emulated, {0.0, 0.25}));
  }
  return factors;
}

std::vector<Factor<GemmConfig>> gemm_factors(Arch arch) {
  using K = GemmConfig;
  using S = GemmSchedule;
  const auto of_problem = [](std::string name, auto values, auto GemmProblem::*field) {
    return factor<K>(std::move(name), values, [field](K& k, const auto& value) { k.problem.*field = value; });
  };
  const auto of_dtype = [](std::string name, std::vector<DType> values, DType GemmDTypes::*field) {
    return factor<K>(std::move(name), values, [field](K& k, DType value) { k.problem.dtype.*field = value; });
  };
  constexpr DType bf16 = DType::kBf16, f16 = DType::kF16, f32 = DType::kF32, e4m3 = DType::kE4m3, e5m2 = DType::kE5m2;
  const bool blackwell = family_exists_on(Family::kBlackwell, arch);
  const Family mapped = blackwell ? Family::kBlackwell : Family::kHopper;
  std::vector<Factor<K>> factors = {
      choice<K, S, Family>("family", &S::family, {mapped, Family::kPortable}),
      factor<K>("operands",
                and_if<std::pair<DType, DType>>(
                    blackwell, {{bf16, bf16}, {f16, f16}, {e4m3, e4m3}, {e4m3, e5m2}, {e5m2, e4m3}, {e5m2, e5m2}},
                    {{DType::kTf32, DType::kTf32},
                     {DType::kMxfp8, DType::kMxfp8},
                     {DType::kMxfp4, DType::kMxfp4},
                     {DType::kNvfp4, DType::kNvfp4}}),
                [](K& k, const auto& value) { k.problem.dtype.a = value.first, k.problem.dtype.b = value.second; }),
      of_dtype("d", {bf16, f16, f32, e4m3, e5m2}, &GemmDTypes::d),
      of_dtype("c", {bf16, f16, f32}, &GemmDTypes::c),
      of_problem("n", std::vector<int>{256, 16, 48, 264, 1040}, &GemmProblem::n),
      of_problem("k", std::vector<int>{256, 0, 16, 72, 200, 640}, &GemmProblem::k),
      of_problem("layout", std::vector{OperandLayout::kNt, OperandLayout::kNn, OperandLayout::kTn, OperandLayout::kTt},
                 &GemmProblem::layout),
      of_problem("scales",
                 std::vector{ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock},
                 &GemmProblem::scales),
      of_problem("epilogue",
                 std::vector<std::string>{"acc", "alpha * acc", "relu(acc + bias)",
                                          "gelu(alpha * acc + bias) + beta * c", "silu(acc) + c", "gelu_tanh(acc)"},
                 &GemmProblem::epilogue),
      of_problem("fast_accumulation", std::vector<bool>{false, true}, &GemmProblem::fast_accumulation),
      of_problem("batch_invariant", std::vector<bool>{false, true}, &GemmProblem::batch_invariant),
      choice<K, S, int>("block_m", &S::block_m, {64, 128, 256}),
      choice<K, S, int>("block_n", &S::block_n, {16, 64, 96, 128, 192, 256}),
      choice<K, S, int>("block_k", &S::block_k, {16, 32, 64, 128}),
      choice<K, S, int>("stages", &S::stages, {2, 3, 4, 8}),
      choice<K, S, int>("store_stages", &S::store_stages, {1, 2, 3}),
      choice<K, S, int>("k_group", &S::k_group, {1, 2}),
      choice<K, S, ClusterShape>("cluster", &S::cluster,
                                 and_if<ClusterShape>(blackwell, {{1, 1}, {2, 1}, {4, 1}}, {{1, 2}, {2, 2}})),
      choice<K, S, Swizzle>("swizzle", &S::swizzle, {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B}),
      choice<K, S, Roles>("roles", &S::roles, {Roles::kCooperative, Roles::kPingPong}),
      choice<K, S, int>("math_warpgroups", &S::math_warpgroups, {1, 2}),
      choice<K, S, int>("mma_in_flight", &S::mma_in_flight, {0, 1}),
      choice<K, S, bool>("swap_ab", &S::swap_ab, {false, true}),
      choice<K, S, int>("split_k", &S::split_k, {1, 2, 4, 7}),
      choice<K, S, SplitMode>("split_mode", &S::split_mode, {SplitMode::kCluster, SplitMode::kTurnstile}),
      choice<K, S, Raster>("raster", &S::raster, {Raster::kAlongM, Raster::kAlongN}),
      choice<K, S, Scheduler>("scheduler", &S::scheduler,
                              {Scheduler::kGrid, Scheduler::kPersistent, Scheduler::kQueued}),
  };
  if (blackwell) {
    factors.push_back(choice<K, S, int>("cta_group", &S::cta_group, {1, 2}));
    factors.push_back(choice<K, S, int>("accumulator_stages", &S::accumulator_stages, {1, 2}));
    factors.push_back(choice<K, S, int>("clc_depth", &S::clc_depth, {0, 1, 2}));
  }
  return factors;
}

}  // namespace

AttentionPairs attention_pairs(Arch arch, int attempts) {
  const auto factors = attention_factors(arch);
  AttentionPairs pairs;
  pairs.covering = test::cover_pairs<DrawnKernel>(
      factors,
      [&](const DrawnKernel& kernel) {
        return is_taken({"", kernel.problem, {}, kernel.schedule}, arch);
      },
      1, attempts);
  for (const test::PairwiseRow& row : pairs.covering.rows) pairs.kernels.push_back(config_of(factors, row));
  return pairs;
}

GemmPairs gemm_pairs(Arch arch, int attempts) {
  const auto factors = gemm_factors(arch);
  GemmPairs pairs;
  pairs.covering = test::cover_pairs<GemmConfig>(
      factors,
      [&](const GemmConfig& config) {
        try {
          plan_gemm(config.problem, config.schedule, arch);
          return true;
        } catch (const ConfigError&) {
          return false;
        }
      },
      2, attempts);
  for (const test::PairwiseRow& row : pairs.covering.rows) {
    pairs.configs.push_back(config_of(factors, row));
    pairs.configs.back().name = "pair";
  }
  return pairs;
}

namespace {

TEST(Pairwise, RowsHoldEveryPairThatSomeRowMayHold) {
  struct Config {
    int a = 0, b = 0, c = 0;
  };
  const std::vector<Factor<Config>> factors = {
      factor<Config>("a", std::vector{0, 1, 2}, [](Config& config, int value) { config.a = value; }),
      factor<Config>("b", std::vector{0, 1, 2}, [](Config& config, int value) { config.b = value; }),
      factor<Config>("c", std::vector{0, 1}, [](Config& config, int value) { config.c = value; })};
  const auto takes = [](const Config& config) { return config.a != 2 || config.b != 1; };
  const test::Covering covering = test::cover_pairs<Config>(factors, takes, 1);
  EXPECT_EQ(covering.pairs, 20u);  // 9 + 6 + 6, less one
  EXPECT_EQ(covering.excluded, std::vector<std::string>{"a=2 b=1"});
  EXPECT_LE(covering.rows.size(), 12u);
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b) {
      const auto holds = [&](const auto& row) { return row[0] == a && row[1] == b; };
      EXPECT_EQ(std::any_of(covering.rows.begin(), covering.rows.end(), holds), a != 2 || b != 1);
    }
}

}  // namespace
}  // namespace kernelwright
