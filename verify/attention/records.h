/// Records of latent keys: what a key of scales "per_block" is in memory, and what its elements are.
///
/// A record has the latents, head_dim.v codes of dtype.kv; an f32 scale for each 128 of them; and the other elements of
/// the key, in dtype.q. With 512 latents of 576 elements that is 656 bytes. A latent is its code times its scale,
/// computed in f32 and rounded to dtype.q: this is what both products take.
#pragma once

#include <cstddef>
#include <span>

#include "kernelwright/generator/problem/problem.h"

namespace kernelwright {

/// Elements of dtype.kv that a row of k has: of a record its bytes, and without records the key without its rotary
/// part.
int key_width(const AttentionProblem& problem);

/// Writes `key`, head_dim.qk values, to the record at `to`. A scale is the largest magnitude of its latents over the
/// largest number of dtype.kv, and the smallest normal number for latents that are all 0.
void encode_record(const AttentionProblem& problem, std::span<const float> key, std::byte* to);
/// Reads the first `count` elements of the record at `from`: head_dim.v of a value, or head_dim.qk of a key.
void decode_record(const AttentionProblem& problem, const std::byte* from, std::size_t count, double* to);

}  // namespace kernelwright
