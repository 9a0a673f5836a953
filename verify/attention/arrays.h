/// Attention calls from folders of .npy files, with a user's own tensors, and results back into such folders.
///
/// Values are float32 and are rounded to the problem's dtypes when they are read; indices are int32.
///   q            [batch, q_len, q_heads, head_dim.qk] or, ragged, [tokens, q_heads, head_dim.qk]
///   k, v         [batch, kv_len, kv_heads, head_dim], ragged [tokens, kv_heads, head_dim], or paged
///                [pages, page_size, kv_heads, head_dim]
///   page_table   [batch, max_pages], paged keys
///   q_offsets, kv_offsets  [batch + 1], ragged queries, ragged keys (without kv_offsets.npy keys share the queries')
///   kv_lengths   [batch]; required for paged keys and cache_length "prompt", optional for padded keys
///   kv_starts    [batch], for a problem with kv_starts; without it every sequence begins with its key 0
///   alibi_slopes [q_heads], for score_mod alibi; without it the slopes are the geometric series
///   sinks        [q_heads];  k_scale, v_scale  [1] or [kv_heads]; with scales per_token as k without its last
///                dimension, and with per_page [pages, kv_heads]
///   q_rope, k_rope  as q and k with rope.width, if the problem has a rotary part; q and k then lack that part
///   mask         [batch or 1, q_heads or 1, q_len or 1, kv_len] as the problem's mask "tensor" says; 0 hides a key
///   bias         the same for score_mod "tensor"; rounded to its dtype
///   q_scale      with scales per_token of e4m3 queries: as q without its last dimension
/// and out: o as q with head_dim.v, lse [batch, q_heads, q_len] or [tokens, q_heads].
#pragma once

#include <string>

#include "kernelwright/verify/attention/case.h"

namespace kernelwright {

/// Throws ConfigError with every violation that can be found at once. Each violation names the file, what the file has
/// and what would fit. Also refuses page ids in use that are no page, lengths that are negative or too long, offsets
/// that decrease, and arrays that the problem does not read.
AttentionCase read_case(const AttentionProblem& problem, const std::string& folder);

/// Writes o.npy and, if the problem has it, lse.npy. Creates `folder` if it does not exist. Throws ConfigError.
void write_output(const AttentionCase& call, const AttentionOutput& output, const std::string& folder);

}  // namespace kernelwright
