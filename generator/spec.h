/// A Spec: a problem and its schedule, fully resolved for one architecture. What is in it is compiled in; what is not
/// (batch, lengths, page tables, scales, window sizes) is a run-time parameter. One field list feeds spec.h, the
/// canonical text that the cache key hashes, and `explain`.
#pragma once

#include <string>
#include <variant>

#include "kernelwright/generator/enums.h"
#include "kernelwright/generator/fields.h"

namespace kernelwright {

/// attention_portable (token_gen false) and attention_decode_portable (token_gen true).
struct AttentionSpec {
  Arch arch = Arch::kSm80;
  DType q = DType::kBf16, kv = DType::kBf16, out = DType::kBf16;
  int head_dim_qk = 128, head_dim_v = 128;
  int group = 1;  // query heads per KV head
  QLayout q_layout = QLayout::kPadded;
  KvLayoutKind kv_layout = KvLayoutKind::kPadded;
  int page_size = 0;
  MaskKind mask = MaskKind::kNone;
  ScoreModKind score_mod = ScoreModKind::kNone;
  bool sinks = false, lse = false;
  ScaleKind scales = ScaleKind::kNone;
  bool token_gen = false;
  bool pack_gqa = false;
  bool register_staged = false;  // K and V pass through registers, converted on the way
  int block_m = 128, block_n = 64, block_k = 128;
  int num_warps = 4, num_stages = 1;
  Swizzle swizzle = Swizzle::k128B;
  Rescale rescale = Rescale::kLazy;
  int min_ctas = 1;  // CTAs that an SM shall hold: bounds the registers
  bool operator==(const AttentionSpec&) const = default;
};
template <class Visitor>
void visit_fields(AttentionSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  field("q", spec.q, any{}, "dtype of queries");
  field("kv", spec.kv, any{}, "dtype of keys and values");
  field("out", spec.out, any{}, "dtype of the output");
  field("head_dim_qk", spec.head_dim_qk, any{}, "elements of a query or key head");
  field("head_dim_v", spec.head_dim_v, any{}, "elements of a value head");
  field("group", spec.group, any{}, "query heads per KV head");
  field("q_layout", spec.q_layout, any{}, "layout of queries");
  field("kv_layout", spec.kv_layout, any{}, "layout of keys and values");
  field("page_size", spec.page_size, any{}, "keys of a page; 0 unless paged");
  field("mask", spec.mask, any{}, "visibility");
  field("score_mod", spec.score_mod, any{}, "score modifier");
  field("sinks", spec.sinks, any{}, "a logit per query head joins the softmax");
  field("lse", spec.lse, any{}, "the log of the sum of exponentials is returned");
  field("scales", spec.scales, any{}, "granularity of key and value scales");
  field("token_gen", spec.token_gen, any{}, "decode form: each warp walks keys of its own");
  field("pack_gqa", spec.pack_gqa, any{}, "query heads of one KV head share a tile");
  field("register_staged", spec.register_staged, any{}, "keys and values pass through registers");
  field("block_m", spec.block_m, any{}, "query rows of a tile");
  field("block_n", spec.block_n, any{}, "keys of a tile");
  field("block_k", spec.block_k, any{}, "depth chunk of a key tile");
  field("num_warps", spec.num_warps, any{}, "warps of a CTA");
  field("num_stages", spec.num_stages, any{}, "stages of the KV buffer");
  field("swizzle", spec.swizzle, any{}, "widest shared-memory swizzle");
  field("rescale", spec.rescale, any{}, "when the output is rescaled to a new row maximum");
  field("min_ctas", spec.min_ctas, any{}, "CTAs that an SM shall hold");
}

/// attention_combine.
struct CombineSpec {
  Arch arch = Arch::kSm80;
  DType out = DType::kBf16;
  int head_dim_v = 128;
  bool lse = false;
  bool operator==(const CombineSpec&) const = default;
};
template <class Visitor>
void visit_fields(CombineSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  field("out", spec.out, any{}, "dtype of the output");
  field("head_dim_v", spec.head_dim_v, any{}, "elements of a value head");
  field("lse", spec.lse, any{}, "the log of the sum of exponentials is returned");
}

using Spec = std::variant<AttentionSpec, CombineSpec>;

/// The template that a Spec specialises: "attention_portable", "attention_decode_portable", "attention_combine".
std::string kernel_name(const Spec& spec);
/// One "field value" line per field, in list order: what the key hashes and `explain` prints.
std::string canonical_text(const Spec& spec);
Arch arch_of(const Spec& spec);

}  // namespace kernelwright
