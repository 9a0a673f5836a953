/// The rules that a launch's arguments obey, written once and walked twice: the hot path only asks whether one is
/// broken, the cold one says which and what would do.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/attention/launch.h"

namespace kernelwright::detail {

/// The operands' strides with the contiguous ones filled in.
struct ResolvedStrides {
  TensorStrides q, k, v, o;
  TensorStrides q_rope, k_rope;  // if the problem has a rotary part
  TensorStrides mask, bias;      // if it has such tensors
};

inline TensorStrides resolve(const TensorStrides& given, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                             bool ragged) noexcept {
  TensorStrides strides = given;
  if (!(given.batch | given.token | given.head)) strides = {rows * heads * head_dim, heads * head_dim, head_dim};
  if (ragged) strides.batch = 0;
  return strides;
}

/// Those of a tensor with an element for each score. They may wrap around where check_arguments() refuses the extents.
inline TensorStrides resolve(const TensorStrides& given, const ScoreTensor& shape, const AttentionTensors& tensors,
                             int heads) noexcept {
  if (given.batch | given.token | given.head) return given;
  const auto keys = static_cast<std::uint64_t>(tensors.kv_len);
  const std::uint64_t head = shape.q ? keys * static_cast<std::uint64_t>(tensors.q_len) : keys;
  const std::uint64_t batch = shape.heads ? head * static_cast<std::uint64_t>(heads) : head;
  return {static_cast<std::int64_t>(shape.batch ? batch : 0), static_cast<std::int64_t>(shape.q ? keys : 0),
          static_cast<std::int64_t>(shape.heads ? head : 0)};
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
          resolve(tensors.k_strides, kv_rows, kernel.kv_heads, spec.plain_depth(), ragged_kv),
          resolve(tensors.v_strides, kv_rows, kernel.kv_heads, spec.head_dim_v, ragged_kv),
          resolve(tensors.o_strides, tensors.q_len, kernel.q_heads, spec.head_dim_v, ragged_q),
          q_rope,
          k_rope,
          spec.mask_tensor ? resolve(tensors.mask_strides, kernel.mask, tensors, kernel.q_heads) : TensorStrides{},
          spec.score_mod == ScoreModKind::kTensor ? resolve(tensors.bias_strides, kernel.bias, tensors, kernel.q_heads)
                                                  : TensorStrides{}};
}

/// Queries of all heads if each sequence had q_len: more are more tiles than a launch has, whatever the kernel, and
/// fewer leave plan_launch() far from the end of 64 bits.
inline constexpr std::int64_t kMostPlannedRows = std::int64_t{1} << 40;

/// Kernels count keys, and queries times the heads of a group, in 32 bits, up to the end of the last tile.
inline constexpr std::int64_t kMostKeys = std::int64_t{1} << 30;

/// What an extent breaks of the rules below, for questions that come without tensors.
inline std::vector<Violation> broken_extent(const AttentionExtent& extent) {
  std::vector<Violation> broken;
  if (extent.kv_heads < 1 || extent.q_heads < extent.kv_heads)
    broken.push_back({"/extent/q_heads", fmt::format("{} query heads of {} key heads are none that a problem has",
                                                     extent.q_heads, extent.kv_heads)});
  if (!(CheckedInt(extent.q_tokens) * extent.q_heads).at_most(std::numeric_limits<std::int32_t>::max()))
    broken.push_back({"/extent/q_tokens", fmt::format("{} rows of {} query heads are more than 2^31 - 1, and no launch "
                                                      "takes them",
                                                      extent.q_tokens, extent.q_heads)});
  else if (!(CheckedInt(extent.batch) * extent.q_len * extent.q_heads).at_most(kMostPlannedRows))
    broken.push_back({"/extent/q_len", fmt::format("{} sequences of up to {} queries, of {} heads, are more tiles than "
                                                   "a launch has",
                                                   extent.batch, extent.q_len, extent.q_heads)});
  return broken;
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
                                    bits(strides.bias));
}

/// The addresses that `LoadedAttention::takes` and `needs` speak of, in the order of their bits.
inline std::array<DevicePtr, 14> optional_operands(const AttentionTensors& t) noexcept {
  return {t.lse,     t.q_offsets,    t.kv_offsets, t.kv_lengths, t.page_table, t.sinks, t.k_scale,
          t.v_scale, t.alibi_slopes, t.q_scale,    t.q_rope,     t.k_rope,     t.mask,  t.bias};
}

/// True only if no rule of check_arguments() is broken; may be false for arguments that are fine too (broadcasts, no
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
  unsigned given = 0, bit = 1;
  for (const DevicePtr address : optional_operands(t)) {
    if (address) given |= bit;
    low_bits |= address;
    bit <<= 1;
  }
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
  if (!fits(t.k_strides, strides.k, ragged_kv, spec.plain_depth(), kernel.kv_step)) return false;
  if (spec.rope_width > 0) {
    constexpr std::int64_t kRopeStep = 8;  // elements in 16 bytes
    if ((t.q_rope | t.k_rope) & kUnusual) return false;
    if (!fits(t.q_rope_strides, strides.q_rope, ragged_q, spec.rope_width, kRopeStep)) return false;
    if (!fits(t.k_rope_strides, strides.k_rope, ragged_kv, spec.rope_width, kRopeStep)) return false;
  }
  if (!fits(t.v_strides, strides.v, ragged_kv, spec.head_dim_v, kernel.kv_step)) return false;
  if (!fits(t.o_strides, strides.o, ragged_q, spec.head_dim_v, kernel.o_step)) return false;

  if (spec.kv_layout == KvLayoutKind::kPaged && std::int64_t{t.page_table_stride} * spec.page_size < t.kv_len)
    return false;
  if (t.kv_tokens < 0 || (kernel.tensor_maps && ragged_kv && kv_tokens_of(t) == 0)) return false;
  if (t.num_pages < 0 || (t.num_pages > 0 && spec.kv_layout != KvLayoutKind::kPaged)) return false;
  const auto contiguous = [](const TensorStrides& s) { return !(s.batch | s.token | s.head); };
  if (!contiguous(t.mask_strides) || !contiguous(t.bias_strides) || static_cast<std::int64_t>(t.mask | t.bias) < 0)
    return false;
  return (!t.scale || std::isfinite(*t.scale)) && !t.softcap && !t.window;
}

/// Calls `bad(broken, path, message)` for every rule, where message() makes the text.
template <class Bad>
void check_arguments(const LoadedAttention& kernel, const AttentionTensors& tensors, const ResolvedStrides& strides,
                     Bad&& bad) {
  const AttentionSpec& spec = kernel.spec;
  const bool ragged_q = spec.q_layout == QLayout::kRagged, ragged_kv = spec.kv_layout == KvLayoutKind::kRagged;
  const bool paged = spec.kv_layout == KvLayoutKind::kPaged, scaled = spec.scales != ScaleKind::kNone;

  bad(tensors.batch < 0, "/batch", [&] { return fmt::format("{} is negative", tensors.batch); });
  bad(tensors.q_len < 0, "/q_len", [&] { return fmt::format("{} is negative", tensors.q_len); });
  bad(tensors.kv_len < 0, "/kv_len", [&] { return fmt::format("{} is negative", tensors.kv_len); });
  bad(tensors.kv_len > kMostKeys, "/kv_len", [&] {
    return fmt::format("{} is more than 2^30 keys, to which kernels count in 32 bits; give the longest sequence's",
                       tensors.kv_len);
  });
  bad(std::int64_t{tensors.q_len} * spec.group > kMostKeys, "/q_len", [&] {
    return fmt::format(
        "{} queries of {} heads are more than 2^30 rows, to which kernels count in 32 bits; give the "
        "longest sequence's",
        tensors.q_len, spec.group);
  });
  bad((kernel.max_q_len > 0) & (tensors.q_len > kernel.max_q_len), "/q_len",
      [&] { return fmt::format("{} is above the problem's max_q_len of {}", tensors.q_len, kernel.max_q_len); });
  bad(tensors.sm_budget < 0, "/sm_budget",
      [&] { return fmt::format("{} is negative; 0 takes all SMs", tensors.sm_budget); });
  bad(tensors.pdl & !kernel.has_pdl, "/pdl", [&] {
    return fmt::format("is true, and {} has no programmatic dependent launch, which begins with sm_90; leave it false",
                       arch_info(spec.arch).name);
  });
  const std::int64_t all_queries = std::int64_t{tensors.batch} * tensors.q_len;
  bad(ragged_q & ((tensors.q_tokens < 0) | (tensors.q_tokens > all_queries)), "/q_tokens", [&] {
    return fmt::format(
        "{} rows of ragged queries do not fit {} sequences of at most {}; give q_offsets[batch], and the "
        "longest sequence as q_len",
        tensors.q_tokens, tensors.batch, tensors.q_len);
  });

  bad(tensors.kv_tokens < 0, "/kv_tokens", [&] { return fmt::format("{} is negative", tensors.kv_tokens); });
  constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();  // offsets are of 32 bits
  bad(ragged_kv & (tensors.kv_tokens > kMostTokens), "/kv_tokens",
      [&] { return fmt::format("{} is more than 2^31 - 1, to which kv_offsets count", tensors.kv_tokens); });
  bad(kernel.tensor_maps & ragged_kv & (tensors.kv_len > 0) & (kv_tokens_of(tensors) == 0), "/kv_tokens", [] {
    return std::string(
        "is 0, and the kernel has to know how many rows k and v have, lest it reads behind them; give "
        "kv_offsets[batch]");
  });

  const std::int64_t rows = ragged_q ? tensors.q_tokens : all_queries;
  const bool too_many_rows = !(CheckedInt(rows) * kernel.q_heads).at_most(std::numeric_limits<std::int32_t>::max());
  bad(too_many_rows, "/batch", [&] {
    return fmt::format("{} rows of {} query heads are more than 2^31 - 1; launch fewer sequences at a time", rows,
                       kernel.q_heads);
  });
  bad(!too_many_rows & !(CheckedInt(all_queries) * kernel.q_heads).at_most(kMostPlannedRows), "/q_len", [&] {
    return fmt::format(
        "{} sequences of up to {} queries, of {} heads, are more tiles than a launch has; give the "
        "longest sequence as q_len",
        tensors.batch, tensors.q_len, kernel.q_heads);
  });

  const auto operand = [&](const char* path, DevicePtr address, bool needed) {
    bad(needed & !address, path, [] { return std::string("is null; give a device address"); });
    bad((address & 15) != 0, path,
        [=] { return fmt::format("address {:#x} is not a multiple of 16; give an aligned one", address); });
  };
  const bool any_keys = (tensors.kv_len > 0) | (tensors.kv_lengths != 0) | ragged_kv;
  operand("/q", tensors.q, true);
  operand("/k", tensors.k, any_keys);
  operand("/v", tensors.v, any_keys);
  operand("/o", tensors.o, true);

  const bool lengths_fit = (tensors.batch >= 0) & (tensors.q_len >= 0) & (tensors.kv_len >= 0);
  const auto strided = [&](const char* path, DevicePtr address, const TensorStrides& stride, DType dtype,
                           std::int64_t head_dim, std::int64_t batches, std::int64_t tokens, std::int64_t heads,
                           bool written) {
    const auto fits = [=](std::int64_t value, std::int64_t extent) {
      return (value >= head_dim) | (!written & (value == 0)) | ((extent <= 1) & (value >= 0));
    };
    bad(lengths_fit & !(fits(stride.batch, batches) & fits(stride.token, tokens) & fits(stride.head, heads)), path,
        [=] {
          return fmt::format(
              "strides [batch {}, token {}, head {}] are below a head of {} elements; {}", stride.batch, stride.token,
              stride.head, head_dim,
              written ? "rows of the output must not overlap" : "give 0 to broadcast, or at least a head");
        });
    const std::int64_t step = 16 * 8 / bits_of(dtype);  // a power of two
    bad(((stride.batch | stride.token | stride.head) & (step - 1)) != 0, path, [=] {
      return fmt::format("strides [batch {}, token {}, head {}] are not multiples of 16 bytes, {} elements",
                         stride.batch, stride.token, stride.head, step);
    });
    const auto along = [](std::int64_t value, std::int64_t extent) {
      return CheckedInt(value) * (std::max<std::int64_t>(extent, 1) - 1);
    };
    const CheckedInt each = CheckedInt(std::max({stride.batch, stride.token, stride.head})) * bits_of(dtype);
    const CheckedInt all =
        (along(stride.batch, batches) + along(stride.token, tokens) + along(stride.head, heads) + head_dim) *
        bits_of(dtype);
    const bool positive = (stride.batch | stride.token | stride.head) >= 0;
    const bool fits_memory = each.at_most(kMostBytes * 8) && all.in_range() &&
                             is_span(address, static_cast<std::uint64_t>(all.or_most()) / 8);
    bad(lengths_fit & positive & !fits_memory, path, [=] {
      return fmt::format(
          "strides [batch {}, token {}, head {}] bring {} x {} x {} heads of {} at {:#x} behind what 64-bit "
          "addresses reach, or to more than {} bytes",
          stride.batch, stride.token, stride.head, batches, tokens, heads, to_string(dtype), address, kMostBytes);
    });
  };
  const int q_batches = ragged_q ? 1 : tensors.batch, kv_batches = ragged_kv ? 1 : tensors.batch;
  const std::int64_t q_rows = ragged_q ? tensors.q_tokens : tensors.q_len;
  const std::int64_t kv_rows = paged ? spec.page_size : ragged_kv ? kv_tokens_of(tensors) : tensors.kv_len;
  // Any sequence may have a key, whatever kv_len says.
  const std::int64_t kv_extent = std::max<std::int64_t>(2, kv_rows);
  const std::int64_t kv_blocks = paged && tensors.num_pages > 0 ? tensors.num_pages : kv_batches;
  strided("/q_strides", tensors.q, strides.q, spec.q, spec.plain_depth(), q_batches, q_rows, kernel.q_heads, false);
  strided("/k_strides", tensors.k, strides.k, spec.kv, spec.plain_depth(), kv_blocks, kv_extent, kernel.kv_heads,
          false);
  strided("/v_strides", tensors.v, strides.v, spec.kv, spec.head_dim_v, kv_blocks, kv_extent, kernel.kv_heads, false);
  const bool rope = spec.rope_width > 0;
  if (rope) {
    operand("/q_rope", tensors.q_rope, true);
    operand("/k_rope", tensors.k_rope, any_keys);
    strided("/q_rope_strides", tensors.q_rope, strides.q_rope, spec.rope, spec.rope_width, q_batches, q_rows,
            kernel.q_heads, false);
    strided("/k_rope_strides", tensors.k_rope, strides.k_rope, spec.rope, spec.rope_width, kv_blocks, kv_extent,
            kernel.kv_heads, false);
  }
  strided("/o_strides", tensors.o, strides.o, spec.out, spec.head_dim_v, q_batches, q_rows, kernel.q_heads, true);

  // A tensor map's strides are above 0: it cannot broadcast.
  const auto mapped = [&](const char* path, const TensorStrides& stride, DType dtype, std::int64_t batches,
                          std::int64_t tokens, std::int64_t heads, bool packed) {
    const bool broadcasts = ((stride.batch == 0) & (batches > 1)) | ((stride.token == 0) & (tokens > 1)) |
                            ((stride.head == 0) & (heads > 1));
    const bool empty = (batches < 1) | (tokens < 1);
    bad(kernel.tensor_maps & !empty & broadcasts, path, [=] {
      return fmt::format(
          "strides [batch {}, token {}, head {}] broadcast, which {} does not: it reads through tensor "
          "maps; copy the operand, or prepare the problem with \"family\": \"portable\"",
          stride.batch, stride.token, stride.head, kernel_name(spec));
    });
    const auto too_far = [&](CheckedInt value, std::int64_t extent) {
      return extent > 1 && !(value * bits_of(dtype)).at_most(kTensorMapStrideBytes * 8 - 1);
    };
    bad(kernel.tensor_maps && (too_far(stride.batch, batches) || too_far(stride.token, tokens) ||
                               too_far(CheckedInt(stride.head) * (packed ? spec.group : 1), heads)),
        path, [=] {
          return fmt::format(
              "strides [batch {}, token {}, head {}] of {} reach 2^40 bytes, and tensor maps take less; copy the "
              "operand, or prepare the problem with \"family\": \"portable\"",
              stride.batch, stride.token, stride.head, to_string(dtype));
        });
  };
  mapped("/q_strides", strides.q, spec.q, q_batches, q_rows, kernel.q_heads, spec.pack_gqa);
  mapped("/k_strides", strides.k, spec.kv, paged ? 2 : kv_batches, kv_rows, kernel.kv_heads, false);
  mapped("/v_strides", strides.v, spec.kv, paged ? 2 : kv_batches, kv_rows, kernel.kv_heads, false);
  if (rope) {
    mapped("/q_rope_strides", strides.q_rope, spec.rope, q_batches, q_rows, kernel.q_heads, spec.pack_gqa);
    // One for all heads is no broadcast: the kernel counts its heads as one.
    mapped("/k_rope_strides", strides.k_rope, spec.rope, paged ? 2 : kv_batches, kv_rows, 1, false);
  }

  const auto extra = [&](const char* path, DevicePtr address, bool taken, bool needed, const char* taker) {
    bad(taken & needed & !address, path, [=] { return fmt::format("is null, and the problem has {}", taker); });
    bad(!taken & (address != 0), path, [=] {
      return fmt::format("is given, and the problem does not have {}; leave it null, or prepare a problem that has",
                         taker);
    });
    bad((address & 3) != 0, path, [=] { return fmt::format("address {:#x} is not a multiple of 4", address); });
  };
  // A tensor with an element for each score.
  const auto per_score = [&](const char* path, const char* strides_path, DevicePtr address, const TensorStrides& stride,
                             const ScoreTensor& shape, std::int64_t bytes, bool taken, const char* taker) {
    bad(taken & (tensors.kv_len > 0) & !address, path,
        [=] { return fmt::format("is null, and the problem has {}", taker); });
    bad(!taken & (address != 0), path, [=] {
      return fmt::format("is given, and the problem does not have {}; leave it null, or prepare a problem that has",
                         taker);
    });
    if (!taken) return;
    bad((address & static_cast<DevicePtr>(bytes - 1)) != 0, path,
        [=] { return fmt::format("address {:#x} is not a multiple of its elements' {} bytes", address, bytes); });
    const struct {
      const char* name;
      std::int64_t stride, extent;
      bool own;
    } dims[] = {{"batch", stride.batch, tensors.batch, shape.batch},
                {"head", stride.head, kernel.q_heads, shape.heads},
                {"token", stride.token, tensors.q_len, shape.q}};
    CheckedInt last = tensors.kv_len;
    for (const auto& dim : dims) {
      bad(!dim.own & (dim.stride != 0), strides_path, [=] {
        return fmt::format("{} stride {}: the problem's tensor has one element there for all; give 0", dim.name,
                           dim.stride);
      });
      bad(dim.own & (dim.stride != 0) & (dim.extent > 1) & (dim.stride < tensors.kv_len), strides_path, [=, &tensors] {
        return fmt::format("{} stride {} is below a row of {} keys; give 0 for one row for all, or at least {}",
                           dim.name, dim.stride, tensors.kv_len, tensors.kv_len);
      });
      bad((dim.stride < 0) & (dim.extent <= 1), strides_path,
          [=] { return fmt::format("{} stride {} is negative; 0 would do", dim.name, dim.stride); });
      last += CheckedInt(std::max<std::int64_t>(dim.stride, 0)) * std::max<std::int64_t>(dim.extent - 1, 0);
    }
    // Contiguous strides may have wrapped around.
    const CheckedInt rows = CheckedInt(shape.batch ? tensors.batch : 1) * (shape.heads ? kernel.q_heads : 1) *
                            (shape.q ? tensors.q_len : 1);
    const CheckedInt all = (last + rows * tensors.kv_len) * bytes;
    bad(lengths_fit &&
            !(all.at_most(kMostBytes) && is_span(address, static_cast<std::uint64_t>((last * bytes).or_most()))),
        strides_path, [=, &tensors] {
          return fmt::format(
              "strides [batch {}, token {}, head {}] bring rows of {} keys at {:#x} to more than {} bytes",
              stride.batch, stride.token, stride.head, tensors.kv_len, address, kMostBytes);
        });
  };
  per_score("/mask", "/mask_strides", tensors.mask, strides.mask, kernel.mask, 1, spec.mask_tensor, "mask \"tensor\"");
  per_score("/bias", "/bias_strides", tensors.bias, strides.bias, kernel.bias, bits_of(spec.bias) / 8,
            spec.score_mod == ScoreModKind::kTensor, "score_mod \"tensor\"");
  extra("/lse", tensors.lse, spec.lse, false, "\"lse\": true");
  extra("/q_offsets", tensors.q_offsets, ragged_q, true, "ragged queries");
  extra("/kv_offsets", tensors.kv_offsets, ragged_kv, true, "ragged keys");
  const bool prompt = spec.cache_length == CacheLength::kPrompt;
  extra("/kv_lengths", tensors.kv_lengths, !ragged_kv, prompt,
        prompt ? "cache_length \"prompt\"" : "padded or paged keys");
  extra("/page_table", tensors.page_table, paged, true, "paged keys");
  extra("/sinks", tensors.sinks, spec.sinks, true, "\"sinks\": true");
  extra("/alibi_slopes", tensors.alibi_slopes, spec.score_mod == ScoreModKind::kAlibi, false, "score_mod alibi");
  extra("/k_scale", tensors.k_scale, scaled, true, "\"scales\"");
  extra("/v_scale", tensors.v_scale, scaled, true, "\"scales\"");
  extra("/q_scale", tensors.q_scale, spec.scales == ScaleKind::kPerToken, true, "scales \"per_token\"");
  if (!rope) {
    extra("/q_rope", tensors.q_rope, false, false, "a rotary part");
    extra("/k_rope", tensors.k_rope, false, false, "a rotary part");
  }
  bad(paged && std::int64_t{tensors.page_table_stride} * spec.page_size < tensors.kv_len, "/page_table_stride", [&] {
    return fmt::format("{} pages of {} keys hold fewer than the {} keys of the longest sequence",
                       tensors.page_table_stride, spec.page_size, tensors.kv_len);
  });

  bad(tensors.num_pages < 0, "/num_pages",
      [&] { return fmt::format("{} is negative; give the pages that k and v have", tensors.num_pages); });
  bad(!paged & (tensors.num_pages > 0), "/num_pages",
      [] { return std::string("is given, and the problem does not have paged keys; leave it 0"); });

  const float scale = tensors.scale.value_or(1.f), softcap = tensors.softcap.value_or(1.f);
  bad(!std::isfinite(scale), "/scale", [&] { return fmt::format("{} is not finite", scale); });
  const bool softcapped = spec.score_mod == ScoreModKind::kSoftcap;
  bad(softcapped & !(std::isfinite(softcap) & (softcap > 0)), "/softcap",
      [&] { return fmt::format("{} is not a finite number above 0", softcap); });
  bad(tensors.softcap.has_value() & !softcapped, "/softcap",
      [] { return std::string("is given, and the problem's score_mod is not softcap; leave it absent"); });
  bad(tensors.window.has_value() & !kernel.takes_window, "/window",
      [] { return std::string("is given, and the problem's mask is not sliding_window; leave it absent"); });
  bad(tensors.window && (tensors.window->left < -1 || tensors.window->right < -1), "/window", [&] {
    return fmt::format("[{}, {}] has a number below -1; -1 is unbounded", tensors.window->left, tensors.window->right);
  });
}

}  // namespace kernelwright::detail
