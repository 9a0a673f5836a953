#include "kernelwright/verify/kv_write/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const char* name_of(HeadsOf of) { return of == HeadsOf::kQ ? "q" : of == HeadsOf::kK ? "k" : "v"; }

/// The smallest normal f32: no scale that a kernel makes is less.
constexpr double kLeastScale = 0x1p-126;

class Comparison {
 public:
  Comparison(const KvWriteCase& call, const KvWriteOutput& output, const HeadSource& source, KvWriteVerdict& verdict)
      : call_(call), output_(output), source_(source), verdict_(verdict) {}

  void head(HeadsOf of, std::int64_t token, std::int64_t row, int head) {
    const KvWriteHead right = reference_head(call_, of, token, head, source_);
    const DType dtype = call_.dtype_out(of);
    const std::size_t size = bytes_of(dtype);
    std::vector<double> found(right.value.size());
    if (of == HeadsOf::kQ) {
      const auto first = static_cast<std::size_t>((row * call_.heads(of) + head) * call_.head_dim(of));
      decode_row(dtype, output_.q_out.data() + first * size, found.size(), found.data());
    } else {
      for (std::size_t i = 0; i < found.size(); ++i)
        decode_row(dtype, output_.cache.data() + call_.cache_byte(of, row, head, static_cast<int>(i)), 1, &found[i]);
    }
    const double scale = scale_of(of, token, row, head, right);
    for (std::size_t i = 0; i < found.size(); ++i)
      element([&] { return fmt::format("{}[{}, head {}, {}]", name_of(of), token, head, i); }, dtype, found[i],
              right.value[i] / scale, right.error[i] / scale, call_.scales(of) != ScaleKind::kNone);
  }

  /// Bytes that no token has. `written` marks those of tokens.
  void untouched(const char* of, const std::vector<std::byte>& bytes, const std::vector<bool>& written) {
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (written[i] || bytes[i] == DeviceMemory::kGuardByte) continue;
      if (verdict_.strayed++ == 0) fail(fmt::format("byte {} of {} is no token's, and was written", i, of));
    }
  }

 private:
  void fail(std::string text) {
    verdict_.passed = false;
    if (verdict_.text.empty()) verdict_.text = std::move(text);
  }

  /// `place()` makes the place's text.
  template <class Place>
  void compare(const Place& place, double found, double right, double limit) {
    ++verdict_.elements;
    if (!std::isfinite(found) && limit < kInfinity) {
      ++verdict_.not_finite;
      return fail(fmt::format("{}: {} where {} is right", place(), found, right));
    }
    const double error = std::fabs(found - right);
    if (error <= limit && limit == kInfinity) return;
    verdict_.max_error = std::max(verdict_.max_error, error);
    const double ratio = error == 0 ? 0 : limit > 0 ? error / limit : kInfinity;
    if (ratio > verdict_.worst_ratio) {
      verdict_.worst_ratio = ratio;
      if (ratio > 1) verdict_.text = fmt::format("{}: {} where {} +- {} is right", place(), found, right, limit);
    }
    if (ratio > 1) verdict_.passed = false;
  }

  template <class Place>
  void element(const Place& place, DType dtype, double found, double right, double error, bool scaled) {
    const FloatFormat format = float_format(dtype);
    if (scaled) error += 4 * kUnit * std::fabs(right);  // the scale's reciprocal, and the product with it
    if (is_fp8(dtype)) right = std::clamp(right, -format.largest, format.largest);
    double limit = error + format.unit_roundoff * (std::fabs(right) + error) + format.half_smallest;
    if (!is_fp8(dtype) && std::fabs(right) + error > format.largest) limit = kInfinity;
    compare(place, found, right, limit);
  }

  /// What elements are divided by: the scale that was given, or the one that the kernel wrote, which is compared.
  double scale_of(HeadsOf of, std::int64_t token, std::int64_t row, int head, const KvWriteHead& right) {
    const ScaleKind kind = call_.scales(of);
    const std::vector<float>& given = of == HeadsOf::kQ   ? call_.q_scale
                                      : of == HeadsOf::kK ? call_.k_scale
                                                          : call_.v_scale;
    if (kind == ScaleKind::kPerTensor) return given[0];
    if (kind == ScaleKind::kPerHead) return given[static_cast<std::size_t>(head)];
    if (kind != ScaleKind::kPerToken) return 1;
    const std::vector<std::byte>& made = of == HeadsOf::kQ   ? output_.q_scale
                                         : of == HeadsOf::kK ? output_.k_scale
                                                             : output_.v_scale;
    const float scale =
        call_.scale_at(made.data() + static_cast<std::size_t>(row * call_.heads(of) + head) * call_.scale_bytes());
    double largest = static_cast<float>(call_.problem.scales.least), error = 0;
    for (std::size_t i = 0; i < right.value.size(); ++i) {
      largest = std::max(largest, std::fabs(right.value[i]));
      error = std::max(error, right.error[i]);
    }
    const double of_format = float_format(call_.dtype_out(of)).largest;
    const double wanted = std::max(largest / of_format, kLeastScale), limit = error / of_format + 2 * kUnit * wanted;
    const auto place = [&] { return fmt::format("{} scale [{}, head {}]", name_of(of), token, head); };
    if (!call_.problem.scales.power_of_two) {
      compare(place, scale, wanted, limit);
    } else {
      int exponent = 0;
      if (std::frexp(scale, &exponent) != 0.5) fail(fmt::format("{}: {} is no power of two", place(), scale));
      if (scale < wanted - limit || scale >= 2 * (wanted + limit))
        fail(fmt::format("{}: {} where the power of two from {} on is right", place(), scale, wanted));
    }
    return scale > 0 ? scale : 1;
  }

  const KvWriteCase& call_;
  const KvWriteOutput& output_;
  const HeadSource& source_;
  KvWriteVerdict& verdict_;
};

/// `compared(token)`: whether to compare its heads.
template <class Compared>
KvWriteVerdict compare(const KvWriteCase& call, const KvWriteOutput& output, const HeadSource& source,
                       const Compared& compared) {
  KvWriteVerdict verdict;
  verdict.passed = true;
  Comparison comparison(call, output, source, verdict);
  std::vector<bool> written(call.cache_bytes), of_k_scale(output.k_scale.size()), of_v_scale(output.v_scale.size());
  const auto mark = [](std::vector<bool>& marks, std::size_t first, std::size_t bytes) {
    if (!marks.empty()) std::fill_n(marks.begin() + static_cast<std::ptrdiff_t>(first), bytes, true);
  };
  for (std::int64_t token = 0; token < call.tokens; ++token) {
    const std::int64_t row = call.slot_of(token);
    const bool is_compared = compared(token);
    verdict.tokens += is_compared;
    for (const HeadsOf of : kAllHeads) {
      if (of != HeadsOf::kQ && row < 0) continue;
      for (int head = 0; head < call.heads(of); ++head) {
        if (of != HeadsOf::kQ) {
          for (int i = 0; i < call.head_dim(of); ++i)
            mark(written, call.cache_byte(of, row, head, i), bytes_of(call.problem.dtype.kv));
          const auto scale = static_cast<std::size_t>(row * call.heads(of) + head) * call.scale_bytes();
          mark(of == HeadsOf::kK ? of_k_scale : of_v_scale, scale, call.scale_bytes());
        }
        if (is_compared) comparison.head(of, token, of == HeadsOf::kQ ? token : row, head);
      }
    }
  }
  comparison.untouched("the cache", output.cache, written);
  comparison.untouched("k_scale", output.k_scale, of_k_scale);
  comparison.untouched("v_scale", output.v_scale, of_v_scale);
  return verdict;
}

}  // namespace

KvWriteVerdict verify(const KvWriteCase& call, const KvWriteOutput& output, const KvWriteVerdictOptions& options) {
  double of_token = 0;
  for (const HeadsOf of : kAllHeads) {
    const double elements = static_cast<double>(call.heads(of)) * call.head_dim(of);
    of_token += 100 * elements * (call.problem.qk_norm.kind == NormKind::kRmsAllHeads ? call.heads(of) : 1);
  }
  const std::int64_t step = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(call.tokens) * of_token / options.budget_operations));
  KvWriteVerdict verdict = compare(call, output, {}, [&](std::int64_t token) {
    return (token + static_cast<std::int64_t>(options.seed)) % step == 0;
  });
  verdict.sampled = step > 1;
  return verdict;
}

KvWriteVerdict verify(const KvWriteCase& call, const KvWriteOutput& output, const MadeHeads& heads) {
  return compare(call, output, heads.head, heads.has);
}

}  // namespace kernelwright
