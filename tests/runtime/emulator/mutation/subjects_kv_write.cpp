// The cache writes, the steps over rows, the choices of experts and the sums over their rows that are mutated.
#include "runtime/emulator/mutation/subject_calls.h"

namespace kernelwright::test {

/// kv_write with warps that know nothing of each other, and with CTAs whose warps add up a norm over all heads.
std::vector<KvWriteCall> kv_write_calls() {
  KvWriteProblem problem;
  problem.head_dim = {64, 64};
  problem.heads = {8, 2};
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  problem.rope = {.style = RopeStyle::kNeox, .width = 64};
  problem.qk_norm.kind = NormKind::kRms;
  problem.dtype.kv = DType::kE4m3;
  problem.scales.k = problem.scales.v = ScaleKind::kPerToken;
  KvWriteProblem joint = problem;
  joint.qk_norm.kind = NormKind::kRmsAllHeads;
  return {{"kv_write_of_each_head", problem, 9}, {"kv_write_of_all_heads", joint, 9}};
}

/// row_op with a row a CTA, whose warps add up squares and find the largest magnitude, with a row a warp, and with rows
/// that two CTAs share.
std::vector<RowOpCall> row_op_calls() {
  RowOpProblem problem;
  problem.width = 1024;
  problem.input = RowInput::kAdd;
  problem.norm.kind = NormKind::kRms;
  problem.dtype.out = DType::kE4m3;
  problem.scales.kind = ScaleKind::kPerToken;
  RowOpProblem narrow = problem;
  narrow.width = 256;
  RowOpProblem shared;
  shared.width = 2304;
  shared.input = RowInput::kGateUp;
  shared.dtype.out = DType::kE4m3;
  shared.scales.kind = ScaleKind::kPerBlock;
  return {{"row_op_of_a_cta", problem, 5}, {"row_op_of_a_warp", narrow, 5}, {"row_op_of_two_ctas", shared, 3}};
}

/// route where one CTA sorts all tokens, for more experts than it has threads, and where a second kernel sorts so many
/// tokens that warps have runs of two. By a bound and with counts of 16 bits: `route_of_a_bound`.
std::vector<RouteCall> route_calls() {
  RouteProblem problem;
  problem.experts = 32;
  problem.top_k = 4;
  problem.score = RouteScore::kSigmoid;
  problem.bias = problem.renormalize = true;
  problem.n_group = 8, problem.topk_group = 4;
  RouteProblem wide = problem;
  wide.experts = 1024;
  RouteProblem many = problem;
  many.experts = 64, many.top_k = 6;
  return {{"route_of_a_cta", wide, 5}, {"route_of_runs", problem, 2100}, {"route_of_a_bound", many, 2100}};
}

/// moe_combine with weights and a residual, whose last CTA has threads without a token.
std::vector<MoeCombineCall> moe_combine_calls() {
  MoeCombineProblem problem;
  problem.width = 520, problem.top_k = 4;
  problem.residual = true;
  return {{"moe_combine_of_slots", problem, 5}};
}

}  // namespace kernelwright::test
