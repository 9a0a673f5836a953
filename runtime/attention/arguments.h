/// The rules that a launch's arguments obey. The hot path asks surely_fine(), a few dozen instructions. If that cannot
/// tell, broken_rules() says which rules are broken and what is accepted.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/attention/argument_tables.h"
#include "kernelwright/runtime/attention/launch.h"

namespace kernelwright::detail {

/// The operands' strides with the contiguous ones filled in.
struct ResolvedStrides {
  TensorStrides q, k, v, o;
  TensorStrides q_rope, k_rope;    // if the problem has a rotary part
  TensorStrides mask, bias;        // if it has such tensors
  TensorStrides k_scale, v_scale;  // of scales that differ by key
};

inline TensorStrides resolve(const TensorStrides& given, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                             bool ragged) noexcept {
  TensorStrides strides = given;
  if (!(given.batch | given.token | given.head)) strides = {rows * heads * head_dim, heads * head_dim, head_dim};
  if (ragged) strides.batch = 0;
  return strides;
}

/// Elements of V that lie side by side: a head of a key or, in columns, of all keys of a page.
inline std::int64_t value_extent(const AttentionSpec& spec) noexcept {
  return spec.v_columns ? std::int64_t{spec.head_dim_v} * spec.page_size : spec.head_dim_v;
}

/// Those of pages of V in columns, [pages, kv_heads, head_dim.v, page_size].
inline TensorStrides resolve_columns(const TensorStrides& given, const AttentionSpec& spec,
                                     std::int64_t heads) noexcept {
  if (given.batch | given.token | given.head) return given;
  return {heads * value_extent(spec), 0, value_extent(spec)};
}

/// Those of a tensor with an element for each score. They may wrap around where broken_rules() refuses the extents.
inline TensorStrides resolve(const TensorStrides& given, const ScoreTensor& shape, const AttentionTensors& tensors,
                             int heads) noexcept {
  if (given.batch | given.token | given.head) return given;
  const auto keys = static_cast<std::uint64_t>(tensors.kv_len);
  const std::uint64_t head = shape.q ? keys * static_cast<std::uint64_t>(tensors.q_len) : keys;
  const std::uint64_t batch = shape.heads ? head * static_cast<std::uint64_t>(heads) : head;
  return {static_cast<std::int64_t>(shape.batch ? batch : 0), static_cast<std::int64_t>(shape.q ? keys : 0),
          static_cast<std::int64_t>(shape.heads ? head : 0)};
}

/// Those of scales: as k without its last dimension, or one for each page and head.
inline TensorStrides resolve_scales(const TensorStrides& given, const AttentionSpec& spec, std::int64_t rows,
                                    std::int64_t heads) noexcept {
  if (!scales_differ_by_key(spec.scales)) return {};
  const bool contiguous = !(given.batch | given.token | given.head);
  if (spec.scales == ScaleKind::kPerPage) return contiguous ? TensorStrides{heads, 0, 1} : given;
  return resolve(given, rows, heads, 1, spec.kv_layout == KvLayoutKind::kRagged);
}

inline ResolvedStrides resolve_strides(const LoadedAttention& kernel, const AttentionTensors& tensors) noexcept {
  const AttentionSpec& spec = kernel.spec;
  const bool ragged_q = spec.q_layout == QLayout::kRagged, ragged_kv = spec.kv_layout == KvLayoutKind::kRagged;
  const int kv_rows = spec.kv_layout == KvLayoutKind::kPaged ? spec.page_size : tensors.kv_len;
  TensorStrides q_rope, k_rope;
  if (spec.rope_width > 0) {
    q_rope = resolve(tensors.q_rope_strides, tensors.q_len, kernel.q_heads, spec.rope_width, ragged_q);
    k_rope = resolve(tensors.k_rope_strides, kv_rows, kernel.kv_heads, spec.rope_width, ragged_kv);
  }
  return {resolve(tensors.q_strides, tensors.q_len, kernel.q_heads, spec.plain_depth(), ragged_q),
          resolve(tensors.k_strides, kv_rows, kernel.kv_heads, spec.key_width(), ragged_kv),
          spec.latent      ? resolve(tensors.k_strides, kv_rows, kernel.kv_heads, spec.key_width(), ragged_kv)
          : spec.v_columns ? resolve_columns(tensors.v_strides, spec, kernel.kv_heads)
                           : resolve(tensors.v_strides, kv_rows, kernel.kv_heads, spec.head_dim_v, ragged_kv),
          resolve(tensors.o_strides, tensors.q_len, kernel.q_heads, spec.head_dim_v, ragged_q),
          q_rope,
          k_rope,
          spec.mask_tensor ? resolve(tensors.mask_strides, kernel.mask, tensors, kernel.q_heads) : TensorStrides{},
          spec.score_mod == ScoreModKind::kTensor ? resolve(tensors.bias_strides, kernel.bias, tensors, kernel.q_heads)
                                                  : TensorStrides{},
          resolve_scales(tensors.k_scale_strides, spec, kv_rows, kernel.kv_heads),
          resolve_scales(tensors.v_scale_strides, spec, kv_rows, kernel.kv_heads)};
}

/// The most queries of all heads, if each sequence had q_len. With more, a launch of any kernel would have too many
/// tiles. With fewer, plan_launch() stays far from the end of 64 bits.
inline constexpr std::int64_t kMostPlannedRows = std::int64_t{1} << 40;

/// Kernels count keys, and queries times the heads of a group, in 32 bits, up to the end of the last tile.
inline constexpr std::int64_t kMostKeys = std::int64_t{1} << 30;

/// What an extent breaks of the rules, for questions that come without tensors.
std::vector<Violation> broken_extent(const AttentionExtent& extent);

/// The tensors of a launch whose keys hold their values: v is k. Throws ConfigError if `given` has values of its own.
AttentionTensors values_in_keys(const AttentionTensors& given);

/// Rows of q and o: those of all sequences.
inline std::int64_t query_rows(QLayout layout, const AttentionTensors& tensors) noexcept {
  return layout == QLayout::kRagged ? tensors.q_tokens : std::int64_t{tensors.batch} * tensors.q_len;
}

/// Rows of ragged keys: AttentionTensors::kv_tokens, or what stands for it; 0 if that is not known.
inline std::int64_t kv_tokens_of(const AttentionTensors& tensors) noexcept {
  if (tensors.kv_tokens > 0) return tensors.kv_tokens;
  return tensors.kv_offsets == tensors.q_offsets ? tensors.q_tokens : 0;
}

/// The bits that any stride has.
inline std::uint64_t all_bits(const ResolvedStrides& strides) noexcept {
  // Not as a loop over a list: the list would be a copy of all strides.
  const auto bits = [](const TensorStrides& s) { return s.batch | s.token | s.head; };
  return static_cast<std::uint64_t>(bits(strides.q) | bits(strides.k) | bits(strides.v) | bits(strides.o) |
                                    bits(strides.q_rope) | bits(strides.k_rope) | bits(strides.mask) |
                                    bits(strides.bias) | bits(strides.k_scale) | bits(strides.v_scale));
}

/// True only if no rule of broken_rules() is broken; may be false for arguments that are fine too (broadcasts, no
/// keys, single rows). A few dozen instructions for what servers pass all day.
inline bool surely_fine(const LoadedAttention& kernel, const AttentionTensors& t, const ResolvedStrides& strides,
                        std::int64_t rows) noexcept {
  // Branches that always go the same way cost less than flags that are gathered.
  const AttentionSpec& spec = kernel.spec;
  if (t.sm_budget < 0 || (kernel.max_q_len && t.q_len > kernel.max_q_len)) return false;
  if (t.pdl && !kernel.has_pdl) return false;
  // With fewer than 2^22 of each length, and strides of fewer than 2^31 elements, no operand reaches over kMostBytes.
  // Negative numbers are large ones here.
  const auto lengths = static_cast<std::uint64_t>(t.batch | t.q_len | t.kv_len | t.num_pages | rows | kv_tokens_of(t));
  if (lengths >> 22 || all_bits(strides) >> 31) return false;
  if (rows > std::int64_t{t.batch} * t.q_len || std::int64_t{t.q_len} * kernel.q_heads > kMostKeys) return false;
  if (rows * kernel.q_heads > std::numeric_limits<std::int32_t>::max()) return false;
  constexpr DevicePtr kUnusual = std::uint64_t{1} << 63 | 15;
  if (!t.q || !t.k || !t.v || !t.o || ((t.q | t.k | t.v | t.o) & kUnusual)) return false;

  DevicePtr low_bits = 0;
  unsigned given = 0;
  visit_optional_operands(t, [&](unsigned bit, DevicePtr address) {
    if (address) given |= bit;
    low_bits |= address;
  });
  if ((low_bits & 3) || (given & ~kernel.takes) || (kernel.needs & ~given)) return false;

  const auto fits = [](const TensorStrides& given_strides, const TensorStrides& s, bool ragged, std::int64_t head_dim,
                       std::int64_t step) {
    // Contiguous ones are whole heads, and the planner takes no head that is not whole multiples of 16 bytes.
    if (!(given_strides.batch | given_strides.token | given_strides.head)) return true;
    const std::int64_t batch = ragged ? head_dim : s.batch;
    return ((batch - head_dim) | (s.token - head_dim) | (s.head - head_dim)) >= 0 &&
           ((s.batch | s.token | s.head) & (step - 1)) == 0;
  };
  const bool ragged_q = spec.q_layout == QLayout::kRagged, ragged_kv = spec.kv_layout == KvLayoutKind::kRagged;
  if (!fits(t.q_strides, strides.q, ragged_q, spec.plain_depth(), kernel.q_step)) return false;
  if (!fits(t.k_strides, strides.k, ragged_kv, spec.key_width(), kernel.kv_step)) return false;
  if (spec.rope_width > 0) {
    constexpr std::int64_t kRopeStep = 8;  // elements in 16 bytes
    if ((t.q_rope | t.k_rope) & kUnusual) return false;
    if (!fits(t.q_rope_strides, strides.q_rope, ragged_q, spec.rope_width, kRopeStep)) return false;
    TensorStrides keys = strides.k_rope;
    if (keys.head == 0) keys.head = spec.rope_width;  // one for all heads
    if (!fits(t.k_rope_strides, keys, ragged_kv, spec.rope_width, kRopeStep)) return false;
  }
  // In columns, V has no stride of tokens.
  const TensorStrides values = {strides.v.batch, spec.v_columns ? strides.v.head : strides.v.token, strides.v.head};
  if (!fits(t.v_strides, values, ragged_kv, value_extent(spec), kernel.kv_step)) return false;
  if (!fits(t.o_strides, strides.o, ragged_q, spec.head_dim_v, kernel.o_step)) return false;

  if (spec.kv_layout == KvLayoutKind::kPaged && std::int64_t{t.page_table_stride} * spec.page_size < t.kv_len)
    return false;
  if (t.kv_tokens < 0 || (kernel.tensor_maps && ragged_kv && kv_tokens_of(t) == 0)) return false;
  const auto contiguous = [](const TensorStrides& s) { return !(s.batch | s.token | s.head); };
  if (!contiguous(t.k_scale_strides) || !contiguous(t.v_scale_strides)) return false;
  if (!contiguous(t.mask_strides) || !contiguous(t.bias_strides) || static_cast<std::int64_t>(t.mask | t.bias) < 0)
    return false;
  return !breaks_number_rule(kernel, t) && !t.softcap && !t.window;
}

/// Every rule that is broken, led by "/tensors".
std::vector<Violation> broken_rules(const LoadedAttention& kernel, const AttentionTensors& tensors,
                                    const ResolvedStrides& strides);

}  // namespace kernelwright::detail
