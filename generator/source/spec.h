/// A Spec: a problem and its schedule, fully resolved for one architecture. A field of the Spec is compiled in. Other
/// numbers (batch, lengths, page tables, scales, window sizes) are run-time parameters. One field list feeds spec.h,
/// the canonical text that the cache key hashes, and `explain`.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/source/gemm_spec.h"
#include "kernelwright/generator/source/kv_write_spec.h"
#include "kernelwright/generator/source/moe_combine_spec.h"
#include "kernelwright/generator/source/route_spec.h"
#include "kernelwright/generator/source/row_op_spec.h"

namespace kernelwright {

/// How the warps of a CTA share the work. Each form has a template.
enum class AttentionForm {
  kPortablePrefill,   // attention_portable: all warps do the same
  kPortableDecode,    // attention_decode_portable
  kPortableLatent,    // attention_latent_portable: all warps do the same
  kHopperPrefill,     // attention_sm90: one warpgroup loads, the others multiply
  kHopperDecode,      // attention_decode_sm90: all warps do the same
  kHopperLatent,      // attention_latent_sm90: one warpgroup loads, two share the columns of the output
  kBlackwellLatent,   // attention_latent_sm100: softmax, correction, two warps that multiply, one that loads
  kBlackwellPrefill,  // attention_sm100: softmax, correction, a warp that multiplies, one that loads
};

/// A policy that is a user's own source. It is compiled in.
struct SpecSource {
  std::string type, text;   // type "": there is none
  std::string file, field;  // for messages: origin of the text, and the field that named it: "/problem/mask"
  bool exists() const { return !type.empty(); }
  bool operator==(const SpecSource& other) const { return type == other.type && text == other.text; }
};

inline constexpr int kExp2Step = 16;  // a Spec says how many of this many exponentials a polynomial computes

/// One attention kernel of any form. Fields of another form have their defaults and are no part of the Spec's text.
struct AttentionSpec {
  Family family = Family::kPortable;
  Arch arch = Arch::kSm80;
  DType q = DType::kBf16, kv = DType::kBf16, out = DType::kBf16;
  int head_dim_qk = 128, head_dim_v = 128;
  int group = 1;  // query heads per KV head
  QLayout q_layout = QLayout::kPadded;
  KvLayoutKind kv_layout = KvLayoutKind::kPadded;
  int page_size = 0;
  CacheLength cache_length = CacheLength::kAccurate;
  bool kv_starts = false;
  bool tiles_from_start = false;  // key tiles are counted from the sequence's first key, whatever an item sees
  bool v_columns = false;
  bool latent = false, balanced = false;  // values are the first elements of each key; CTAs share all tiles evenly
  MaskKind mask = MaskKind::kNone;        // as range_mask() has it
  int chunk = 0;
  ScoreModKind score_mod = ScoreModKind::kNone;
  bool sinks = false, lse = false;
  ScaleKind scales = ScaleKind::kNone;
  bool token_gen = false, pack_gqa = false;
  int block_m = 128, block_n = 64;
  Swizzle swizzle = Swizzle::k128B;
  Rescale rescale = Rescale::kLazy;
  // portable, and decode of any family
  Staging staging = Staging::kCpAsync;  // portable: what the stages of K and V are
  int block_k = 128;
  int warp_n = 64;  // portable prefill: keys of a tile that a warp multiplies
  int num_warps = 4, num_stages = 1;
  int min_ctas = 1;               // CTAs that an SM must be able to hold: bounds the registers
  Merge merge = Merge::kCombine;  // where keys are split
  // hopper and blackwell prefill
  int num_kv_stages = 2, num_qk_stages = 1, num_mma_stages = 1;
  KvRing kv_ring = KvRing::kSplit;
  Scheduler scheduler = Scheduler::kPersistent;
  int cluster_m = 1;
  int multicast = 1;  // CTAs of a cluster that each load of K and V serves
  // hopper prefill
  int math_warpgroups = 2, q_stages = 1;  // the warpgroups besides one that loads
  Overlap overlap = Overlap::kBoth;
  int pv_promote = 1, pv_buffers = 1;  // fp8: key tiles between sums of P V in f32 (0: none), and tiles of its parts
  int exp2_emulated = 0;               // exponentials of every kExp2Step by polynomial; also of blackwell
  // blackwell prefill
  int num_q = 2;            // query tiles of a CTA, contract::kQueryTileRows each
  int cta_group = 1;        // CTAs that share a product
  bool split_keys = false;  // a launch may cut the keys of an item into parts, which meet in the workspace
  int cluster_n = 1;        // CTAs of a cluster, along the keys: each takes a part of them
  int rope_width = 0;       // of head_dim_qk: the rotary part, in tensors of its own
  DType rope = DType::kBf16;
  bool mask_tensor = false;              // bytes of a launch hide keys, beside `mask`
  DType bias = DType::kBf16;             // score_mod tensor: what is added
  SpecSource mask_source, score_source;  // the user's own
  bool operator==(const AttentionSpec&) const = default;

  AttentionForm form() const;
  /// Whether warps have roles of their own and pass tiles to each other: hopper and blackwell prefill.
  bool has_roles() const {
    return form() == AttentionForm::kHopperPrefill || form() == AttentionForm::kBlackwellPrefill;
  }
  /// Whether a launch chooses the number of parts into which keys are cut.
  bool splits_keys() const { return token_gen || split_keys; }
  /// Whether rows of a warp move their maxima together (policy/softmax.cuh), so that bits depend on the other rows.
  bool shares_maxima() const;
  /// Portable: shared slots of K, and of V. Tiles that wait in registers pass through one slot.
  int kv_slots() const { return family == Family::kPortable && staging == Staging::kRegisters ? 1 : num_stages; }
  /// Portable: warps that own the same query rows, and share the keys of a tile.
  int num_warps_n() const { return token_gen ? num_warps : block_n / warp_n; }
  /// Sums of exponentials that a decode form has for each row. Queries of fp8 divide an output by the sum of rounded
  /// exponentials, and the LSE is of those that are not: policy/narrow_softmax.cuh. With scales that differ by key, one
  /// sum serves both: policy/key_scales.cuh.
  int row_sums() const { return token_gen && bits_of(q) == 8 && lse && !scales_differ_by_key(scales) ? 2 : 1; }
  /// Whether each query and head has a scale.
  bool scales_queries() const { return scales == ScaleKind::kPerToken && bits_of(q) == 8; }
  /// Whether each score is handled by itself: policy/open_scores.cuh.
  bool opens_scores() const {
    return mask_tensor || score_mod == ScoreModKind::kTensor || mask_source.exists() || score_source.exists();
  }
  /// Hopper prefill: whether a bf16 query becomes two terms of fp8, whose products read fp8 keys as they are stored.
  bool splits_q() const;
  /// Hopper prefill: whether fp8 products with V have sums beside the output.
  bool promotes() const;
  /// Hopper prefill: whether fp8 products with V add to the output itself, for runs of key tiles.
  bool promotes_runs() const;
  /// Hopper prefill: whether these sums take the registers of scores (contract/attention_sm90.h).
  bool shares_scores() const;
  bool parts_take_turns() const;  // whether parts of such products may do so between these registers and others
  /// Columns of q and k without the rotary ones, which are in q_rope and k_rope.
  int plain_depth() const { return head_dim_qk - rope_width; }
  /// Whether keys are records, which hold their own scales.
  bool has_records() const { return latent && scales == ScaleKind::kPerBlock; }
  /// Elements of `kv` that a row of k has: of a record its bytes.
  int key_width() const { return has_records() ? record_bytes() : plain_depth(); }
  int record_bytes() const;
  /// Bytes of a key and its value.
  double kv_bytes() const { return (latent ? key_width() : head_dim_qk + head_dim_v) * bits_of(kv) / 8.0; }
  int threads() const;  // of a CTA
};
/// Part of the text only where they are not the defaults of templates/kernels/attention/attention_defaults.cuh.
template <class Visitor>
void visit_options(AttentionSpec& spec, Visitor&& field) {
  if (spec.kv_starts) field("kv_starts", spec.kv_starts, any{}, "a launch may give the first key of each sequence");
  if (spec.tiles_from_start)
    field("tiles_from_start", spec.tiles_from_start, any{}, "key tiles are counted from the sequence's first key");
  if (spec.latent) field("latent", spec.latent, any{}, "values are the first elements of each key");
  if (spec.balanced) field("balanced", spec.balanced, any{}, "CTAs share the key tiles of all sequences evenly");
  if (spec.v_columns) field("v_columns", spec.v_columns, any{}, "keys of an element of V lie side by side");
  const bool blackwell = spec.form() == AttentionForm::kBlackwellPrefill;
  if (!blackwell && spec.rope_width != 0)
    field("rope_width", spec.rope_width, any{}, "elements of a query or key head that are rotary");
  if (!blackwell && spec.exp2_emulated != 0)
    field("exp2_emulated", spec.exp2_emulated, any{}, "exponentials of every 16 by polynomial");
  if (spec.pv_promote != 1)
    field("pv_promote", spec.pv_promote, any{}, "key tiles after which P V leaves the tensor cores; 0: never");
  if (spec.pv_buffers != 1) field("pv_buffers", spec.pv_buffers, any{}, "register tiles of the parts of P V");
  if (spec.opens_scores()) {
    field("mask_tensor", spec.mask_tensor, any{}, "bytes of a tensor hide keys");
    field("bias", spec.bias, any{}, "dtype of the tensor that score_mod adds");
    field("mask_source", spec.mask_source, any{}, "type and text that are asked for single keys");
    field("score_source", spec.score_source, any{}, "type and text that are asked for single scores");
  }
}
template <class Visitor>
void visit_fields(AttentionSpec& spec, Visitor&& field) {
  field("family", spec.family, any{}, "kernel family");
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
  field("cache_length", spec.cache_length, any{}, "what lengths of keys count: all, or those of the cache alone");
  field("mask", spec.mask, any{}, "visibility");
  field("chunk", spec.chunk, any{}, "keys of a chunk; 0 unless the mask is chunked");
  field("score_mod", spec.score_mod, any{}, "score modifier");
  field("sinks", spec.sinks, any{}, "a logit per query head joins the softmax");
  field("lse", spec.lse, any{}, "the log of the sum of exponentials is returned");
  field("scales", spec.scales, any{}, "granularity of key and value scales");
  field("token_gen", spec.token_gen, any{}, "decode form: each warp walks keys of its own");
  field("pack_gqa", spec.pack_gqa, any{}, "query heads of one KV head share a tile");
  field("block_m", spec.block_m, any{}, "query rows of a tile");
  field("block_n", spec.block_n, any{}, "keys of a tile");
  field("swizzle", spec.swizzle, any{}, "widest shared-memory swizzle");
  field("rescale", spec.rescale, any{}, "when the output is rescaled to a new row maximum");
  const bool hopper = spec.form() == AttentionForm::kHopperPrefill;
  const bool blackwell = spec.form() == AttentionForm::kBlackwellPrefill;
  if (hopper) {
    field("math_warpgroups", spec.math_warpgroups, any{}, "warpgroups that multiply; one more loads");
    field("q_stages", spec.q_stages, any{}, "slots of query tiles");
  }
  if (blackwell) {
    field("rope_width", spec.rope_width, any{}, "elements of a query or key head that are rotary");
    field("rope", spec.rope, any{}, "their dtype");
    field("num_q", spec.num_q, any{}, "query tiles of a CTA");
  }
  if (spec.has_roles()) {
    field("num_kv_stages", spec.num_kv_stages, any{}, "slots of the K/V ring, or of each ring");
    field("num_qk_stages", spec.num_qk_stages, any{}, "sub-stages of a tile of K, each some of its columns");
    field("num_mma_stages", spec.num_mma_stages, any{}, "sub-stages of a tile of V, each some of its keys");
    field("kv_ring", spec.kv_ring, any{}, "one ring for K and V, or one each");
    if (hopper) field("overlap", spec.overlap, any{}, "which exponentials hide behind which products");
    if (blackwell) field("exp2_emulated", spec.exp2_emulated, any{}, "exponentials of every 16 by polynomial");
    field("scheduler", spec.scheduler, any{}, "order in which tiles are handed out");
    if (blackwell) field("cta_group", spec.cta_group, any{}, "CTAs that share a product");
    field("cluster_m", spec.cluster_m, any{}, "CTAs of a cluster, along the queries");
    field("multicast", spec.multicast, any{}, "CTAs that each load of K and V serves");
    if (blackwell) {
      field("cluster_n", spec.cluster_n, any{}, "CTAs of a cluster, along the keys");
      field("split_keys", spec.split_keys, any{}, "a launch may cut keys into parts, which meet in the workspace");
      field("merge", spec.merge, any{}, "who merges the parts of split keys");
    }
  } else {
    if (spec.family == Family::kPortable) {
      field("staging", spec.staging, any{}, "what the stages of the KV buffer are");
      field("block_k", spec.block_k, any{}, "depth chunk of a key tile");
      if (!spec.token_gen) field("warp_n", spec.warp_n, any{}, "keys of a tile that a warp multiplies");
    }
    field("num_warps", spec.num_warps, any{}, "warps of a CTA");
    field("num_stages", spec.num_stages, any{}, "stages of the KV buffer");
    field("min_ctas", spec.min_ctas, any{}, "CTAs that an SM shall hold");
    if (spec.token_gen) field("merge", spec.merge, any{}, "who merges the parts of split keys");
    if (spec.latent && spec.family != Family::kPortable) field("cluster_m", spec.cluster_m, any{}, "CTAs of a cluster");
  }
  visit_options(spec, field);
}

/// attention_combine.
struct CombineSpec {
  Arch arch = Arch::kSm80;
  DType out = DType::kBf16;
  int head_dim_v = 128;
  bool lse = false;
  bool lse_apart = false;  // parts have an LSE beside their weights
  bool operator==(const CombineSpec&) const = default;
};
template <class Visitor>
void visit_fields(CombineSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  field("out", spec.out, any{}, "dtype of the output");
  field("head_dim_v", spec.head_dim_v, any{}, "elements of a value head");
  field("lse", spec.lse, any{}, "the log of the sum of exponentials is returned");
  if (spec.lse_apart) field("lse_apart", spec.lse_apart, any{}, "the LSEs of parts are not what parts are weighed by");
}

/// quantize.
struct QuantizeSpec {
  Arch arch = Arch::kSm80;
  DType from = DType::kBf16;
  DType to = DType::kMxfp8;
  bool operator==(const QuantizeSpec&) const = default;
};
template <class Visitor>
void visit_fields(QuantizeSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  field("from", spec.from, any{}, "dtype of the rows");
  field("to", spec.to, any{}, "block-scaled format that they become");
}

using Spec = std::variant<AttentionSpec, CombineSpec, GemmSpec, QuantizeSpec, KvWriteSpec, RowOpSpec, RouteSpec,
                          RouteSortSpec, MoeCombineSpec>;

/// The template that a Spec specialises: that of its form, "attention_combine", "gemm_...", "quantize", "kv_write",
/// "row_op", "route", "route_sort" or "moe_combine".
std::string kernel_name(const Spec& spec);
/// One "field value" line per field, in list order. The key hashes this text, and `explain` prints it.
std::string canonical_text(const Spec& spec);
Arch arch_of(const Spec& spec);

}  // namespace kernelwright
