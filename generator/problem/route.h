/// Choosing the experts of each token, and sorting tokens by expert: the problem, its schedule and its shapes.
#pragma once

#include <string>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

/// Logits become scores, the top_k experts with the largest scores are chosen, and pairs of (token, slot) are sorted by
/// expert. Where experts are given, there is no choice, and no logits. The number of tokens, strides and the factor are
/// run-time parameters.
struct RouteProblem {
  DType dtype = DType::kF32;
  int experts = 0;
  int top_k = 0;
  RouteScore score = RouteScore::kSoftmax;
  RouteOrder order = RouteOrder::kScoreFirst;
  bool bias = false;
  int n_group = 1, topk_group = 1;
  GroupScore group_score = GroupScore::kTop2Sum;
  bool renormalize = false;
  double factor = 1;  // a run-time parameter
  bool sort = true;
  int alignment = 1;
  int local_experts = 0;
  bool is_given() const { return score == RouteScore::kGiven; }
  bool operator==(const RouteProblem&) const = default;
};
template <class Visitor>
void visit_fields(RouteProblem& problem, Visitor&& field) {
  field("dtype", problem.dtype, any{}, "of the logits: f32, bf16 or f16");
  field("experts", problem.experts, required{range{1, 1024}}, "experts, each with a logit per token");
  field("top_k", problem.top_k, required{range{1, 32}}, "experts that a token gets");
  field("score", problem.score, any{},
        "what a weight is made of: softmax or sigmoid of the logits, or the logits (none); given: experts and weights "
        "are "
        "the launch's, and are sorted alone");
  field("order", problem.order, any{},
        "score_first: scores of all experts, then the choice; top_k_first: the choice by logit, then scores of the "
        "chosen ones");
  field("bias", problem.bias, any{}, "an f32 per expert is added for the choice, and is no part of a weight");
  field("n_group", problem.n_group, range{1, 32}, "groups of neighbouring experts");
  field("topk_group", problem.topk_group, range{1, 32}, "groups of which a token's experts are chosen");
  field("group_score", problem.group_score, any{}, "of a group: the sum of its two largest scores, or the largest");
  field("renormalize", problem.renormalize, any{}, "a token's weights are divided by their sum");
  field("factor", problem.factor, real_range{0, 1e6}, "multiplies weights at the end; a run-time parameter");
  field("sort", problem.sort, any{}, "pairs of token and slot are sorted by expert");
  field("alignment", problem.alignment, range{1, 1024},
        "with sort: each expert's rows begin at a multiple of it; rows between have the source -1");
  field("local_experts", problem.local_experts, range{0, 1024},
        "with sort: experts of this rank, to which the launch maps some of all; 0: all, without a map");
}

struct RouteSchedule {
  Auto<Arch> arch;
  Auto<Family> family;
  Auto<int> warps;
  Auto<RouteChoice> choice;
  Auto<RouteCounts> counts;
  bool operator==(const RouteSchedule&) const = default;
};
template <class Visitor>
void visit_fields(RouteSchedule& schedule, Visitor&& field) {
  field("arch", schedule.arch, any{}, "architecture to compile for");
  field("family", schedule.family, any{}, "kernel family");
  field("warps", schedule.warps, range{8, 16, 8}, "warps of a CTA; each takes a token at a time");
  field("choice", schedule.choice, any{},
        "rounds: a token's experts are found one after another; bound: all at once, among those that reach a bound");
  field("counts", schedule.counts, any{},
        "with sort, numbers that CTAs pass to it: u32, or u16, which fewer experts fit");
}

struct RouteShape {
  std::string name;
  int tokens = 1;
  bool check = false;
  bool operator==(const RouteShape&) const = default;
};
template <class Visitor>
void visit_fields(RouteShape& shape, Visitor&& field) {
  field("name", shape.name, required{text{64}}, "name for --shape");
  field("tokens", shape.tokens, range{0, 1 << 24}, "tokens");
  field("check", shape.check, any{}, "a shape for run: small, with gaps between rows, equal logits and NaN");
}

}  // namespace kernelwright
