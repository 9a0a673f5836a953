/// What writing keys and values to a cache computes. The words of a cache are those of attention's problem, so that one
/// kernel writes what the other reads.
#pragma once

#include <cstdint>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/heads.h"

namespace kernelwright {

struct KvWriteDTypes {
  DType in = DType::kBf16, q = DType::kBf16, kv = DType::kBf16;
  bool operator==(const KvWriteDTypes&) const = default;
};
template <class Visitor>
void visit_fields(KvWriteDTypes& dtypes, Visitor&& field) {
  field("in", dtypes.in, any{}, "queries, keys and values as they come, and the weights of the norm: f16 or bf16");
  field("q", dtypes.q, any{}, "queries as they are written");
  field("kv", dtypes.kv, any{}, "keys and values in the cache");
}

/// The norm of each query and key head. x becomes x / sqrt(mean of squares + eps), times its weight.
struct QkNorm {
  NormKind kind = NormKind::kNone;
  bool weight = true;
  int weight_offset = 0;
  bool before_rope = true;
  double eps = 1e-6;  // a run-time parameter
  bool v = false;
  bool operator==(const QkNorm&) const = default;
};
template <class Visitor>
void visit_fields(QkNorm& norm, Visitor&& field) {
  field("kind", norm.kind, any{}, "rms: each head by itself; rms_all_heads: all heads of a token at once; l2: no mean");
  field("weight", norm.weight, any{}, "weights multiply the result");
  field("weight_offset", norm.weight_offset, range{0, 1}, "1: the factor is 1 + weight");
  field("before_rope", norm.before_rope, any{}, "the norm comes before the rotation; false: behind it");
  field("eps", norm.eps, real_range{0, 1}, "joins the mean of squares, or l2's sum; a run-time parameter");
  field("v", norm.v, any{}, "each value head is normalised as well (rms), without weights");
}

/// Pairs of a head's elements whose positions come from one of three streams, in this order.
struct RopeSections {
  int first = 0, second = 0, third = 0;
  bool operator==(const RopeSections&) const = default;
  int pairs() const { return first + second + third; }
};
template <class Visitor>
void visit_fields(RopeSections& sections, Visitor&& field) {
  field("first", sections.first, range{0, 512}, "pairs of the first stream (time)");
  field("second", sections.second, range{0, 512}, "of the second stream (height)");
  field("third", sections.third, range{0, 512}, "of the third stream (width)");
}

/// The rotation of each query and key head.
struct RopeRotation {
  RopeStyle style = RopeStyle::kNone;
  int width = 0, begin = 0;
  RopeSections sections;
  bool interleaved = false;
  bool operator==(const RopeRotation&) const = default;
};
template <class Visitor>
void visit_fields(RopeRotation& rope, Visitor&& field) {
  field("style", rope.style, any{}, "neox: element i turns with i + width / 2; gptj: element 2 i turns with 2 i + 1");
  field("width", rope.width, range{0, 1024}, "elements of the head that turn");
  field("begin", rope.begin, range{0, 1024}, "the first of them");
  field("sections", rope.sections, any{}, "all 0: one stream of positions; else three, with so many pairs each");
  field("interleaved", rope.interleaved, any{}, "with sections: streams take turns pair by pair, not in runs");
}

struct KvWriteScales {
  ScaleKind q = ScaleKind::kNone, k = ScaleKind::kNone, v = ScaleKind::kNone;
  bool power_of_two = false, ue8m0 = false;
  double least = 0;  // a run-time parameter
  bool operator==(const KvWriteScales&) const = default;
};
template <class Visitor>
void visit_fields(KvWriteScales& scales, Visitor&& field) {
  field("q", scales.q, any{}, "of the queries; per_token scales are made by the kernel, the others are given");
  field("k", scales.k, any{}, "of the keys");
  field("v", scales.v, any{}, "of the values");
  field("power_of_two", scales.power_of_two, any{}, "per_token scales are rounded up to a power of two");
  field("ue8m0", scales.ue8m0, any{}, "and are written as the byte of their exponent");
  field("least", scales.least, real_range{0, 1},
        "a smaller largest magnitude of a head counts as this one, for per_token");
}

/// Norm, rotation, Hadamard transform, quantisation and scatter of a token's queries, keys and values, in this order.
/// Tokens, positions, slots, page tables, scales and strides are run-time parameters.
struct KvWriteProblem {
  KvWriteDTypes dtype;
  HeadDim head_dim;
  Heads heads;
  KvLayout kv_layout;
  VLayout v_layout = VLayout::kRows;
  CacheIndex index = CacheIndex::kSlots;
  QkNorm qk_norm;
  RopeRotation rope;
  bool hadamard = false, hadamard_signs = false;
  KvWriteScales scales;
  bool q_out = true, v_out = true;
  bool operator==(const KvWriteProblem&) const = default;
};
/// Elements of all heads of a token: queries, keys and values.
inline std::int64_t row_columns(const KvWriteProblem& problem) {
  const HeadDim& dim = problem.head_dim;
  return std::int64_t{problem.heads.q} * dim.qk + std::int64_t{problem.heads.kv} * (dim.qk + dim.v);
}
template <class Visitor>
void visit_fields(KvWriteProblem& problem, Visitor&& field) {
  field("dtype", problem.dtype, any{}, "element types");
  field("head_dim", problem.head_dim, required{any{}}, "head sizes");
  field("heads", problem.heads, required{any{}}, "head counts");
  field("kv_layout", problem.kv_layout, required{any{}}, "layout of the cache");
  field(
      "v_layout", problem.v_layout, any{},
      "columns: pages of fp8 values are [heads, head_dim, keys], keys of each 16 in the order of a product's operand");
  field("index", problem.index, any{}, "slots: a slot of the cache for each token; positions: sequence and position");
  field("qk_norm", problem.qk_norm, any{}, "norm of queries and keys");
  field("rope", problem.rope, any{}, "rotation of queries and keys");
  field("hadamard", problem.hadamard, any{},
        "a Hadamard transform of query and key heads, in blocks of the largest power of two that divides head_dim.qk");
  field("hadamard_signs", problem.hadamard_signs, any{}, "elements get fixed random signs ahead of that transform");
  field("scales", problem.scales, any{}, "granularity of the scales of what is quantised");
  field("q_out", problem.q_out, any{}, "queries are written too; false: keys and values alone");
  field("v_out", problem.v_out, any{}, "values are written too; false: keys, and queries if any");
}

}  // namespace kernelwright
