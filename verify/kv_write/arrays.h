/// Cache writes from folders of .npy files, with a user's own tensors, and results back into such folders.
///
/// Values are float32 and are rounded to the problem's dtypes when they are read. Places are int32.
///   q              [tokens, q_heads, head_dim.qk], unless q_out is false
///   k, v           [tokens, kv_heads, head_dim]
///   q_weight, k_weight  [head_dim.qk], or [heads, head_dim.qk] for a norm over all heads
///   cos_sin        [rows, rope.width]
///   positions      [tokens], or [3, tokens] with sections
///   slot_mapping   [tokens]; or with index "positions" batch_indices [tokens] and, paged, page_table [batch, pages]
///   q_scale, k_scale, v_scale  [1] per_tensor, [heads] per_head
///   num_pages (paged), batch and kv_len (padded), kv_tokens (ragged)  [1]
/// Without the last ones the cache is the smallest that has all places.
///
/// Out come q_out, k_cache, v_cache and scales per token. What no token has is NaN.
#pragma once

#include <string>

#include "kernelwright/verify/kv_write/case.h"

namespace kernelwright {

/// Throws ConfigError with every violation that can be found at once. Each violation names the file, what the file has
/// and what would fit. Also refuses arrays that the problem does not read.
KvWriteCase read_case(const KvWriteProblem& problem, const std::string& folder);

/// The same of `tokens` rows that a GEMM makes: without q, k and v, which the folder may not have.
KvWriteCase read_cache_case(const KvWriteProblem& problem, std::int64_t tokens, const std::string& folder);

/// Creates `folder` if it does not exist. Throws ConfigError.
void write_output(const KvWriteCase& call, const KvWriteOutput& output, const std::string& folder);

}  // namespace kernelwright
