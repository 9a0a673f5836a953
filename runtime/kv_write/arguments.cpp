/// The rules of a launch's arguments, each with its words. Rules that hold make no text.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "kernelwright/generator/checked.h"
#include "kernelwright/runtime/kv_write/launch.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/launch/rules.h"

namespace kernelwright::detail {
namespace {

constexpr int kVectorBytes = 16;

/// Elements of one operand in memory.
struct Extents {
  std::int64_t batch, tokens, heads, head_dim;  // batch: pages or sequences; 1 without them
  DType dtype;
};

/// Bytes from the first element of the operand to behind its last.
std::uint64_t span_of(const Extents& of, const TensorStrides& strides) {
  if (of.batch == 0 || of.tokens == 0 || of.heads == 0) return 0;
  const CheckedInt last = CheckedInt(of.batch - 1) * strides.batch + CheckedInt(of.tokens - 1) * strides.token +
                          CheckedInt(of.heads - 1) * strides.head + of.head_dim;
  return static_cast<std::uint64_t>((last * (bits_of(of.dtype) / 8)).or_most());
}

class KvWriteRules : public ArgumentRules {
 public:
  /// `others`: what a GEMM that writes the cache reads and writes meanwhile.
  KvWriteRules(const KvWriteSpec& spec, const KvWriteTensors& t, std::span<const OtherOperand> others = {})
      : spec_(spec), t_(t), others_(others) {}

  /// Rules that must hold before any arithmetic on extents.
  bool extents_hold() {
    bad(t_.tokens < 0 || t_.tokens > most_tokens(spec_), "/tokens",
        [&] { return fmt::format("{} is outside [0, {}]", t_.tokens, most_tokens(spec_)); });
    const auto needed = [&](const char* path, std::int64_t value, bool needed, const char* what) {
      const bool wrong = needed ? value < 1 : value < 0;
      bad(wrong || value > std::numeric_limits<std::int32_t>::max(), path,
          [&] { return fmt::format("{} does not fit; it is the number of {}", value, what); });
      holds_ = holds_ && !wrong;
    };
    const bool by_position = spec_.index == CacheIndex::kPositions, is_paged = spec_.kv_layout == KvLayoutKind::kPaged;
    const bool is_padded = spec_.kv_layout == KvLayoutKind::kPadded;
    needed("/num_pages", t_.num_pages, is_paged, "pages of the cache");
    needed("/batch", t_.batch, by_position || is_padded, "sequences");
    needed("/kv_len", t_.kv_len, is_padded, "keys of a sequence");
    needed("/kv_tokens", t_.kv_tokens, spec_.kv_layout == KvLayoutKind::kRagged, "rows of the cache");
    needed("/page_table_stride", t_.page_table_stride, by_position && is_paged, "entries of a row of page_table");
    needed("/cos_sin_rows", t_.cos_sin_rows, spec_.rope != RopeStyle::kNone, "rows of cos_sin");
    bad(t_.position_bytes != 4 && t_.position_bytes != 8, "/position_bytes",
        [&] { return fmt::format("{} is neither 4 nor 8", t_.position_bytes); });
    return holds_ && t_.tokens >= 0;
  }

  /// What is read and rotated.
  void rows() {
    const Extents q{1, t_.tokens, spec_.q_heads, spec_.head_dim_qk, spec_.in};
    const Extents k{1, t_.tokens, spec_.kv_heads, spec_.head_dim_qk, spec_.in};
    const Extents v{1, t_.tokens, spec_.kv_heads, spec_.head_dim_v, spec_.in};
    if (spec_.q_heads > 0) {
      operand("/q", t_.q, t_.q_strides, q, false);
      operand("/q_out", t_.q_out, t_.q_out_strides, {1, t_.tokens, spec_.q_heads, spec_.head_dim_qk, spec_.q}, true);
    }
    operand("/k", t_.k, t_.k_strides, k, false);
    if (spec_.v_out) operand("/v", t_.v, t_.v_strides, v, false);
  }
  void caches() {
    operand("/k_cache", t_.k_cache, t_.k_cache_strides, cache(spec_.head_dim_qk), true);
    Extents values = cache(spec_.head_dim_v);
    if (spec_.v_columns) values.tokens = 1, values.head_dim *= spec_.page_size;  // a head has all keys of its page
    if (spec_.v_out) operand("/v_cache", t_.v_cache, t_.v_cache_strides, values, true);
    bad(spec_.v_out && t_.v_cache && t_.v_cache == t_.k_cache, "/v_cache",
        [] { return std::string("is k_cache, so that values would lie where keys do; give it other memory"); });
  }

  void small_tensors() {
    const bool rotates = spec_.rope != RopeStyle::kNone, by_position = spec_.index == CacheIndex::kPositions;
    const bool all_heads = spec_.norm == NormKind::kRmsAllHeads;
    const std::int64_t in_bytes = bits_of(spec_.in) / 8,
                       streams = spec_.section_first + spec_.section_second + spec_.section_third > 0 ? 3 : 1;
    const auto weight = [&](const char* path, DevicePtr address, int heads) {
      tensor(path, address, kVectorBytes, CheckedInt(all_heads ? heads : 1) * spec_.head_dim_qk * in_bytes);
    };
    if (spec_.norm_weight && spec_.q_heads > 0) weight("/q_weight", t_.q_weight, spec_.q_heads);
    if (spec_.norm_weight) weight("/k_weight", t_.k_weight, spec_.kv_heads);
    if (rotates) tensor("/cos_sin", t_.cos_sin, kVectorBytes, CheckedInt(t_.cos_sin_rows) * spec_.rope_width * 4);
    if (rotates || by_position)
      tensor("/positions", t_.positions, t_.position_bytes, CheckedInt(streams) * t_.tokens * t_.position_bytes);
    if (by_position)
      tensor("/batch_indices", t_.batch_indices, 4, CheckedInt(4) * t_.tokens);
    else
      tensor("/slot_mapping", t_.slot_mapping, 8, CheckedInt(8) * t_.tokens);
    if (by_position && spec_.kv_layout == KvLayoutKind::kPaged)
      tensor("/page_table", t_.page_table, 4, CheckedInt(4) * t_.batch * t_.page_table_stride);
    scale("/q_scale", t_.q_scale, spec_.q_scales, spec_.q_heads, {0, spec_.q_heads, 1}, t_.tokens);
    scale("/k_scale", t_.k_scale, spec_.k_scales, spec_.kv_heads, t_.k_scale_strides, std::nullopt);
    scale("/v_scale", t_.v_scale, spec_.v_scales, spec_.kv_heads, t_.v_scale_strides, std::nullopt);
    bad(t_.eps && (!(*t_.eps >= 0) || std::isinf(*t_.eps)), "/eps",
        [&] { return fmt::format("{} is no finite number from 0 on", *t_.eps); });
  }

  using ArgumentRules::pdl;

 private:
  Extents cache(int head_dim) const {
    switch (spec_.kv_layout) {
      case KvLayoutKind::kPaged: return {t_.num_pages, spec_.page_size, spec_.kv_heads, head_dim, spec_.kv};
      case KvLayoutKind::kPadded: return {t_.batch, t_.kv_len, spec_.kv_heads, head_dim, spec_.kv};
      case KvLayoutKind::kRagged: break;
    }
    return {1, t_.kv_tokens, spec_.kv_heads, head_dim, spec_.kv};
  }

  void tensor(const char* path, DevicePtr address, int alignment, CheckedInt bytes) {
    not_null(path, address);
    aligned(path, address, alignment);
    span_within_memory(path, address, static_cast<std::uint64_t>(bytes.or_most()));
  }
  /// `tokens`: of scales that lie as tokens do; else they lie as the cache.
  void scale(const std::string& path, DevicePtr address, ScaleKind kind, int heads, const TensorStrides& strides,
             std::optional<std::int64_t> tokens) {
    bad(kind == ScaleKind::kNone && address != 0, path, [] {
      return std::string(
          "is given, and the problem does not have such scales; leave it null, or prepare a problem that has");
    });
    const bool has_strides = !tokens && (strides.batch | strides.token | strides.head) != 0;
    bad(kind != ScaleKind::kPerToken && has_strides, path + "_strides",
        [] { return std::string("is given, and the problem's scales are not \"per_token\"; leave it zero"); });
    if (kind == ScaleKind::kNone) return;
    if (kind != ScaleKind::kPerToken)
      return tensor(path.c_str(), address, 4, CheckedInt(kind == ScaleKind::kPerHead ? heads : 1) * 4);
    Extents of = tokens ? Extents{1, *tokens, heads, 1, DType::kF32} : cache(1);
    if (!strides_of_scales_hold(path + "_strides", of, strides)) return;
    of.dtype = spec_.ue8m0 ? DType::kE4m3 : DType::kF32;  // for its size
    not_null(path.c_str(), address);
    aligned(path.c_str(), address, spec_.ue8m0 ? 1 : 4);
    span_within_memory(path.c_str(), address, span_of(of, strides));
    apart(path, address, span_of(of, strides));
  }
  /// Each scale is written, so it has a place of its own.
  bool strides_of_scales_hold(const std::string& path, const Extents& of, const TensorStrides& strides) {
    const auto words = [&](const char* fault) {
      return fmt::format("[{}, {}, {}] {}", strides.batch, strides.token, strides.head, fault);
    };
    const bool negative = strides.batch < 0 || strides.token < 0 || strides.head < 0;
    bad(negative, path, [&] { return words("has a negative stride"); });
    const bool shared = !negative && ((of.batch > 1 && strides.batch == 0) || (of.tokens > 1 && strides.token == 0) ||
                                      (of.heads > 1 && strides.head == 0));
    bad(shared, path,
        [&] { return words("gives several scales one place; each key and head has a scale of its own"); });
    return !negative && !shared;
  }
  /// Bytes that are written belong to no other operand.
  void apart(const std::string& path, DevicePtr address, std::uint64_t bytes) {
    const auto all = static_cast<std::int64_t>(bytes);
    const Matrix written{address, DType::kE4m3, 1, all, all};
    for (const OtherOperand& other : others_)
      bad(address && other.of.address && written.overlaps(other.of), path, [&] {
        return fmt::format("overlaps {}, which the product uses meanwhile; give one of them other memory", other.name);
      });
  }

  /// An operand with strides. What is written may not overlap itself: its strides are a head or more.
  void operand(const std::string& path, DevicePtr address, const TensorStrides& strides, const Extents& of,
               bool written) {
    not_null(path, address);
    // Vectors of 8 elements are 8 bytes in an 8-bit cache; kernels that read the cache want 16.
    aligned(path, address, kVectorBytes);
    bool holds = true;
    const auto stride = [&](const char* name, std::int64_t value, std::int64_t count) {
      const std::int64_t step = kVectorBytes * 8 / bits_of(of.dtype);
      const bool too_small = value < 0 || (count > 1 && value < (written ? of.head_dim : 0));
      bad(too_small, path + "_strides/" + name,
          [&] { return fmt::format("{} is less than {}, the elements of a head", value, of.head_dim); });
      bad(!too_small && count > 1 && value % step != 0, path + "_strides/" + name, [&] {
        return fmt::format("{} elements leave the 16-byte boundaries; it takes a multiple of {}", value, step);
      });
      holds = holds && !too_small;
    };
    stride("batch", strides.batch, of.batch);
    stride("token", strides.token, of.tokens);
    stride("head", strides.head, of.heads);
    if (!holds) return;
    span_within_memory(path, address, span_of(of, strides));
    if (written) apart(path, address, span_of(of, strides));
  }

  const KvWriteSpec& spec_;
  const KvWriteTensors& t_;
  const std::span<const OtherOperand> others_;
  bool holds_ = true;
};

}  // namespace

std::vector<Violation> broken_rules(const LoadedKvWrite& kernel, const KvWriteTensors& t) {
  KvWriteRules rules(kernel.spec, t);
  if (rules.extents_hold() && t.tokens > 0) {
    rules.rows();
    rules.caches();
    rules.small_tensors();
  }
  rules.pdl(t.pdl, kernel.has_pdl, kernel.spec.arch);
  return std::move(rules).broken();
}

std::vector<Violation> broken_cache_rules(const LoadedKvWrite& kernel, const KvWriteTensors& t,
                                          std::span<const OtherOperand> others) {
  KvWriteRules rules(kernel.spec, t, others);
  if (rules.extents_hold() && t.tokens > 0) {
    rules.caches();
    rules.small_tensors();
  }
  return std::move(rules).broken();
}

}  // namespace kernelwright::detail
