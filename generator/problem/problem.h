/// What to compute, without how. The words are those of docs/config.md, which is generated from the lists below.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/heads.h"
#include "kernelwright/generator/problem/kv_write_problem.h"

namespace kernelwright {

struct AttentionDTypes {
  DType q = DType::kBf16, kv = DType::kBf16, out = DType::kBf16;
  bool operator==(const AttentionDTypes&) const = default;
};
template <class Visitor>
void visit_fields(AttentionDTypes& dtypes, Visitor&& field) {
  field("q", dtypes.q, any{}, "queries");
  field("kv", dtypes.kv, any{}, "keys and values");
  field("out", dtypes.out, any{}, "output; no narrower than the queries");
}

/// Keys besides the diagonal that a query sees to its left and right; -1 is unbounded. A run-time parameter.
struct Window {
  int left = -1, right = 0;
  bool operator==(const Window&) const = default;
};
template <class Visitor>
void visit_fields(Window& window, Visitor&& field) {
  field("left", window.left, range{-1, 1 << 30}, "keys left of the diagonal; -1 is unbounded");
  field("right", window.right, range{-1, 1 << 30}, "keys right of the diagonal; -1 is unbounded");
}

/// A tensor of a launch with an element for each score, [batch or 1, q_heads or 1, q_len or 1, kv_len]. The fields say
/// which dimensions it has; along the others one element serves all.
struct ScoreTensor {
  bool batch = true, heads = true, q = true;
  bool operator==(const ScoreTensor&) const = default;
};
template <class Visitor>
void visit_fields(ScoreTensor& tensor, Visitor&& field) {
  field("batch", tensor.batch, any{}, "sequences have elements of their own; false: one for all");
  field("heads", tensor.heads, any{}, "query heads have");
  field("q", tensor.q, any{}, "queries have");
}

/// The reference that `run` compares a source with: a function of a shared object, or an array in a .npy file. With
/// neither, the source is not checked, and `run` says so.
struct PolicyReference {
  std::string library, symbol, array;
  bool operator==(const PolicyReference&) const = default;
};
template <class Visitor>
void visit_fields(PolicyReference& reference, Visitor&& field) {
  field("library", reference.library, text{1024}, "a shared object, relative to the config");
  field("symbol", reference.symbol, text{128}, "its function, as docs/policies.md has it");
  field("array", reference.array, text{1024}, "a .npy file of f32 instead: 0 hides a key, or what joins a score");
}

/// A policy that is a user's own source: a header with a type that templates/policy/place.cuh describes. It is compiled
/// into the kernel.
struct PolicySource {
  std::string file;  // origin of the text, relative to the config; messages show it
  std::string type;
  std::string text;  // of the header
  PolicyReference reference;
  bool operator==(const PolicySource&) const = default;
  /// Whether any field is given.
  bool is_given() const noexcept {
    return (file.size() | type.size() | text.size() | reference.library.size() | reference.symbol.size() |
            reference.array.size()) != 0;
  }
};
/// Visits the fields among those of the struct that has the source.
template <class Visitor>
void visit_fields(PolicySource& source, Visitor&& field) {
  field("file", source.file, text{1024}, "for kind source: a header, relative to the config");
  field("type", source.type, text{256}, "for kind source: the type in it that is the policy");
  field("text", source.text, lines{65536}, "for kind source: the header's text, in place of file");
  field("reference", source.reference, any{}, "for kind source: what run compares with");
}

/// Which keys a query sees. Causal is aligned to the bottom right: the last query sees the last key.
struct Mask {
  MaskKind kind = MaskKind::kNone;
  Window window;               // sliding_window
  int chunk = 0;               // chunked: keys in one chunk; a query sees its diagonal's chunk, up to the diagonal
  std::vector<Mask> operands;  // and: visible where every operand is; or: visible where any is
  ScoreTensor tensor;          // tensor: bytes of a launch; 0 hides the key
  PolicySource source;         // source: called for single keys
  bool operator==(const Mask&) const = default;
};
template <class Visitor>
void visit_fields(Mask& mask, Visitor&& field) {
  field("kind", mask.kind, required{any{}}, "which keys a query sees");
  field("window", mask.window, any{}, "for kind sliding_window; a run-time parameter");
  field("chunk", mask.chunk, range{0, 1 << 30}, "keys in one chunk, for kind chunked");
  field("operands", mask.operands, any{}, "the masks that and/or join");
  field("tensor", mask.tensor, any{}, "for kind tensor: the shape of mask, a tensor of u8; 0 hides a key");
  visit_fields(mask.source, field);
}

/// What happens to a score between Q K^T and the softmax.
struct ScoreMod {
  ScoreModKind kind = ScoreModKind::kNone;
  double cap = 0;              // softcap: score = cap * tanh(score / cap); a run-time parameter
  ScoreTensor tensor;          // tensor: is added to the scaled score
  DType dtype = DType::kBf16;  // of the tensor
  PolicySource source;         // source: called for single scores
  bool operator==(const ScoreMod&) const = default;
};
template <class Visitor>
void visit_fields(ScoreMod& mod, Visitor&& field) {
  field("kind", mod.kind, required{any{}}, "what happens to a score before the softmax");
  field("cap", mod.cap, real_range{0, 1e6}, "for kind softcap: cap * tanh(score / cap); a run-time parameter");
  field("tensor", mod.tensor, any{}, "for kind tensor: the shape of bias, which is added to the scaled score");
  field("dtype", mod.dtype, any{}, "for kind tensor: f16, bf16 or f32");
  visit_fields(mod.source, field);
}

struct Rope {
  int width = 0;
  DType dtype = DType::kBf16;
  bool operator==(const Rope&) const = default;
};
template <class Visitor>
void visit_fields(Rope& rope, Visitor&& field) {
  field("width", rope.width, range{0, 512}, "elements of the head that carry the rotary part");
  field("dtype", rope.dtype, any{}, "their dtype");
}

/// Scaled dot-product attention, forward: O = softmax(mod(scale * Q K^T) + mask) V for each batch and head.
/// Batch, lengths, page tables, scales, window sizes and the softcap are run-time parameters.
struct AttentionProblem {
  AttentionDTypes dtype;
  HeadDim head_dim;
  Heads heads;
  QLayout q_layout = QLayout::kPadded;
  KvLayout kv_layout;
  VLayout v_layout = VLayout::kRows;
  Mask mask;
  ScoreMod score_mod;
  bool sinks = false;
  bool lse = false;
  Rope rope;
  ScaleKind scales = ScaleKind::kNone;
  bool kv_offsets = false;
  /// A launch may say which key is the first of each sequence: left padding. Keys are padded or paged.
  bool kv_starts = false;
  /// kAccurate: kv_lengths[b] counts all keys of sequence b. kPrompt: it counts the keys that were there before the
  /// sequence's queries. Each query has a key of its own behind those, so the sequence has kv_lengths[b] + q_len keys.
  /// With kPrompt, keys are padded or paged.
  CacheLength cache_length = CacheLength::kAccurate;
  int max_q_len = 0;  // 0: any; 1: decode
  /// The same inputs give the same bits, launch after launch. Every kernel of today does so anyway; the word binds
  /// those of tomorrow.
  bool deterministic = false;
  /// A query's result is the same to the bit, whatever other sequences are in the batch. It is also the same however
  /// many queries of its own sequence come with it, if queries have 16 bits and keys are not cut into parts.
  bool batch_invariant = false;
  bool operator==(const AttentionProblem&) const = default;
  int group() const { return heads.q / heads.kv; }
  /// Whether keys hold their values: latent attention.
  bool is_latent() const { return v_layout == VLayout::kKeyPrefix; }
  /// Whether latent keys are records, which hold their own scales: contract/attention_latent_record.h.
  bool has_records() const { return is_latent() && scales == ScaleKind::kPerBlock; }
};
template <class Visitor>
void visit_fields(AttentionProblem& problem, Visitor&& field) {
  field("dtype", problem.dtype, any{}, "element types");
  field("head_dim", problem.head_dim, required{any{}}, "head sizes");
  field("heads", problem.heads, required{any{}}, "head counts");
  field("q_layout", problem.q_layout, any{},
        "padded [batch, q_len, heads, head_dim] or ragged [tokens, heads, head_dim]");
  field("kv_layout", problem.kv_layout, any{}, "layout of keys and values");
  field("v_layout", problem.v_layout, any{},
        "columns: pages of fp8 values are [heads, head_dim, keys], in the order of kv_write's v_layout; key_prefix: "
        "each value is the first elements of its key");
  field("mask", problem.mask, any{}, "visibility");
  field("score_mod", problem.score_mod, any{}, "score modifier");
  field("sinks", problem.sinks, any{}, "a learnt logit per query head joins each softmax");
  field("lse", problem.lse, any{}, "also return the natural log of each row's sum of exponentials, f32");
  field("rope", problem.rope, any{}, "rotary part of the head in a dtype of its own");
  field("scales", problem.scales, any{},
        "granularity of the key and value scales; per_block: records of latent keys, which hold them");
  field("kv_offsets", problem.kv_offsets, any{}, "keys have cumulative offsets of their own");
  field("kv_starts", problem.kv_starts, any{}, "a launch may give the first key of each sequence: left padding");
  field("cache_length", problem.cache_length, any{},
        "what kv_lengths count: all keys, or those of the cache without the prompt's");
  field("max_q_len", problem.max_q_len, range{0, 1 << 20},
        "static bound on the queries of a sequence; 1 is decode, 0 is any");
  field("deterministic", problem.deterministic, any{}, "the same inputs give the same bits, launch after launch");
  field("batch_invariant", problem.batch_invariant, any{},
        "a query's result is the same to the bit whatever else is in the batch");
}

struct GemmDTypes {
  DType a = DType::kBf16, b = DType::kBf16, d = DType::kBf16;
  DType c = DType::kBf16;
  bool operator==(const GemmDTypes&) const = default;
};
template <class Visitor>
void visit_fields(GemmDTypes& dtypes, Visitor&& field) {
  field("a", dtypes.a, any{}, "left operand");
  field("b", dtypes.b, any{}, "right operand");
  field("d", dtypes.d, any{}, "result");
  field("c", dtypes.c, any{}, "bias and c, where the epilogue has them: f16, bf16 or f32");
}

/// Groups of rows of a and d, each of which is multiplied by a matrix of its own: the experts of a mixture, the heads
/// of a latent attention. b is [count, n, k], or [count, k, n] where the layout says so; bias is [count, n]. Scales of
/// b, per group, lie behind each other. The bounds of groups are in device memory, int32, and no group is aligned.
/// - rows: a is [m, k] and d [m, n]. `starts` [count + 1]: group g has rows starts[g] to starts[g + 1] - 1. `ends`
///   [count]: a group begins where the one before it ends, and the first one at row 0.
/// - masked: a is [count, m / count, k] and d likewise. `counts` [count]: a group has so many rows, its first ones.
///   scale_a per_block is [count, k / 128, m / count].
/// Atoms of scales begin anew with each group: contract/scale_atoms.h.
/// - batch: as masked, and every row belongs to its group, so there are no bounds. A launch says how far a group's
///   matrix lies from the next: GemmTensors::a_batch_stride.
/// - k: a is [rows, m / count] and b [rows, n], layout tn, and d is [count, m / count, n]. `starts` or `ends` say which
///   rows of a and b a group has: d of a group is the product of these rows. So gradients of weights are made. A group
///   without rows has what the epilogue makes of zeros. A launch gives the rows: GemmTensors::source_rows. k of the
///   problem is how many a group is expected to have, for the planner alone.
/// Rows outside groups are never written, and their values reach no result. With `gather`, a has the rows of the
/// tokens, [source_rows, k]. Row i of d is made of a's row gather[i], or of zeros where that is -1. So no kernel ahead
/// has to put tokens in order. With `scatter`, d and c are [result_rows, n]: row i of the product becomes row
/// scatter[i] of d, or none where that is -1. No index is given twice, so nothing is added. No other row of d is
/// written. With `pointers`, the launch gives for b the device address of uint64 [count]: where each group's matrix is.
/// A group without rows may have null.
struct GemmGroups {
  GroupKind kind = GroupKind::kNone;
  int count = 1;
  GroupBounds bounds = GroupBounds::kStarts;
  bool gather = false;
  bool scatter = false;
  bool pointers = false;
  bool operator==(const GemmGroups&) const = default;
  bool any() const { return kind != GroupKind::kNone; }
  bool is_batch() const { return kind == GroupKind::kBatch; }
  bool slices_k() const { return kind == GroupKind::kK; }
  /// Whether each group has a whole matrix d, and these lie at a stride: GemmTensors::d_batch_stride.
  bool stacks_d() const { return is_batch() || slices_k(); }
  /// Whether the launch gives bounds, in device memory.
  bool has_bounds() const { return any() && !is_batch(); }
  /// Whether each group has room for m / count rows of d.
  bool is_even() const { return kind == GroupKind::kMasked || stacks_d(); }
};
inline constexpr int kMostGroups = 4096;  // their bounds lie in shared memory
template <class Visitor>
void visit_fields(GemmGroups& groups, Visitor&& field) {
  field(
      "kind", groups.kind, any{},
      "rows: groups follow each other; masked: each group has room for as many rows; batch: it has them all; k: groups "
      "have slices of k");
  field("count", groups.count, range{1, kMostGroups}, "groups, and matrices in b");
  field("bounds", groups.bounds, any{},
        "what the launch gives: starts or ends of rows, counts of masked; a batch has none");
  field("gather", groups.gather, any{}, "the launch says which row of a each row of the result is made of");
  field("scatter", groups.scatter, any{}, "the launch says which row of d each row of the product becomes");
  field("pointers", groups.pointers, any{}, "the launch gives the address of each group's b, in device memory");
}

/// D = epilogue(A B): d [m, n]. a is [m, k] (layout n.) or [k, m] (t.), b is [k, n] (.n) or [n, k] (.t). Rows are
/// contiguous; padding may follow a row. m is a run-time parameter.
///
/// Scales are f32 and multiply the products. Counts are rounded up.
/// - per_tensor: one for a and one for b.
/// - per_token: scale_a [m] and scale_b [n].
/// - per_block: scale_a [k / 128, m] for 1 x 128 elements of a each, scale_b [n / 128, k / 128] for 128 x 128 elements
///   of b each.
///
/// With an epilogue of gates and ups, d is [m, n / 2] and scale_b of blocks is [2 (n / 2 / 128), k / 128]: epilogue.h.
///
/// Operands that are mxfp8, mxfp4 or nvfp4 have scales of their own kind instead, which are bytes:
/// contract/block_scales.h defines their layout.
struct GemmProblem {
  int n = 0, k = 0;
  GemmDTypes dtype;
  OperandLayout layout = OperandLayout::kNt;
  ScaleKind scales = ScaleKind::kNone;
  std::string epilogue = "acc";  // epilogue.h has its grammar
  /// For e4m3 and e5m2 alone. Sums stay in the tensor cores for all of k, which keep some 14 bits of them. Otherwise
  /// sums are added to f32 sums every 128 elements. per_block adds in any case.
  bool fast_accumulation = false;
  /// A row of d is the same to the bit, whatever the other rows are and however many there are.
  bool batch_invariant = false;
  GemmGroups groups;
  /// The sums are queries, keys and values: columns of all query heads, then of all key heads, then of all value heads.
  /// They are rounded to d's dtype, and what a launch of this problem makes of them follows. d has the queries,
  /// [m, q_heads * head_dim.qk], and keys and values go to the cache. A launch has GemmTensors::kv_write.
  std::optional<KvWriteProblem> kv_write;
  bool operator==(const GemmProblem&) const = default;
};
template <class Visitor>
void visit_fields(GemmProblem& problem, Visitor&& field) {
  field("n", problem.n, required{range{1, 1 << 24}}, "columns of the product; with gates, the result has half of them");
  field("k", problem.k, required{range{0, 1 << 24}}, "length of the reduction");
  field("dtype", problem.dtype, any{}, "element types");
  field("layout", problem.layout, any{}, "n. a is [m, k], t. a is [k, m]; .t b is [n, k], .n b is [k, n]");
  field("scales", problem.scales, any{}, "granularity of the operands' scales");
  field("epilogue", problem.epilogue, text{4096},
        "expression of the accumulator, acc, or of gate and up; or outputs of one: d = quantize(...), amax, squares");
  field("fast_accumulation", problem.fast_accumulation, any{},
        "fp8 operands: sums stay in the tensor cores for all of k");
  field("batch_invariant", problem.batch_invariant, any{},
        "a row of the result is the same to the bit whatever the other rows are");
  field("groups", problem.groups, any{}, "groups of rows, each with a matrix b of its own");
  field("kv_write", problem.kv_write, any{},
        "a problem of kind kv_write: the columns are queries, keys and values, which are rotated and go to a cache");
}

}  // namespace kernelwright
