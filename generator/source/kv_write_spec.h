/// The Spec of kv_write: spec.h has what a Spec is.
#pragma once

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

/// kv_write.
struct KvWriteSpec {
  static constexpr Family family = Family::kPortable;  // the only one; no part of the text
  Arch arch = Arch::kSm80;
  DType in = DType::kBf16, q = DType::kBf16, kv = DType::kBf16;
  int head_dim_qk = 128, head_dim_v = 128;
  int q_heads = 1, kv_heads = 1;  // q_heads 0: queries are not written
  bool v_out = true;
  KvLayoutKind kv_layout = KvLayoutKind::kPaged;
  int page_size = 16;  // 0 unless paged
  bool v_columns = false;
  CacheIndex index = CacheIndex::kSlots;
  NormKind norm = NormKind::kNone;
  bool norm_weight = false;
  int weight_offset = 0;
  bool norm_before_rope = true, norm_v = false;
  RopeStyle rope = RopeStyle::kNone;
  int rope_width = 0, rope_begin = 0;
  int section_first = 0, section_second = 0, section_third = 0;
  bool interleaved = false;
  bool hadamard = false, hadamard_signs = false;
  ScaleKind q_scales = ScaleKind::kNone, k_scales = ScaleKind::kNone, v_scales = ScaleKind::kNone;
  bool power_of_two = false, ue8m0 = false, has_least = false;
  int num_warps = 4, heads_per_lane = 4;
  bool splits_few = false;
  bool operator==(const KvWriteSpec&) const = default;
  /// Heads of a token that are written.
  int items() const { return q_heads + (v_out ? 2 : 1) * kv_heads; }
  /// Threads of a CTA.
  int threads() const { return 32 * num_warps; }
};
/// What is computed, and where it goes: the fields that a GEMM that writes a cache has too.
template <class Visitor>
void visit_steps(KvWriteSpec& spec, Visitor&& field) {
  field("in", spec.in, any{}, "dtype of what is read");
  field("q", spec.q, any{}, "dtype of the queries that are written");
  field("kv", spec.kv, any{}, "dtype of the cache");
  field("head_dim_qk", spec.head_dim_qk, any{}, "elements of a query or key head");
  field("head_dim_v", spec.head_dim_v, any{}, "elements of a value head");
  field("q_heads", spec.q_heads, any{}, "query heads that are written");
  field("kv_heads", spec.kv_heads, any{}, "key and value heads");
  field("v_out", spec.v_out, any{}, "value heads are written");
  field("kv_layout", spec.kv_layout, any{}, "layout of the cache");
  field("page_size", spec.page_size, any{}, "keys of a page; 0 unless paged");
  field("v_columns", spec.v_columns, any{}, "a page of values has an element of all its keys side by side");
  field("index", spec.index, any{}, "what names the place of a token");
  field("norm", spec.norm, any{}, "norm of queries and keys");
  field("norm_weight", spec.norm_weight, any{}, "weights multiply the result of the norm");
  field("weight_offset", spec.weight_offset, any{}, "what is added to a weight");
  field("norm_before_rope", spec.norm_before_rope, any{}, "the norm comes before the rotation");
  field("norm_v", spec.norm_v, any{}, "values are normalised, without weights");
  field("rope", spec.rope, any{}, "which elements turn with each other");
  field("rope_width", spec.rope_width, any{}, "elements that turn");
  field("rope_begin", spec.rope_begin, any{}, "the first of them");
  field("section_first", spec.section_first, any{}, "pairs of the first stream of positions; 0: one stream");
  field("section_second", spec.section_second, any{}, "pairs of the second stream");
  field("section_third", spec.section_third, any{}, "pairs of the third stream");
  field("interleaved", spec.interleaved, any{}, "streams take turns");
  field("hadamard", spec.hadamard, any{}, "queries and keys are transformed");
  field("hadamard_signs", spec.hadamard_signs, any{}, "with fixed signs ahead of it");
  field("q_scales", spec.q_scales, any{}, "granularity of the query scales");
  field("k_scales", spec.k_scales, any{}, "granularity of the key scales");
  field("v_scales", spec.v_scales, any{}, "granularity of the value scales");
  field("power_of_two", spec.power_of_two, any{}, "scales of tokens are powers of two");
  field("ue8m0", spec.ue8m0, any{}, "and are written as bytes");
  field("has_least", spec.has_least, any{}, "the largest magnitude of a head has a bound from below");
}
template <class Visitor>
void visit_fields(KvWriteSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  visit_steps(spec, field);
  field("num_warps", spec.num_warps, any{}, "warps of a CTA");
  field("heads_per_lane", spec.heads_per_lane, any{}, "heads of which a lane has 16 elements each");
  field("splits_few", spec.splits_few, any{}, "of few tokens a lane has one head");
}

}  // namespace kernelwright
