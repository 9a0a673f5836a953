#include "kernelwright/verify/row_op/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

// A thread adds up to 32 squares one after another, then lanes add in a tree of 5 sums and warps in one of 16. All
// terms are positive. The root halves that error; rsqrt.approx adds two units, and three products follow.
constexpr double kNormUnits = 64;
constexpr double kLeastActivated = 0x1p-118;  // what ftz drops: less than x times the smallest normal f32

/// The activation of x, and its error in f32 (policy/epilogue.cuh). Exponents are rounded, so that their error grows
/// with them; ex2 and rcp add a few units.
struct Activated {
  double value, error;
};
Activated activated(Activation activation, double x) {
  const double magnitude = std::fabs(x);
  switch (activation) {
    case Activation::kNone: return {x, 0};
    case Activation::kRelu: return {x < 0 ? 0 : x, 0};
    case Activation::kSilu: {
      const double value = x / (1 + std::exp(-x));
      return {value, std::fabs(value) * (2 * magnitude + 10) * kUnit + kLeastActivated};
    }
    case Activation::kGelu: {
      const double tail = std::erfc(magnitude / std::numbers::sqrt2) / 2;
      return {x < 0 ? x * tail : x - x * tail,
              magnitude * tail * (2 * x * x + 16) * kUnit + (x > 0 ? x * kUnit : 0) + kLeastActivated};
    }
    case Activation::kGeluTanh: {
      const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      const double value = x / (1 + std::exp(-2 * u));
      return {value, std::fabs(value) * (8 * std::fabs(u) + 12) * kUnit + kLeastActivated};
    }
  }
  return {x, 0};
}

/// One element of activation(gate) * up.
void gate(const RowGate& how, double gate, double up, double& value, double& error) {
  if (!how.clamped) {
    const Activated of = activated(how.activation, gate);
    value = of.value * up;
    error = of.error * std::fabs(up) + kUnit * std::fabs(value);
    return;
  }
  const auto limit = static_cast<double>(static_cast<float>(how.limit)),
             alpha = static_cast<double>(static_cast<float>(how.alpha));
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  const double of = gate / (1 + std::exp(-alpha * gate));
  value = (up + 1) * of;
  error = std::fabs(value) * (3 * alpha * std::fabs(gate) + 14) * kUnit + kUnit * std::fabs(of) +
          kLeastActivated * (std::fabs(up) + 1);
}

/// A head's elements of both rows, weighed by their LSEs. A row that saw no key counts for nothing, whatever it holds.
void merge(const RowOpCase& call, std::int64_t index, int head, const std::vector<double>& x,
           const std::vector<double>& residual, RowOpRow& row) {
  const auto place = call.lse_at(index, static_cast<std::size_t>(head));
  const double lses[2] = {call.lse[place], call.residual_lse[place]};
  const double none = -std::numeric_limits<double>::infinity(), largest = std::max(lses[0], lses[1]);
  double weight[2], relative[2], sum = 0, sum_error = 0;
  for (int i = 0; i < 2; ++i) {
    const bool sees = lses[i] != none;
    weight[i] = sees ? std::exp(lses[i] - largest) : 0;
    // The difference is rounded, and its product with log2(e); ex2.approx is off by two units.
    relative[i] = sees ? (3 * std::fabs(lses[i] - largest) + 6) * kUnit : 0;
    sum += weight[i], sum_error += weight[i] * relative[i] + kLeastActivated;
  }
  const bool seen = largest != none;
  row.lse.push_back(seen ? largest + std::log(sum) : none);
  // lg2.approx is off by 2^-22 at most near 1, and the sum with the largest LSE is rounded.
  row.lse_error.push_back(seen ? sum_error / sum + 0x1p-21 + 4 * kUnit * std::fabs(row.lse.back()) : 0);
  const auto count = x.size() / static_cast<std::size_t>(call.problem.heads);
  for (std::size_t at = static_cast<std::size_t>(head) * count, end = at + count; seen && at < end; ++at) {
    const double of_x = lses[0] == none ? 0 : x[at] * weight[0] / sum;
    const double of_residual = lses[1] == none ? 0 : residual[at] * weight[1] / sum;
    row.value[at] = of_x + of_residual;
    row.error[at] = std::fabs(of_x) * relative[0] + std::fabs(of_residual) * relative[1] +
                    (std::fabs(of_x) + std::fabs(of_residual)) * (sum_error / sum + 6 * kUnit);
  }
}

void normalise(const RowOpCase& call, RowOpRow& row) {
  const RowNorm& norm = call.problem.norm;
  const std::size_t width = row.value.size();
  double sum = 0, error = 0;
  for (std::size_t i = 0; i < width; ++i) {
    sum += row.value[i] * row.value[i];
    error += 2 * std::fabs(row.value[i]) * row.error[i];
  }
  std::vector<double> weights(width, 1.0);
  if (norm.weight) decode_row(call.problem.dtype.in, call.weight.data(), width, weights.data());
  const double inverse = 1 / std::sqrt(sum / static_cast<double>(width) + static_cast<float>(norm.eps));
  const double relative = (sum > 0 ? error / sum : 0) + kNormUnits * kUnit;
  for (std::size_t i = 0; i < width; ++i) {
    const double factor = inverse * (norm.weight ? weights[i] + norm.weight_offset : 1);
    row.error[i] = std::fabs(factor) * (row.error[i] + relative * std::fabs(row.value[i]));
    row.value[i] *= factor;
  }
}

}  // namespace

RowOpRow reference_row(const RowOpCase& call, std::int64_t index) {
  const RowOpProblem& problem = call.problem;
  const DType in = problem.dtype.in;
  const auto width = static_cast<std::size_t>(problem.width);
  const auto read = [&](const std::vector<std::byte>& bytes, std::int64_t stride, std::size_t count) {
    std::vector<double> values(count);
    decode_row(in, bytes.data() + static_cast<std::size_t>(index * stride) * bytes_of(in), count, values.data());
    return values;
  };
  const std::vector<double> x = read(call.x, call.x_stride, static_cast<std::size_t>(call.read_width()));
  RowOpRow row{std::vector<double>(width), std::vector<double>(width), {}};
  if (problem.input == RowInput::kGateUp) {
    // Gates and ups take turns in runs of `pairs`; 0: one run.
    const std::size_t run = problem.gate.pairs == 0 ? width : static_cast<std::size_t>(problem.gate.pairs);
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = i / run * 2 * run + i % run;
      gate(problem.gate, x[at], x[at + run], row.value[i], row.error[i]);
    }
  } else if (call.adds()) {
    const std::vector<double> residual = read(call.residual, call.residual_stride, width);
    for (std::size_t i = 0; i < width; ++i) {
      row.sum.push_back(round_to(in, static_cast<float>(x[i]) + static_cast<float>(residual[i])));
      row.value[i] = row.sum[i];
    }
  } else if (call.merges()) {
    const std::vector<double> residual = read(call.residual, call.residual_stride, width);
    for (int head = 0; head < problem.heads; ++head) merge(call, index, head, x, residual, row);
  } else {
    row.value = x;
  }
  if (problem.norm.kind != NormKind::kNone) normalise(call, row);
  return row;
}

}  // namespace kernelwright
