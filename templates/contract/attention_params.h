/// Kernel arguments of the attention kernels, the same bytes on both sides. Strides count elements; lengths count
/// tokens. A change of layout or meaning raises kContractVersion, which is part of every cache key.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

constexpr int kContractVersion = 8;

/// Strides of one operand. For paged keys and values, `batch` is the stride of a page. For ragged operands it is 0.
struct Strides {
  int64_t batch, token, head;
};

/// attention_portable and attention_decode_portable.
///
/// Kernels do not trust offsets, lengths and pages in device memory. They clamp these values by q_tokens, kv_tokens,
/// q_len, kv_len and num_pages (policy/attention_item.cuh, tile/kv_rows.cuh). So no access leaves the tensors, whatever
/// the memory holds.
///   q    [batch, q_len, q_heads, head_dim.qk] or [tokens, q_heads, head_dim.qk]
///   k, v [batch, kv_len, kv_heads, head_dim], [tokens, kv_heads, head_dim] or [pages, page_size, kv_heads, head_dim]
///   o    as q with head_dim.v;  lse [batch, q_heads, q_len] or [tokens, q_heads], f32
struct AttentionParams {
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse;        // null: not wanted
  float* partial_o;  // [splits, batch * q_len or tokens, q_heads, head_dim.v] f32, normalised; only if num_splits > 1
  // [splits, batch * q_len or tokens, q_heads] f32, base 2; -inf where a split saw no key. A part weighs 2^this. Decode
  // forms with fp8 queries and an LSE have as many LSEs behind these.
  float* partial_lse;
  // [batch * kv_heads * num_m_blocks] words of the workspace, used by policy/merge_parts.cuh. Any initial value is
  // valid. Used only if num_splits > 1 and the last CTA merges.
  uint64_t* merge_counters;
  const int32_t* q_offsets;  // [batch + 1], ragged queries
  // [batch + 1], ragged keys. In kernels whose Spec has kKvStarts it is kv_starts, [batch], of padded or paged keys:
  // the first key of each sequence; null: 0 for all. Kernels clamp a start to [0, the sequence's keys]. (One field for
  // both: another field, or a union, changes the binaries of all kernels.)
  const int32_t* kv_offsets;
  // [batch]; null: kv_len for all. For padded and paged keys. Kernels clamp a length to [0, kv_len].
  // CacheLength::kPrompt: never null, and a length excludes the sequence's own queries, whose keys lie behind the
  // counted ones.
  const int32_t* kv_lengths;
  const int32_t* page_table;  // [batch, page_table_stride]; keys of a page outside of [0, num_pages) are zeros
  const float* sinks;         // [q_heads]
  const float* k_scale;       // [1] or [kv_heads]; per_token and per_page: by k_scale_strides
  const float* v_scale;       // likewise
  Strides q_strides, k_strides, v_strides, o_strides;
  float scale;           // multiplies Q K^T; any finite number
  float exponent_scale;  // |scale| * log2(e), or log2(e) if scale is 0. Used where no score modifier and no key scale
                         // comes between
  float softcap;         // cap * tanh(score / cap)
  int32_t batch;
  int32_t q_heads, kv_heads;
  int32_t q_len;                      // queries of a sequence; the longest one if ragged
  int32_t kv_len;                     // keys of a sequence, or of the longest one; not used for ragged keys
  int32_t window_left, window_right;  // sliding_window and chunked; -1 is unbounded
  int32_t page_table_stride;
  int32_t num_splits;         // number of parts into which each sequence's keys are cut
  int32_t num_m_blocks;       // query tiles of the longest sequence (and KV head, when heads are packed)
  int32_t head_section;       // (batch, head) pairs whose tiles run together, so that their keys stay in the L2
  const float* alibi_slopes;  // [q_heads]; null: the geometric series of policy/score_mod.cuh
  int32_t chunk_reach;        // chunked: number of keys left of the diagonal that a query sees across the chunk's start
  int32_t num_pages;          // pages of k and v; kUnknownExtent: every non-negative number is a valid page
  const float* q_scale;       // per_token with e4m3 queries: as q without its last dimension, contiguous
  int32_t q_tokens;           // rows of ragged q and o
  int32_t kv_tokens;          // rows of ragged k and v, or kUnknownExtent
  int32_t zero_padding;       // 1: rows of ragged o that belong to no sequence become zeros; 0: they are not written
  // [batch, q_heads, q_len, kv_len], keys contiguous. A stride of 0: one element for all. `token` is the stride of a
  // query, counted from the first query of its sequence. Keys from kv_len on have no element here, and no query sees
  // them.
  const uint8_t* mask;  // 0: hidden
  const void* bias;     // added to the scaled score
  Strides mask_strides, bias_strides;
  // Of scales that differ by key. `batch` is the stride of a page or a sequence, and 0 for ragged keys. per_page:
  // `token` is 0.
  Strides k_scale_strides, v_scale_strides;
};

/// attention_portable, where a part of the head is rotary: q and k hold the other part, and q_rope and k_rope the
/// rotary part in the same layouts and element type.
struct PortableRotaryParams : AttentionParams {
  const void* q_rope;
  const void* k_rope;
  Strides q_rope_strides, k_rope_strides;  // a head stride of 0: one rotary part for all KV heads
};

/// An extent that the caller did not give.
constexpr int32_t kUnknownExtent = 0x7fffffff;

constexpr int kMaxSplits = 256;

/// Columns that a warp of attention_combine merges.
constexpr int32_t combined_columns(int32_t head_dim_v) { return head_dim_v > 256 ? 128 : head_dim_v; }

/// attention_combine: merges the parts of split keys.
struct CombineParams {
  const float* partial_o;    // [splits, rows, head_dim.v]
  const float* partial_lse;  // [splits, rows]
  void* o;
  float* lse;  // as in AttentionParams; null: not wanted
  Strides o_strides;
  int32_t num_splits;
  int32_t rows;  // (batch * q_len or tokens) * q_heads, heads innermost
  int32_t q_heads;
  int32_t q_len;             // padded: queries of a sequence; ragged: 0
  int32_t batch;             // sequences
  const int32_t* q_offsets;  // [batch + 1], ragged: rows that belong to no sequence are not written
};

}  // namespace kernelwright::contract
