// The bound of the header, term by term, and the comparison of an output with it.
#include "kernelwright/verify/gemm/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/gemm/heads.h"
#include "kernelwright/verify/gemm/scaled.h"
#include "kernelwright/verify/gemm/statistics.h"

namespace kernelwright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kActivationError = 0x1p-18;  // relative to the argument
constexpr double kSteepest = 1.13;            // over all activations: gelu's slope at sqrt(2)
constexpr double kDeviations = 8;             // no random element has an error of so many standard deviations

/// Elements of k whose sum stays in the tensor core.
double stretch(const GemmProblem& problem) {
  const double k = problem.k;
  return problem.fast_accumulation && problem.scales != ScaleKind::kPerBlock ? k : std::min<double>(k, kScaleBlock);
}

ErrorBound sum_bound(const GemmCase& call, double sum, double magnitude, double square) {
  const double k = call.problem.k, spread = std::fabs(sum) + std::sqrt(square);
  double limit = gamma(k + 16, 2 * kUnit) * magnitude;
  double sigma = kUnit * (k / 8 + 8) * spread;
  if (is_fp8(call.problem.dtype.a) && k > 0) {
    const double length = stretch(call.problem);
    limit += core_truncation(length) * magnitude;
    sigma += kCoreStep * (std::sqrt(k / 3) + length / kCoreDepth / 4) * spread * std::sqrt(length / k);
  }
  return {call.random_values ? std::min(limit, kDeviations * sigma) : limit, sigma};
}

}  // namespace

namespace {

/// What rounding to d's dtype adds.
ErrorBound rounded(DType dtype, double value, double before, double variance) {
  const FloatFormat out = float_format(dtype);
  const double magnitude = std::fabs(value);
  double limit = before + out.unit_roundoff * (magnitude + before) + out.half_smallest;
  if (!is_fp8(dtype) && magnitude + before > out.largest) limit = kInfinity;
  const double third = 1.0 / 3;
  return {limit, std::sqrt(variance + out.unit_roundoff * out.unit_roundoff * third * magnitude * magnitude +
                           out.half_smallest * out.half_smallest)};
}

/// How far a factor of a row is off, relative to it: its sums are added up, and three operations follow.
double rstd_error(const GemmCase& call) {
  return call.epilogue.rstd ? kUnit * ((call.problem.k + kQuantizedGroup - 1) / kQuantizedGroup + 8) : 0;
}
/// The factor that sums have ahead of anything else.
double factor_of(const GemmCase& call, int row) {
  return (call.epilogue.alpha ? std::fabs(call.alpha) : 1) * call.rstd(row);
}

bool rounds(const Epilogue& epilogue) {
  return epilogue.rstd || epilogue.clamped ||
         (epilogue.activation != Activation::kNone && epilogue.activation != Activation::kRelu);
}

}  // namespace

ErrorBound value_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                       const EpilogueValue& value) {
  const bool activates = call.epilogue.activation != Activation::kNone;
  const int row = reference.rows[index / reference.columns.size()];
  const double slope = factor_of(call, row) * (activates ? kSteepest : 1);
  const ErrorBound sum = sum_bound(call, reference.sum[index], reference.magnitude[index], reference.square[index]);
  const double rounding =
      4 * kUnit *
          (std::fabs(value.scaled) + std::fabs(value.bias) + std::fabs(value.activated) + std::fabs(value.added)) +
      kSteepest * rstd_error(call) * std::fabs(value.scaled) +
      (rounds(call.epilogue) ? kActivationError * std::fabs(value.linear) : 0);
  return {slope * sum.limit + rounding, std::hypot(slope * sum.sigma, rounding)};
}

ErrorBound value_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                       const GatedValue& value) {
  const double alpha = factor_of(call, reference.rows[index / reference.columns.size()]);
  const bool activates = call.epilogue.clamped || call.epilogue.activation != Activation::kNone;
  ErrorBound of[2];  // of gate and up, before clamping
  double rounding[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const ErrorBound sum =
        sum_bound(call, reference.sum[index + i], reference.magnitude[index + i], reference.square[index + i]);
    rounding[i] = 4 * kUnit * (std::fabs(value.scaled[i]) + std::fabs(value.bias[i])) +
                  rstd_error(call) * std::fabs(value.scaled[i]);
    of[i] = {alpha * sum.limit + rounding[i], alpha * sum.sigma};
  }
  const double slope = activates ? kSteepest : 1, gate = std::fabs(value.activated), up = std::fabs(value.factor);
  // A number that is added to a clamped up rounds too.
  rounding[1] += call.epilogue.clamped ? 4 * kUnit * (up + 1) : 0;
  const double activation_error =
      4 * kUnit * gate + (rounds(call.epilogue) ? kActivationError * std::fabs(value.gate) : 0);
  const double of_gate = slope * of[0].limit + activation_error, of_up = of[1].limit + rounding[1];
  const double before = of_gate * up + gate * of_up + of_gate * of_up + 4 * kUnit * gate * up;
  const double steady = (slope * rounding[0] + activation_error) * up + gate * rounding[1] + 4 * kUnit * gate * up;
  const double gate_sigma = slope * of[0].sigma, variance = gate_sigma * gate_sigma * up * up +
                                                            gate * gate * of[1].sigma * of[1].sigma +
                                                            gate_sigma * gate_sigma * of[1].sigma * of[1].sigma;
  return {before, std::sqrt(variance + steady * steady)};
}

ErrorBound output_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                        const EpilogueValue& value) {
  return rounded_bound(call.problem.dtype.d, value.value(), value_bound(call, reference, index, value));
}

ErrorBound rounded_bound(DType dtype, double value, const ErrorBound& before) {
  return rounded(dtype, value, before.limit, before.sigma * before.sigma);
}

ErrorBound gated_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                       const GatedValue& value) {
  return rounded_bound(call.problem.dtype.d, value.value(), value_bound(call, reference, index, value));
}

namespace {

/// Sums over elements of one tile, or of all.
struct Squares {
  double error = 0, variance = 0, norm = 0;
  std::size_t count = 0;
  void add(const Squares& other) {
    error += other.error;
    variance += other.variance;
    norm += other.norm;
    count += other.count;
  }
  double diff() const { return norm > 0 ? error / norm : 0; }
  double rms_ratio() const { return variance > 0 ? std::sqrt(error / variance) : 0; }
  double rms_limit() const {
    return std::sqrt(1.5 + 7 / std::sqrt(static_cast<double>(std::max<std::size_t>(count, 1))));
  }
};
using Tiles = std::map<std::pair<int, int>, Squares>;

/// One piece's part of the report. It is added under a lock.
struct PieceResult {
  double worst = 0, max_error = 0;
  std::size_t not_finite = 0;
  std::string text;
  Tiles tiles;
  ScalesOfD scales;  // of a quantised d
};

bool is_exact(const GemmCase& call) { return call.exact && !rounds(call.epilogue); }

/// With exact inputs: the one value that d may have. A product of a gate and an up is rounded to f32 once.
double only_value(DType dtype, double want, bool gated) {
  if (!gated && static_cast<double>(static_cast<float>(want)) != want)
    throw Error(fmt::format("verify: exact inputs whose result, {:.17g}, f32 does not hold; fewer k would do", want));
  return round_to(dtype, static_cast<float>(want));
}

/// An element of a quantised d.
void compare_quantized(PieceResult& result, const GemmCase& call, const GemmOutput& output, int row, int column,
                       double code, double want, const ErrorBound& before) {
  const bool exact = is_exact(call);
  const float scale = scale_of_d(call, output, row, column);
  const ScaledElement element = call.epilogue.makes_blocks()
                                    ? compare_in_block(call, scale, code, want, before, exact)
                                    : compare_scaled(call.problem.dtype.d, scale, code, want, before, exact);
  result.scales.add(call, row, column, exact ? static_cast<float>(want) : want, exact ? 0 : before.limit);
  const double have = code * scale * call.tensor_scale;
  if (element.has_error) {
    result.max_error = std::max(result.max_error, element.error);
    result.tiles[{row / kTileSide, column / kTileSide}].add(
        {element.error * element.error, element.variance, have * have + want * want, 1});
  }
  if (std::isfinite(have) != std::isfinite(want)) ++result.not_finite;
  if (element.ratio > result.worst) {
    result.worst = element.ratio;
    result.text = fmt::format("d[{}, {}]: {:.6g} times the scale {:.6g} where {:.6g} +- {:.3g} is right", row, column,
                              code, scale, want, before.limit);
  }
}

PieceResult compare_piece(const GemmCase& call, const GemmOutput& output, const GemmReference& reference) {
  PieceResult result;
  const DType dtype = call.problem.dtype.d;
  const double largest = float_format(dtype).largest;
  const std::size_t size = bytes_of(dtype), width = static_cast<std::size_t>(call.d_columns());
  const bool exact = is_exact(call), gated = call.epilogue.gated;
  for (std::size_t i = 0; i < reference.rows.size(); ++i)
    for (std::size_t j = 0; j < reference.columns.size(); j += gated ? 2 : 1) {
      const int row = reference.rows[i], of_product = reference.columns[j];
      const int column = gated ? column_of_gate(of_product) : of_product;
      const std::size_t index = i * reference.columns.size() + j;
      double have;
      if (bits_of(dtype) == 4) {
        double pair[2];  // of a byte
        const std::size_t at = (static_cast<std::size_t>(row) * width + static_cast<std::size_t>(column)) / 2;
        decode_row(dtype, output.d.data() + at, 2, pair);
        have = pair[column % 2];
      } else {
        decode_row(dtype,
                   output.d.data() + (static_cast<std::size_t>(row) * width + static_cast<std::size_t>(column)) * size,
                   1, &have);
      }
      const EpilogueValue value = gated ? EpilogueValue{} : epilogue_value(call, row, column, reference.sum[index]);
      const GatedValue product =
          gated ? gated_value(call, row, of_product, reference.sum[index], reference.sum[index + 1]) : GatedValue{};
      if (call.epilogue.quantizes) {
        compare_quantized(
            result, call, output, row, column, have, gated ? product.value() : value.value(),
            gated ? value_bound(call, reference, index, product) : value_bound(call, reference, index, value));
        continue;
      }
      double want = gated ? product.value() : value.value(), ratio;
      ErrorBound bound{0, 0};
      if (!std::isfinite(want)) {  // inputs with NaN or Inf: the result must not hide them, nor have others
        ratio = std::isfinite(have) ? kInfinity : 0;
      } else {
        if (is_fp8(dtype)) want = std::clamp(want, -largest, largest);
        if (exact) want = only_value(dtype, want, gated);
        if (!exact)
          bound = gated ? gated_bound(call, reference, index, product) : output_bound(call, reference, index, value);
        const double error = std::fabs(have - want);
        const bool overflow = std::isinf(bound.limit) && !std::isnan(have);
        if (overflow || have == want)
          ratio = 0;
        else
          ratio = std::isfinite(have) ? error / bound.limit : kInfinity;  // infinite unless the result equals `want`
        if (std::isfinite(have) && !overflow) {
          result.max_error = std::max(result.max_error, error);
          result.tiles[{row / kTileSide, column / kTileSide}].add(
              {error * error, bound.sigma * bound.sigma, have * have + want * want, 1});
        }
      }
      if (!std::isfinite(have) && std::isinf(ratio)) ++result.not_finite;
      if (std::isfinite(have) && !std::isfinite(want)) ++result.not_finite;
      if (ratio > result.worst) {
        result.worst = ratio;
        result.text = exact ? fmt::format("d[{}, {}]: {:.6g} where {:.6g} alone is right", row, column, have, want)
                            : fmt::format("d[{}, {}]: {:.6g} where {:.6g} +- {:.3g} is right", row, column, have, want,
                                          bound.limit);
      }
    }
  return result;
}

/// What is wrong with the sums over tiles; "" if nothing is.
std::string judge_tiles(const Tiles& tiles, GemmVerdict& verdict) {
  Squares all;
  std::string worst;
  for (const auto& [tile, squares] : tiles) {
    all.add(squares);
    verdict.tile_diff = std::max(verdict.tile_diff, squares.diff());
    const double ratio = squares.rms_ratio() / squares.rms_limit();
    if (ratio <= verdict.tile_ratio) continue;
    verdict.tile_ratio = ratio;
    worst = fmt::format(
        "the tile of {} rows and columns at d[{}, {}] has errors whose root mean square is {:.2f} times "
        "what rounding explains; {:.2f} would do",
        kTileSide, tile.first * kTileSide, tile.second * kTileSide, squares.rms_ratio(), squares.rms_limit());
  }
  verdict.diff = all.diff();
  verdict.rms_ratio = all.rms_ratio();
  verdict.rms_limit = all.rms_limit();
  if (verdict.rms_ratio > verdict.rms_limit)
    return fmt::format(
        "the root mean square of all errors is {:.2f} times what rounding explains; {:.2f} would do: each element is "
        "within its worst case, but an error is spread over many of them",
        verdict.rms_ratio, verdict.rms_limit);
  return verdict.tile_ratio > 1 ? worst : "";
}

}  // namespace

namespace {

/// Each group as the dense call that it is.
GemmVerdict verify_groups(const GemmCase& call, const GemmOutput& output, const GemmVerdictOptions& options) {
  GemmVerdict all;
  all.passed = true, all.exact = is_exact(call);
  const std::size_t row_bytes = bytes_of(call.problem.dtype.d, static_cast<std::size_t>(call.d_columns()));
  GemmVerdictOptions of_group = options;
  of_group.budget_operations /= std::max(1, call.groups_with_rows());
  for (int g = 0; g < call.problem.groups.count; ++g) {
    const std::vector<std::int32_t> rows = call.written_rows(g);
    if (rows.empty()) continue;
    GemmOutput of_rows{{}, scales_of_group(call, output, g), {}, {}, {}};
    for (const std::int32_t row : rows) {
      const auto from = output.d.begin() + call.place_in_d(row) * static_cast<std::int64_t>(row_bytes);
      of_rows.d.insert(of_rows.d.end(), from, from + static_cast<std::ptrdiff_t>(row_bytes));
    }
    const GemmVerdict one = verify(call.dense_group(g), of_rows, of_group);
    all.sampled = all.sampled || one.sampled;
    all.rows += one.rows, all.elements += one.elements, all.not_finite += one.not_finite;
    all.columns = std::max(all.columns, one.columns);
    all.max_error = std::max(all.max_error, one.max_error);
    all.worst_ratio = std::max(all.worst_ratio, one.worst_ratio);
    all.tile_ratio = std::max(all.tile_ratio, one.tile_ratio);
    all.diff = std::max(all.diff, one.diff), all.tile_diff = std::max(all.tile_diff, one.tile_diff);
    if (one.rms_ratio / std::max(one.rms_limit, 1e-9) >= all.rms_ratio / std::max(all.rms_limit, 1e-9))
      all.rms_ratio = one.rms_ratio, all.rms_limit = one.rms_limit;
    if (all.passed && !one.passed)
      all.text = fmt::format("group {}, whose row 0 is d's row {}: {}", g, call.place_in_d(rows.front()), one.text);
    all.passed = all.passed && one.passed;
  }
  return all;
}

}  // namespace

GemmVerdict verify(const GemmCase& call, const GemmOutput& output, const GemmVerdictOptions& options) {
  if (call.problem.groups.any()) return verify_groups(call, output, options);
  if (call.kv) return verify_heads(call, output, options);
  GemmVerdict verdict;
  verdict.exact = is_exact(call);
  const GemmSample sample = choose_elements(call, options.budget_operations, options.seed);
  verdict.rows = sample.rows.size();
  verdict.columns = sample.columns.size() / (call.epilogue.gated ? 2 : 1);
  verdict.elements = verdict.rows * verdict.columns;
  verdict.sampled = verdict.elements < call.d_elems();

  std::mutex mutex;
  Tiles tiles;
  ScalesOfD scales;
  compute_reference(call, sample, [&](const GemmReference& reference) {
    PieceResult result = compare_piece(call, output, reference);
    const std::lock_guard lock(mutex);
    for (const auto& [tile, squares] : result.tiles) tiles[tile].add(squares);
    scales.add(result.scales);
    verdict.not_finite += result.not_finite;
    verdict.max_error = std::max(verdict.max_error, result.max_error);
    if (result.worst > verdict.worst_ratio) {
      verdict.worst_ratio = result.worst;
      verdict.text = std::move(result.text);
    }
  });
  if (call.epilogue.quantizes) {
    if (std::string wrong = scales.judge(call, output, verdict.exact); !wrong.empty())
      verdict.worst_ratio = kInfinity, verdict.text = std::move(wrong);
  }
  if (std::string wrong = judge_statistics(call, output); !wrong.empty())
    verdict.worst_ratio = kInfinity, verdict.text = std::move(wrong);
  const std::string spread = judge_tiles(tiles, verdict);
  // Without k, all rows are alike: a tile's errors are few.
  const bool statistics = call.random_values && verdict.elements > 0 && call.problem.k > 0;
  if (!statistics) verdict.rms_limit = 0;
  if (verdict.worst_ratio <= 1) verdict.text = statistics ? spread : "";
  verdict.passed = verdict.text.empty();
  return verdict;
}

}  // namespace kernelwright
