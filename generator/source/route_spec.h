/// The Specs of route: spec.h has what a Spec is.
#pragma once

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

/// How pairs of (token, slot) are sorted; both kernels have it.
struct RouteSortFields {
  int top_k = 1;
  bool sorts = true;
  int buckets = 1;
  bool mapped = false;
  int experts = 1;
  int alignment = 1;
  int warps = 16, few_warps = 16;
  bool given = false;
  bool short_counts = false;
  bool operator==(const RouteSortFields&) const = default;
};
template <class Visitor>
void visit_sort_fields(RouteSortFields& spec, Visitor&& field) {
  field("top_k", spec.top_k, any{}, "experts of a token");
  field("sorts", spec.sorts, any{}, "pairs of token and slot are sorted");
  field("buckets", spec.buckets, any{}, "experts by which pairs are sorted");
  field("mapped", spec.mapped, any{}, "a map says which expert is which of them");
  field("experts", spec.experts, any{}, "experts with a logit");
  field("alignment", spec.alignment, any{}, "the rows of an expert begin at a multiple of it");
  field("warps", spec.warps, any{}, "warps of a CTA");
  field("few_warps", spec.few_warps, any{}, "warps of a CTA where few tokens are launched");
  field("given", spec.given, any{}, "a launch gives the experts of tokens");
  field("short_counts", spec.short_counts, any{}, "counts of a CTA have 16 bits");
}

/// route: the choice of experts, and the whole sort where one CTA has all tokens.
struct RouteSpec : RouteSortFields {
  static constexpr Family family = Family::kPortable;  // the only one; no part of the text
  Arch arch = Arch::kSm80;
  DType logits = DType::kF32;
  int groups = 1, picked_groups = 1;
  bool softmax = true, sigmoid = false, top_k_first = false, biased = false, sums_two = true, renormalized = false;
  bool bounded = false;
  bool operator==(const RouteSpec&) const = default;
  int threads() const { return warps * 32; }
};
template <class Visitor>
void visit_fields(RouteSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  field("logits", spec.logits, any{}, "dtype of the logits");
  field("groups", spec.groups, any{}, "groups of experts");
  field("picked_groups", spec.picked_groups, any{}, "groups of which experts are chosen");
  field("softmax", spec.softmax, any{}, "weights are a softmax");
  field("sigmoid", spec.sigmoid, any{}, "weights are sigmoids");
  field("top_k_first", spec.top_k_first, any{}, "scores are those of the chosen experts alone");
  field("biased", spec.biased, any{}, "a bias is added for the choice");
  field("sums_two", spec.sums_two, any{}, "a group counts with the sum of its two largest scores");
  field("renormalized", spec.renormalized, any{}, "weights are divided by their sum");
  field("bounded", spec.bounded, any{}, "a bound leaves few candidates, which are ranked at once");
  visit_sort_fields(spec, field);
}

/// route_sort: the sort where several CTAs have tokens.
struct RouteSortSpec : RouteSortFields {
  static constexpr Family family = Family::kPortable;
  Arch arch = Arch::kSm80;
  bool operator==(const RouteSortSpec&) const = default;
  int threads() const { return warps * 32; }
};
template <class Visitor>
void visit_fields(RouteSortSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  visit_sort_fields(spec, field);
}

}  // namespace kernelwright
