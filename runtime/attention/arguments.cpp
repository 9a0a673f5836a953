#include "kernelwright/runtime/attention/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernelwright/generator/checked.h"
#include "kernelwright/runtime/launch/rules.h"

namespace kernelwright::detail {
namespace {

/// What one operand covers: so many sequences or pages, tokens of each, and heads.
struct Coverage {
  std::int64_t batches, tokens, heads;
};

class AttentionRules : public ArgumentRules {
 public:
  AttentionRules(const LoadedAttention& kernel, const AttentionTensors& tensors, const ResolvedStrides& strides)
      : kernel_(kernel), tensors_(tensors), strides_(strides) {
    lengths();
    rows();
    main_operands();
    mapped_operands();
    constexpr auto& kMask = optional_operand(&AttentionTensors::mask);
    constexpr auto& kBias = optional_operand(&AttentionTensors::bias);
    per_score(kMask, "/mask_strides", strides.mask, kernel.mask, 1);
    per_score(kBias, "/bias_strides", strides.bias, kernel.bias, bits_of(spec_.bias) / 8);
    extras();
    scales("/k_scale_strides", tensors.k_scale, tensors.k_scale_strides, strides.k_scale);
    scales("/v_scale_strides", tensors.v_scale, tensors.v_scale_strides, strides.v_scale);
    pages();
    numbers();
  }

 private:
  void lengths();
  void rows();
  void main_operands();
  void operand(const char* path, DevicePtr address, bool needed);
  void strided(const char* path, DevicePtr address, const TensorStrides& stride, DType dtype, std::int64_t head_dim,
               const Coverage& covers, bool written);
  void mapped_operands();
  void mapped(const char* path, const TensorStrides& stride, DType dtype, const Coverage& covers, bool packed);
  void per_score(const OptionalOperand& operand, const char* strides_path, const TensorStrides& stride,
                 const ScoreTensor& shape, std::int64_t bytes);
  void extras();
  void scales(const char* path, DevicePtr address, const TensorStrides& given, const TensorStrides& stride);
  void given_as_taken(const OptionalOperand& operand, bool needed);
  void pages();
  void numbers();

  std::int64_t all_queries() const { return std::int64_t{tensors_.batch} * tensors_.q_len; }
  int q_batches() const { return ragged_q_ ? 1 : tensors_.batch; }
  int kv_batches() const { return ragged_kv_ ? 1 : tensors_.batch; }
  std::int64_t q_rows() const { return ragged_q_ ? tensors_.q_tokens : tensors_.q_len; }
  std::int64_t kv_rows() const {
    return paged_ ? spec_.page_size : ragged_kv_ ? kv_tokens_of(tensors_) : tensors_.kv_len;
  }

  /// What V covers. In columns, a head has all keys of its page.
  Coverage values(Coverage keys) const {
    if (spec_.v_columns) keys.tokens = 1;
    return keys;
  }

  const LoadedAttention& kernel_;
  const AttentionTensors& tensors_;
  const ResolvedStrides& strides_;
  const AttentionSpec& spec_ = kernel_.spec;
  const bool ragged_q_ = spec_.q_layout == QLayout::kRagged;
  const bool ragged_kv_ = spec_.kv_layout == KvLayoutKind::kRagged;
  const bool paged_ = spec_.kv_layout == KvLayoutKind::kPaged;
  const bool has_rope_ = spec_.rope_width > 0;
  const bool lengths_fit_ = tensors_.batch >= 0 && tensors_.q_len >= 0 && tensors_.kv_len >= 0;
};

void AttentionRules::lengths() {
  not_negative("/batch", tensors_.batch);
  not_negative("/q_len", tensors_.q_len);
  not_negative("/kv_len", tensors_.kv_len);
  bad(tensors_.kv_len > kMostKeys, "/kv_len", [&] {
    return fmt::format("{} is more than 2^30 keys, to which kernels count in 32 bits; give the longest sequence's",
                       tensors_.kv_len);
  });
  bad(std::int64_t{tensors_.q_len} * spec_.group > kMostKeys, "/q_len", [&] {
    return fmt::format(
        "{} queries of {} heads are more than 2^30 rows, to which kernels count in 32 bits; give the "
        "longest sequence's",
        tensors_.q_len, spec_.group);
  });
  bad(kernel_.max_q_len > 0 && tensors_.q_len > kernel_.max_q_len, "/q_len",
      [&] { return fmt::format("{} is above the problem's max_q_len of {}", tensors_.q_len, kernel_.max_q_len); });
  sm_budget(tensors_.sm_budget);
  pdl(tensors_.pdl, kernel_.has_pdl, spec_.arch);
}

void AttentionRules::rows() {
  // Rows that become zeros may be padding, of which there is any number.
  const bool too_many = tensors_.q_tokens > all_queries() && !tensors_.zero_padding;
  bad(ragged_q_ && (tensors_.q_tokens < 0 || too_many), "/q_tokens", [&] {
    return fmt::format(
        "{} rows of ragged queries do not fit {} sequences of at most {}; give q_offsets[batch], and the "
        "longest sequence as q_len, or zero_padding if rows are padding",
        tensors_.q_tokens, tensors_.batch, tensors_.q_len);
  });
  not_negative("/kv_tokens", tensors_.kv_tokens);
  constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();  // offsets are of 32 bits
  bad(ragged_kv_ && tensors_.kv_tokens > kMostTokens, "/kv_tokens",
      [&] { return fmt::format("{} is more than 2^31 - 1, to which kv_offsets count", tensors_.kv_tokens); });
  bad(kernel_.tensor_maps && ragged_kv_ && tensors_.kv_len > 0 && kv_tokens_of(tensors_) == 0, "/kv_tokens", [] {
    return std::string(
        "is 0, and the kernel has to know how many rows k and v have, lest it reads behind them; give "
        "kv_offsets[batch]");
  });

  const std::int64_t rows = query_rows(spec_.q_layout, tensors_);
  const bool too_many_rows = !(CheckedInt(rows) * kernel_.q_heads).at_most(std::numeric_limits<std::int32_t>::max());
  bad(too_many_rows, "/batch", [&] {
    return fmt::format("{} rows of {} query heads are more than 2^31 - 1; launch fewer sequences at a time", rows,
                       kernel_.q_heads);
  });
  bad(!too_many_rows && !(CheckedInt(all_queries()) * kernel_.q_heads).at_most(kMostPlannedRows), "/q_len", [&] {
    return fmt::format(
        "{} sequences of up to {} queries, of {} heads, are more tiles than a launch has; give the "
        "longest sequence as q_len",
        tensors_.batch, tensors_.q_len, kernel_.q_heads);
  });
}

void AttentionRules::main_operands() {
  const bool any_keys = tensors_.kv_len > 0 || tensors_.kv_lengths != 0 || ragged_kv_;
  operand("/q", tensors_.q, true);
  operand("/k", tensors_.k, any_keys);
  operand("/v", tensors_.v, any_keys);
  operand("/o", tensors_.o, true);

  const Coverage queries{q_batches(), q_rows(), kernel_.q_heads};
  // Any sequence may have a key, whatever kv_len says.
  const Coverage keys{paged_ && tensors_.num_pages > 0 ? tensors_.num_pages : kv_batches(),
                      std::max<std::int64_t>(2, kv_rows()), kernel_.kv_heads};
  strided("/q_strides", tensors_.q, strides_.q, spec_.q, spec_.plain_depth(), queries, false);
  strided("/k_strides", tensors_.k, strides_.k, spec_.kv, spec_.key_width(), keys, false);
  strided("/v_strides", tensors_.v, strides_.v, spec_.kv, value_extent(spec_), values(keys), false);
  if (has_rope_) {
    operand("/q_rope", tensors_.q_rope, true);
    operand("/k_rope", tensors_.k_rope, any_keys);
    strided("/q_rope_strides", tensors_.q_rope, strides_.q_rope, spec_.rope, spec_.rope_width, queries, false);
    strided("/k_rope_strides", tensors_.k_rope, strides_.k_rope, spec_.rope, spec_.rope_width, keys, false);
  }
  strided("/o_strides", tensors_.o, strides_.o, spec_.out, spec_.head_dim_v, queries, true);
}

void AttentionRules::operand(const char* path, DevicePtr address, bool needed) {
  constexpr int kAlignment = 16;
  if (needed) not_null(path, address);
  aligned(path, address, kAlignment);
}

void AttentionRules::strided(const char* path, DevicePtr address, const TensorStrides& stride, DType dtype,
                             std::int64_t head_dim, const Coverage& covers, bool written) {
  const auto fits = [&](std::int64_t value, std::int64_t extent) {
    return value >= head_dim || (!written && value == 0) || (extent <= 1 && value >= 0);
  };
  const bool all_fit =
      fits(stride.batch, covers.batches) && fits(stride.token, covers.tokens) && fits(stride.head, covers.heads);
  bad(lengths_fit_ && !all_fit, path, [&] {
    return fmt::format("strides [batch {}, token {}, head {}] are below a head of {} elements; {}", stride.batch,
                       stride.token, stride.head, head_dim,
                       written ? "rows of the output must not overlap" : "give 0 to broadcast, or at least a head");
  });
  const std::int64_t step = 16 * 8 / bits_of(dtype);  // a power of two
  bad(((stride.batch | stride.token | stride.head) & (step - 1)) != 0, path, [&] {
    return fmt::format("strides [batch {}, token {}, head {}] are not multiples of 16 bytes, {} elements", stride.batch,
                       stride.token, stride.head, step);
  });
  const auto along = [](std::int64_t value, std::int64_t extent) {
    return CheckedInt(value) * (std::max<std::int64_t>(extent, 1) - 1);
  };
  const CheckedInt each = CheckedInt(std::max({stride.batch, stride.token, stride.head})) * bits_of(dtype);
  const CheckedInt all = (along(stride.batch, covers.batches) + along(stride.token, covers.tokens) +
                          along(stride.head, covers.heads) + head_dim) *
                         bits_of(dtype);
  const bool positive = (stride.batch | stride.token | stride.head) >= 0;
  const bool fits_memory =
      each.at_most(kMostBytes * 8) && all.in_range() && is_span(address, static_cast<std::uint64_t>(all.or_most()) / 8);
  bad(lengths_fit_ && positive && !fits_memory, path, [&] {
    return fmt::format(
        "strides [batch {}, token {}, head {}] bring {} x {} x {} heads of {} at {:#x} behind what 64-bit "
        "addresses reach, or to more than {} bytes",
        stride.batch, stride.token, stride.head, covers.batches, covers.tokens, covers.heads, to_string(dtype), address,
        kMostBytes);
  });
}

void AttentionRules::mapped_operands() {
  if (!kernel_.tensor_maps) return;
  const Coverage queries{q_batches(), q_rows(), kernel_.q_heads};
  const Coverage keys{paged_ ? 2 : kv_batches(), kv_rows(), kernel_.kv_heads};
  mapped("/q_strides", strides_.q, spec_.q, queries, spec_.pack_gqa);
  mapped("/k_strides", strides_.k, spec_.kv, keys, false);
  mapped("/v_strides", strides_.v, spec_.kv, values(keys), false);
  if (!has_rope_) return;
  mapped("/q_rope_strides", strides_.q_rope, spec_.rope, queries, spec_.pack_gqa);
  // One for all heads is no broadcast: the kernel counts its heads as one.
  mapped("/k_rope_strides", strides_.k_rope, spec_.rope, {keys.batches, keys.tokens, 1}, false);
}

/// A tensor map's strides are above 0, so that it cannot broadcast, and bounded.
void AttentionRules::mapped(const char* path, const TensorStrides& stride, DType dtype, const Coverage& covers,
                            bool packed) {
  const bool broadcasts = (stride.batch == 0 && covers.batches > 1) || (stride.token == 0 && covers.tokens > 1) ||
                          (stride.head == 0 && covers.heads > 1);
  const bool empty = covers.batches < 1 || covers.tokens < 1;
  bad(!empty && broadcasts, path, [&] {
    return fmt::format(
        "strides [batch {}, token {}, head {}] broadcast, which {} does not: it reads through tensor "
        "maps; copy the operand, or prepare the problem with \"family\": \"portable\"",
        stride.batch, stride.token, stride.head, kernel_name(spec_));
  });
  const auto too_far = [&](CheckedInt value, std::int64_t extent) {
    return extent > 1 && !(value * bits_of(dtype)).at_most(kTensorMapStrideBytes * 8 - 1);
  };
  bad(too_far(stride.batch, covers.batches) || too_far(stride.token, covers.tokens) ||
          too_far(CheckedInt(stride.head) * (packed ? spec_.group : 1), covers.heads),
      path, [&] {
        return fmt::format(
            "strides [batch {}, token {}, head {}] of {} reach 2^40 bytes, and tensor maps take less; copy the "
            "operand, or prepare the problem with \"family\": \"portable\"",
            stride.batch, stride.token, stride.head, to_string(dtype));
      });
}

/// Of a tensor with an element for each score.
void AttentionRules::per_score(const OptionalOperand& operand, const char* strides_path, const TensorStrides& stride,
                               const ScoreTensor& shape, std::int64_t bytes) {
  given_as_taken(operand, tensors_.kv_len > 0);
  if (!operand.use(spec_).taken) return;
  const DevicePtr address = tensors_.*operand.address;
  bad((address & static_cast<DevicePtr>(bytes - 1)) != 0, operand.path,
      [&] { return fmt::format("address {:#x} is not a multiple of its elements' {} bytes", address, bytes); });
  const struct {
    const char* name;
    std::int64_t stride, extent;
    bool own;
  } dims[] = {{"batch", stride.batch, tensors_.batch, shape.batch},
              {"head", stride.head, kernel_.q_heads, shape.heads},
              {"token", stride.token, tensors_.q_len, shape.q}};
  CheckedInt last = tensors_.kv_len;
  for (const auto& dim : dims) {
    bad(!dim.own && dim.stride != 0, strides_path, [&] {
      return fmt::format("{} stride {}: the problem's tensor has one element there for all; give 0", dim.name,
                         dim.stride);
    });
    bad(dim.own && dim.stride != 0 && dim.extent > 1 && dim.stride < tensors_.kv_len, strides_path, [&] {
      return fmt::format("{} stride {} is below a row of {} keys; give 0 for one row for all, or at least {}", dim.name,
                         dim.stride, tensors_.kv_len, tensors_.kv_len);
    });
    bad(dim.stride < 0 && dim.extent <= 1, strides_path,
        [&] { return fmt::format("{} stride {} is negative; 0 would do", dim.name, dim.stride); });
    last += CheckedInt(std::max<std::int64_t>(dim.stride, 0)) * std::max<std::int64_t>(dim.extent - 1, 0);
  }
  // Contiguous strides may have wrapped around.
  const CheckedInt rows = CheckedInt(shape.batch ? tensors_.batch : 1) * (shape.heads ? kernel_.q_heads : 1) *
                          (shape.q ? tensors_.q_len : 1);
  const CheckedInt all = (last + rows * tensors_.kv_len) * bytes;
  const bool fits_memory =
      all.at_most(kMostBytes) && is_span(address, static_cast<std::uint64_t>((last * bytes).or_most()));
  bad(lengths_fit_ && !fits_memory, strides_path, [&] {
    return fmt::format("strides [batch {}, token {}, head {}] bring rows of {} keys at {:#x} to more than {} bytes",
                       stride.batch, stride.token, stride.head, tensors_.kv_len, address, kMostBytes);
  });
}

void AttentionRules::extras() {
  for (const OptionalOperand& operand : kOptionalOperands) {
    if (operand.rules == OperandRules::kPerScore) continue;
    if (operand.rules == OperandRules::kRotary && has_rope_) continue;
    given_as_taken(operand, true);
    const DevicePtr address = tensors_.*operand.address;
    bad((address & 3) != 0, operand.path, [&] { return fmt::format("address {:#x} is not a multiple of 4", address); });
  }
}

/// Of scales that differ by key. They may broadcast.
void AttentionRules::scales(const char* path, DevicePtr address, const TensorStrides& given,
                            const TensorStrides& stride) {
  if (!scales_differ_by_key(spec_.scales)) {
    bad((given.batch | given.token | given.head) != 0, path, [] {
      return std::string(
          "is given, and the problem's scales are neither \"per_token\" nor \"per_page\"; leave it zero");
    });
    return;
  }
  const bool negative = (stride.batch | stride.token | stride.head) < 0;
  bad(negative, path, [&] {
    return fmt::format("strides [batch {}, token {}, head {}] have a negative one", stride.batch, stride.token,
                       stride.head);
  });
  bad(spec_.scales == ScaleKind::kPerPage && stride.token != 0, path,
      [&] { return fmt::format("token stride {}: a page has one scale for all of its tokens; give 0", stride.token); });
  if (negative || !lengths_fit_) return;
  const auto along = [](std::int64_t value, std::int64_t extent) {
    return CheckedInt(value) * (std::max<std::int64_t>(extent, 1) - 1);
  };
  const std::int64_t batches = paged_ && tensors_.num_pages > 0 ? tensors_.num_pages : kv_batches();
  const CheckedInt bytes =
      (along(stride.batch, batches) + along(stride.token, kv_rows()) + along(stride.head, kernel_.kv_heads) + 1) * 4;
  bad(!bytes.at_most(kMostBytes) || !is_span(address, static_cast<std::uint64_t>(bytes.or_most())), path, [&] {
    return fmt::format(
        "strides [batch {}, token {}, head {}] bring scales at {:#x} behind what 64-bit addresses reach, "
        "or to more than {} bytes",
        stride.batch, stride.token, stride.head, address, kMostBytes);
  });
}

/// An operand must be given if the problem needs it, and must be null if the problem does not take it. `needed` is
/// false for a launch that has nothing to read in the operand.
void AttentionRules::given_as_taken(const OptionalOperand& operand, bool needed) {
  const OperandUse use = operand.use(spec_);
  const bool given = tensors_.*operand.address != 0;
  bad(use.needed && needed && !given, operand.path,
      [&] { return fmt::format("is null, and the problem has {}", use.taker); });
  bad(!use.taken && given, operand.path, [&] {
    return fmt::format("is given, and the problem does not have {}; leave it null, or prepare a problem that has",
                       use.taker);
  });
}

void AttentionRules::pages() {
  bad(paged_ && std::int64_t{tensors_.page_table_stride} * spec_.page_size < tensors_.kv_len, "/page_table_stride",
      [&] {
        return fmt::format("{} pages of {} keys hold fewer than the {} keys of the longest sequence",
                           tensors_.page_table_stride, spec_.page_size, tensors_.kv_len);
      });
}

void AttentionRules::numbers() {
  for (const NumberRule& rule : kNumberRules)
    bad(rule.broken(kernel_, tensors_), rule.path, [&] { return rule.words(tensors_); });
  const float softcap = tensors_.softcap.value_or(1.f);
  const bool softcapped = spec_.score_mod == ScoreModKind::kSoftcap;
  bad(softcapped && !(std::isfinite(softcap) && softcap > 0), "/softcap",
      [&] { return fmt::format("{} is not a finite number above 0", softcap); });
  bad(tensors_.softcap.has_value() && !softcapped, "/softcap",
      [] { return std::string("is given, and the problem's score_mod is not softcap; leave it absent"); });
  bad(tensors_.window.has_value() && !kernel_.takes_window, "/window",
      [] { return std::string("is given, and the problem's mask is not sliding_window; leave it absent"); });
  bad(tensors_.window && (tensors_.window->left < -1 || tensors_.window->right < -1), "/window", [&] {
    return fmt::format("[{}, {}] has a number below -1; -1 is unbounded", tensors_.window->left,
                       tensors_.window->right);
  });
}

}  // namespace

AttentionTensors values_in_keys(const AttentionTensors& given) {
  if (given.v != 0 && given.v != given.k)
    throw ConfigError("/tensors/v", "is not k, and v_layout \"key_prefix\" takes values from k; leave it out");
  if (given.v_scale != 0 && given.v_scale != given.k_scale)
    throw ConfigError("/tensors/v_scale",
                      "is not k_scale, and v_layout \"key_prefix\" takes values from k, with its scale; leave it out");
  AttentionTensors tensors = given;
  tensors.v = given.k;
  tensors.v_strides = given.k_strides;
  tensors.v_scale = given.k_scale;
  return tensors;
}

std::vector<Violation> broken_extent(const AttentionExtent& extent) {
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

std::vector<Violation> broken_rules(const LoadedAttention& kernel, const AttentionTensors& tensors,
                                    const ResolvedStrides& strides) {
  return AttentionRules(kernel, tensors, strides).broken();
}

}  // namespace kernelwright::detail
