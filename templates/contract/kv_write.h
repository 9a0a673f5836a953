/// kv_write: kernel parameters, and how the heads of a token are dealt to lanes, in one place for the host and the
/// kernel.
#pragma once

#include "contract/attention_params.h"
#include "contract/integers.h"

namespace kernelwright::contract {

/// Elements from a token to the next one, and from a head to the next one.
struct RowStrides {
  int64_t token, head;
};

/// Strides count elements. Rows of q, k and v may be parts of one packed row. A null pointer stands for an operand that
/// the problem lacks.
///
/// The kernel does not trust positions, slots and page tables in device memory. A token whose place is outside of the
/// cache is not written, and a position outside of the table is read as the nearest row.
///
/// A warp has one operand. What every warp reads comes first, and then what each operand needs: constants arrive by
/// lines of 64 bytes, and each line that is not there yet is a wait.
struct KvWriteParams {
  int32_t tokens;
  int32_t few_tokens;      // 1: a lane has one head. Read with kSplitsFew
  int32_t position_bytes;  // 4 or 8
  int32_t cos_sin_rows;
  int32_t num_pages;  // paged: pages of the cache. ragged: its rows
  float eps;
  const void* positions;        // [streams, tokens] i32 or i64
  const float* cos_sin;         // [cos_sin_rows, rope_width]: a row has the cosines of all pairs, then their sines
  const int64_t* slot_mapping;  // [tokens]; negative: the token is skipped

  const void* q;
  RowStrides q_strides;
  void* q_out;
  RowStrides q_out_strides;
  const void* q_weight;  // [head_dim.qk], or [q_heads, head_dim.qk] for a norm over all heads
  // Scales are f32. [1] or [heads], which are given. per_token: [tokens, q_heads], and by strides as the caches, which
  // the kernel writes; bytes with ue8m0.
  float* q_scale;

  const void* k;
  RowStrides k_strides;
  void* k_cache;
  Strides k_cache_strides;  // as AttentionParams has those of k and v
  const void* k_weight;     // as q_weight
  float* k_scale;
  Strides k_scale_strides;  // of scales per token: pages, tokens and heads. `token` alone where the cache has no pages

  const void* v;
  RowStrides v_strides;
  void* v_cache;
  Strides v_cache_strides;
  float* v_scale;
  Strides v_scale_strides;

  const int32_t* batch_indices;  // [tokens]; negative: the token is skipped
  const int32_t* page_table;     // [batch, page_table_stride]
  int32_t batch;                 // rows of page_table, or sequences of a padded cache
  int32_t page_table_stride;     // entries of one row of page_table
  int32_t kv_len;                // padded: keys of a sequence
  float least;                   // what the largest magnitude of a head counts as, if it is smaller
};

constexpr int32_t kLaneElements = 8;                  // of one vector: 16 bytes of what is read
constexpr int32_t kHeadElements = 2 * kLaneElements;  // of a head that one lane has: two vectors

/// Where a key's value lies among those of its page in a cache of columns, [pages, heads, head_dim, keys]. Each
/// 16 keys have the order of an operand of bytes: 0, 1, 8, 9, then the same plus 2, plus 4 and plus 6.
constexpr int32_t column_of_key(int32_t key) { return (key & ~15) | (key & 1) | (key >> 2 & 2) | (key << 1 & 12); }

/// Whether the signed Hadamard transform negates an element of a head: a hash that looks random, and is the same
/// everywhere.
constexpr bool is_negated(uint32_t element) {
  uint32_t hash = (element + 1) * 0x9e3779b1u;
  hash ^= hash >> 15;
  return (hash * 0x85ebca77u) >> 31 != 0;
}

/// Elements of a block of the Hadamard transform: the largest power of two that divides head_dim, a multiple of 16.
constexpr int32_t hadamard_block(int32_t head_dim) { return head_dim & -head_dim; }

/// Lanes that share a head: a power of two, so that shuffles add over them.
constexpr int32_t lanes_of_head(int32_t head_dim) {
  int32_t lanes = 1;
  while (lanes * kHeadElements < head_dim) lanes *= 2;
  return lanes;
}
/// Warps that share `heads` heads of a token, where a lane has parts of `heads_per_lane`.
constexpr int32_t warps_of_heads(int32_t heads, int32_t lanes, int32_t heads_per_lane) {
  const int32_t heads_of_warp = 32 / lanes * heads_per_lane;
  return (heads + heads_of_warp - 1) / heads_of_warp;
}

}  // namespace kernelwright::contract
