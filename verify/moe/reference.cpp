#include "kernelwright/verify/moe/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/gemm/reference.h"
#include "kernelwright/verify/route/reference.h"

namespace kernelwright {
namespace {

using Numbers = std::vector<MoeNumber>;

constexpr std::size_t kBlock = 128;
constexpr double kActivationError = 0x1p-18, kSteepest = 1.13, kDeviations = 8;  // as verify/gemm/bound.cpp has them

double squared(double value) { return value * value; }

MoeNumber bounded(double value, double limit, double variance) {
  const double sigma = std::sqrt(variance);
  return {value, std::min(limit, kDeviations * sigma), sigma};
}

/// Rule 3: what a number becomes on the grid of `dtype`, times `scale`.
MoeNumber rounded(DType dtype, const MoeNumber& of, double scale = 1) {
  const auto point_of = [&](double value) { return scale * round_to(dtype, static_cast<float>(value / scale)); };
  const double point = point_of(of.value), low = point_of(of.value - of.limit), high = point_of(of.value + of.limit);
  if (low == high) return {point, 0, 0};
  const FloatFormat format = float_format(dtype);
  const double power = std::exp2(std::floor(std::log2(std::fabs(of.value / scale))));
  const double step = 2 * scale * std::max(format.unit_roundoff * power, format.half_smallest);
  const double distance = step / 2 - std::fabs(of.value - point);
  const double probability = std::erfc(std::max(distance, 0.0) / (std::numbers::sqrt2 * of.sigma));
  return bounded(point, std::max(high - point, point - low), squared(step + of.sigma) * probability);
}

std::vector<double> decoded(DType dtype, const std::vector<std::byte>& bytes, std::int64_t first, std::size_t count) {
  std::vector<double> values(count);
  decode_row(dtype, bytes.data() + static_cast<std::size_t>(first) * bytes_of(dtype), count, values.data());
  return values;
}

/// Rule 4: a block of elements after quantisation to e4m3, times the block's scale.
void quantise_block(std::span<MoeNumber> block) {
  double largest = 0, limit = 0, sigma = 0;  // the last two relative to the largest
  for (const MoeNumber& of : block) largest = std::max(largest, std::fabs(of.value));
  for (const MoeNumber& of : block)
    if (of.limit > 0 && std::fabs(of.value) + of.limit >= largest)
      limit = std::max(limit, of.limit / largest), sigma = std::max(sigma, of.sigma / largest);
  const auto of_largest = static_cast<float>(largest) / static_cast<float>(float_format(DType::kE4m3).largest);
  const double scale = std::max(of_largest, 0x1p-126f);
  for (MoeNumber& of : block) {
    const double size = std::fabs(of.value), arithmetic = 4 * kUnit * size + scale * 0x1p-149;
    of = bounded(of.value, of.limit + arithmetic + limit * size,
                 squared(of.sigma) + squared(arithmetic) + squared(sigma * size));
    of = rounded(DType::kE4m3, of, scale);
    of = bounded(of.value, of.limit + limit * size, squared(of.sigma) + squared(sigma * size));
  }
}

void quantise(Numbers& row) {
  for (std::size_t at = 0; at < row.size(); at += kBlock)
    quantise_block(std::span(row).subspan(at, std::min(kBlock, row.size() - at)));
}

/// Rule 1: the sum of a row times a row of weights.
MoeNumber dot(const Numbers& a, const std::vector<double>& b, bool of_8_bits) {
  double sum = 0, limit = 0, variance = 0, magnitude = 0, square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double weight = std::fabs(b[i]), product = a[i].value * b[i];
    sum += product;
    limit += a[i].limit * weight;
    variance += squared(a[i].sigma * weight);
    magnitude += std::fabs(product) + a[i].limit * weight;
    square += squared(product);
  }
  const auto k = static_cast<double>(a.size());
  const double spread = std::fabs(sum) + std::sqrt(square), stretch = std::min(k, static_cast<double>(kBlock));
  limit += gamma(k + 16, 2 * kUnit) * magnitude;
  double sigma = kUnit * (k / 8 + 8) * spread;
  if (of_8_bits) {
    limit += core_truncation(stretch) * magnitude;
    sigma += kCoreStep * (std::sqrt(k / 3) + stretch / kCoreDepth / 4) * spread * std::sqrt(stretch / k);
  }
  return bounded(sum, limit, variance + sigma * sigma);
}

/// A row of the weights of an expert, times its scales.
class Weights {
 public:
  Weights(const MoeCase& call, std::int64_t expert) : call_(call), expert_(expert) {}

  /// `row`: as it lies in memory.
  std::vector<double> gate_up(std::int64_t row) const {
    const std::int64_t wide = call_.problem.intermediate, hidden = call_.problem.hidden;
    const std::int64_t pair = row / (2 * kGatePairs) * kGatePairs + row % kGatePairs;
    const bool is_up = row / kGatePairs % 2 == 1;
    const std::int64_t blocks = scale_rows_of_b(call_.problem.intermediate * 2, true);
    return scaled(call_.gate_up, expert_ * 2 * wide + row, hidden, call_.gate_up_scale,
                  expert_ * blocks + (is_up ? blocks / 2 : 0) + pair / 128);
  }
  std::vector<double> down(std::int64_t row) const {
    const std::int64_t wide = call_.problem.intermediate, hidden = call_.problem.hidden;
    return scaled(call_.down, expert_ * hidden + row, wide, call_.down_scale, expert_ * (hidden / 128) + row / 128);
  }
  double gate_up_bias(std::int64_t row) const {
    return bias(call_.gate_up_bias, expert_ * 2 * call_.problem.intermediate + row);
  }
  double down_bias(std::int64_t row) const { return bias(call_.down_bias, expert_ * call_.problem.hidden + row); }

 private:
  std::vector<double> scaled(const std::vector<std::byte>& elements, std::int64_t row, std::int64_t k,
                             const std::vector<float>& scales, std::int64_t scale_row) const {
    std::vector<double> values = decoded(call_.weight_dtype(), elements, row * k, static_cast<std::size_t>(k));
    if (!scales.empty())
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] *= scales[static_cast<std::size_t>(scale_row * (k / 128)) + i / kBlock];
    return values;
  }
  double bias(const std::vector<std::byte>& all, std::int64_t at) const {
    return all.empty() ? 0 : decoded(call_.problem.dtype, all, at, 1)[0];
  }

  const MoeCase& call_;
  const std::int64_t expert_;
};

/// Rule 2: activation(gate) * up of two sums, ahead of rounding.
MoeNumber gated(const Epilogue& gates, const MoeNumber& gate, const MoeNumber& up) {
  double g = gate.value, u = up.value;
  double activated = activate(gates.activation, g), rounding = 4 * kUnit * std::fabs(u);
  if (gates.clamped) {
    g = std::min<double>(g, gates.limit);
    activated = g / (1 + std::exp(-static_cast<double>(gates.steepness) * g));
    u = std::clamp<double>(u, -gates.limit, gates.limit) + 1;
    rounding += 4 * kUnit * (std::fabs(u) + 1);
  }
  const double steady = kActivationError * std::fabs(g) + 4 * kUnit * (std::fabs(activated) + std::fabs(gate.value));
  const double of_gate = kSteepest * gate.limit + steady, of_up = up.limit + rounding;
  const double product = activated * u, size_of_gate = std::fabs(activated), size_of_up = std::fabs(u);
  const double all = steady * size_of_up + size_of_gate * rounding + 4 * kUnit * std::fabs(product);
  return bounded(product,
                 of_gate * size_of_up + size_of_gate * of_up + of_gate * of_up + 4 * kUnit * std::fabs(product),
                 squared(kSteepest * gate.sigma) * (squared(u) + squared(up.sigma)) + squared(activated * up.sigma) +
                     squared(all));
}

/// What an expert makes of a token.
Numbers expert_row(const MoeCase& call, const Numbers& x, std::int64_t expert) {
  const MoeProblem& problem = call.problem;
  const Weights weights(call, expert);
  const Epilogue gates = parse_epilogue(problem.gates);
  const auto sum = [&](const Numbers& row, const std::vector<double>& of, double bias) {
    MoeNumber found = dot(row, of, call.is_quantised());
    const double rounding = bias == 0 ? 0 : 4 * kUnit * (std::fabs(found.value) + std::fabs(bias));
    return bounded(found.value + bias, found.limit + rounding, squared(found.sigma) + squared(rounding));
  };
  Numbers inner;
  for (int column = 0; column < problem.intermediate; ++column) {
    const std::int64_t gate = gate_column(column), up = gate + kGatePairs;
    inner.push_back(rounded(problem.dtype, gated(gates, sum(x, weights.gate_up(gate), weights.gate_up_bias(gate)),
                                                 sum(x, weights.gate_up(up), weights.gate_up_bias(up)))));
  }
  if (call.is_quantised()) quantise(inner);
  Numbers made;
  for (int column = 0; column < problem.hidden; ++column)
    made.push_back(rounded(problem.dtype, sum(inner, weights.down(column), weights.down_bias(column))));
  return made;
}

/// The experts of a token, whose numbers are those of the weights, and -1 for slots that have no row here.
struct Chosen {
  std::vector<std::int64_t> experts;
  RouteWeights weights;
};
Chosen choice_of(const MoeCase& call, std::int64_t token) {
  const RouteCase& route = call.route;
  const auto top_k = static_cast<std::size_t>(route.problem.top_k), first = static_cast<std::size_t>(token) * top_k;
  std::vector<int> chosen;
  Chosen choice;
  if (route.problem.is_given()) {
    for (std::size_t slot = 0; slot < top_k; ++slot) {
      chosen.push_back(route.ids[first + slot]);
      choice.weights.value.push_back(route.weights[first + slot]);
      choice.weights.error.push_back(0);
    }
  } else {
    const RouteRow row = reference_row(route, token);
    chosen = chosen_experts(route, row);
    choice.weights = reference_weights(route, row, chosen, static_cast<float>(route.problem.factor));
  }
  for (std::size_t slot = 0; slot < top_k; ++slot) {
    std::int64_t expert = chosen[slot];
    if (std::find(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(slot), expert) !=
        chosen.begin() + static_cast<std::ptrdiff_t>(slot))
      expert = -1;  // the second pair of a token and an expert
    if (expert < 0 || expert >= route.problem.experts) expert = -1;
    choice.experts.push_back(expert >= 0 && route.is_mapped() ? route.local_ids[static_cast<std::size_t>(expert)]
                                                              : expert);
  }
  return choice;
}

}  // namespace

std::vector<MoeNumber> reference_row(const MoeCase& call, std::int64_t token) {
  const MoeProblem& problem = call.problem;
  const auto hidden = static_cast<std::size_t>(problem.hidden);
  Numbers x;
  for (const double value : decoded(problem.dtype, call.x, token * call.x_stride, hidden)) x.push_back({value, 0, 0});
  if (call.is_quantised()) quantise(x);
  Numbers out(hidden);
  std::vector<double> magnitude(hidden), variance(hidden);
  const Chosen choice = choice_of(call, token);
  for (std::size_t slot = 0; slot < choice.experts.size(); ++slot) {
    const double weight = choice.weights.value[slot], error = choice.weights.error[slot];
    if (choice.experts[slot] < 0 || (weight == 0 && error == 0)) continue;
    const Numbers row = expert_row(call, x, choice.experts[slot]);
    for (std::size_t i = 0; i < hidden; ++i) {
      const double size = std::fabs(row[i].value) + row[i].limit;
      out[i].value += weight * row[i].value;
      out[i].limit += std::fabs(weight) * row[i].limit + error * size;
      variance[i] += squared(weight * row[i].sigma) + squared(error * size);
      magnitude[i] += (std::fabs(weight) + error) * size;
    }
  }
  if (problem.residual) {
    const std::vector<double> residual = decoded(problem.dtype, call.residual, token * call.residual_stride, hidden);
    for (std::size_t i = 0; i < hidden; ++i) out[i].value += residual[i], magnitude[i] += std::fabs(residual[i]);
  }
  const double terms = problem.route.top_k + 1;
  for (std::size_t i = 0; i < hidden; ++i) {
    const double rounding = gamma(2 * terms, kUnit) * magnitude[i] + terms * 0x1p-149;
    out[i] = bounded(out[i].value, out[i].limit + rounding, variance[i] + rounding * rounding);
  }
  return out;
}

namespace {

class MoeComparison : public RowsComparison {
 public:
  using RowsComparison::element;
  using RowsComparison::RowsComparison;
  /// The root mean square of error / deviation of a row.
  void spread(std::int64_t token, double squares, std::size_t count) {
    const double found = std::sqrt(squares / static_cast<double>(count));
    const double most = std::sqrt(1.5 + 7 / std::sqrt(static_cast<double>(count)));
    if (!(found <= most))
      fail(
          fmt::format("out[{}]: errors are {:.3g} times their deviations, and {:.3g} is the most", token, found, most));
  }
};

}  // namespace

RowsVerdict verify(const MoeCase& call, const MoeOutput& output, const RowsVerdictOptions& options) {
  RowsVerdict verdict;
  MoeComparison comparison(verdict, call.problem.dtype);
  const auto hidden = static_cast<std::size_t>(call.problem.hidden);
  const double operations =
      6.0 * static_cast<double>(call.route.pairs()) * call.problem.hidden * call.problem.intermediate;
  compare_some_rows(call.tokens(), operations, options, verdict, [&](std::int64_t token) {
    const std::vector<double> found = decoded(call.problem.dtype, output.out, token * call.out_stride, hidden);
    const std::vector<MoeNumber> right = reference_row(call, token);
    double squares = 0;
    for (std::size_t i = 0; i < hidden; ++i) {
      comparison.element([&] { return fmt::format("out[{}, {}]", token, i); }, found[i], right[i].value,
                         right[i].limit);
      const double rounding = float_format(call.problem.dtype).unit_roundoff * right[i].value;
      squares += squared(found[i] - right[i].value) / (squared(right[i].sigma) + squared(rounding) / 3 + 1e-300);
    }
    comparison.spread(token, squares, hidden);
  });
  const std::size_t element = bytes_of(call.problem.dtype);
  comparison.untouched("out", output.out, hidden * element, static_cast<std::size_t>(call.out_stride) * element);
  return verdict;
}

}  // namespace kernelwright
