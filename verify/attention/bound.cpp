// The bound of the header, term by term, and the comparison of an output with it.
#include "kernelwright/verify/attention/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

constexpr double kExpError = 0x1p-22;  // ex2.approx.ftz.f32, relative (PTX ISA)
constexpr double kLogError = 0x1p-22;  // lg2.approx.ftz.f32, absolute near 1 (PTX ISA)

// The dtype of P in the second product.
DType dtype_of_p(const AttentionProblem& problem) { return problem.dtype.q; }

// Half of the distance between the smallest P, relative to the largest P. P of e4m3 are multiplied before they are
// rounded: otherwise they would use no more than a third of that format's range. The largest P of a row is then 2^5 at
// least (templates/policy/integer_softmax.cuh), and 2^6 on Blackwell. Under bf16 queries, keys of 8 bits become f16,
// and so does P, 2^7 times as large.
double floor_of_p(const AttentionProblem& problem) {
  const DType dtype = dtype_of_p(problem);
  if (dtype == DType::kF32) return 0x1p-126;
  if (bytes_of(problem.dtype.kv) == 1 && dtype == DType::kBf16) return float_format(DType::kF16).half_smallest * 0x1p-7;
  return float_format(dtype).half_smallest * (dtype == DType::kE4m3 ? 0x1p-5 : 1);
}

// Keys whose products with V stay in the tensor cores, where those are of 8 bits: no kernel has wider tiles.
constexpr double kWidestNarrowTile = 192;

// Two terms of e4m3 that make up a bf16 query (policy/row_scales.cuh): their magnitudes, relative to the query's.
// Elements below 2^-9 of the row's largest one are off by the floor, relative to the largest one.
constexpr double kTermMagnitudes = 1 + 2 * 0x1p-4, kTermFloor = 0x1p-17;

bool is_narrow(const AttentionProblem& problem) { return problem.dtype.q == DType::kE4m3; }

double additions(const ReferenceRow& row) { return 1.125 * row.visible + 16; }

double merge_error(const ReferenceRow& row) { return std::isfinite(row.lse) ? 0x1p-20 * (1 + std::fabs(row.lse)) : 0; }

// One compared row's part of the report. It is added under a lock.
struct RowResult {
  double worst = 0, worst_lse = 0, max_error = 0, max_lse_error = 0, squares = 0;
  std::size_t not_finite = 0;
  int element = 0;
  double got = 0, limit = 0, lse_limit = 0;
};

}  // namespace

ScoreErrorModel score_error_model(const AttentionProblem& problem, bool of_terms) {
  ScoreErrorModel model;
  model.relative = gamma(problem.head_dim.qk + 8, 2 * kUnit);
  if (is_narrow(problem)) model.relative += core_truncation(problem.head_dim.qk);
  if (of_terms) {
    model.relative += core_truncation(problem.head_dim.qk) * kTermMagnitudes;
    model.q_floor = kTermFloor;
  }
  model.tanh_error =
      0x1p-20;  // ex2 and rcp: their own errors and that of an argument below 10, both damped by the slope
  model.exp_error = kExpError;
  // ALiBi: a slope by ex2, and each sum that contains the bias. The bias at a tile's first key, up to 256 keys away
  // from the key in question, is rounded too.
  model.bias_relative = kExpError + 6 * kUnit;
  model.bias_step = 256 * (kExpError + 2 * kUnit);
  model.p_floor = floor_of_p(problem);
  return model;
}

ErrorBound output_bound(const AttentionCase& call, const ReferenceRow& row, int element) {
  const auto at = static_cast<std::size_t>(element);
  const double o = std::fabs(row.o[at]), spread = row.abs_pv[at];
  const FloatFormat p = float_format(dtype_of_p(call.problem)), out = float_format(call.problem.dtype.out);
  const double n = additions(row);

  const double scores = (row.score_shift[at] + o * row.shift) / row.kept;
  double sums =
      (p.unit_roundoff + gamma(n, 2 * kUnit) + merge_error(row)) * spread + (gamma(n, kUnit) + merge_error(row)) * o;
  if (is_narrow(call.problem)) sums += core_truncation(kWidestNarrowTile) * spread + p.unit_roundoff * o;
  // The relative errors of `sums` apply to the sums that `scores` has changed.
  double before = scores + sums * (1 + scores / std::max(spread, std::numeric_limits<double>::min()));
  before = std::min(before, row.max_abs_v * (1 + 0x1p-6) + o);
  double limit = before + out.unit_roundoff * (o + before) + out.half_smallest;
  if (o + before > out.largest) limit = std::numeric_limits<double>::infinity();

  const double third = 1.0 / 3;
  const double floor = floor_of_p(call.problem) * row.max_abs_v / row.sum_above_top;
  const double biased = (row.visible / 8.0 + 8) * kUnit * o;  // truncated sums err to one side
  const double variance = p.unit_roundoff * p.unit_roundoff * third * row.square_pv[at] +
                          out.unit_roundoff * out.unit_roundoff * third * o * o +
                          out.half_smallest * out.half_smallest + floor * floor * row.visible * third +
                          biased * biased +
                          row.score_noise * row.score_noise * (row.square_pv[at] + o * o * row.square_p);
  return {limit, std::sqrt(variance)};
}

double lse_bound(const AttentionCase&, const ReferenceRow& row) {
  if (!std::isfinite(row.lse)) return 0;
  return row.lse_shift + gamma(additions(row), kUnit) + kLogError * (1 + std::log(std::max(1.0, row.sum_above_top))) +
         merge_error(row) + 4 * kUnit * (row.max_abs_score + std::fabs(row.lse));
}

namespace {

RowResult compare_row(const AttentionCase& call, const AttentionOutput& output, const ReferenceRow& row) {
  RowResult result;
  const int width = call.problem.head_dim.v;
  const DType dtype = call.problem.dtype.out;
  std::vector<double> got(static_cast<std::size_t>(width));
  decode_row(dtype, output.o.data() + call.o_index(row.id.sequence, row.id.query, row.id.head) * bytes_of(dtype),
             got.size(), got.data());
  for (int i = 0; i < width; ++i) {
    const double want = row.o[static_cast<std::size_t>(i)], have = got[static_cast<std::size_t>(i)];
    double ratio;
    ErrorBound bound{0, 0};
    if (!std::isfinite(want)) {  // inputs with NaN or Inf: the result must not hide them, nor have others
      ratio = std::isfinite(have) ? std::numeric_limits<double>::infinity() : 0;
    } else {
      bound = output_bound(call, row, i);
      const double error = std::fabs(have - want);
      const bool overflow = std::isinf(bound.limit) && !std::isnan(have);
      ratio = overflow ? 0 : std::isfinite(have) ? error / bound.limit : std::numeric_limits<double>::infinity();
      if (std::isfinite(have) && !overflow) {
        result.max_error = std::max(result.max_error, error);
        result.squares += error * error / (bound.sigma * bound.sigma);
      }
    }
    if (std::isinf(ratio)) ++result.not_finite;
    if (ratio > result.worst) {
      result.worst = ratio;
      result.element = i;
      result.got = have;
      result.limit = bound.limit;
    }
  }
  if (call.problem.lse) {
    const double have = output.lse[call.lse_index(row.id.sequence, row.id.query, row.id.head)];
    if (!std::isfinite(row.lse)) {
      const bool same = std::isnan(row.lse) ? !std::isfinite(have) : have == row.lse;
      if (!same) result.worst_lse = std::numeric_limits<double>::infinity(), ++result.not_finite;
    } else {
      const double error = std::fabs(have - row.lse);
      result.lse_limit = lse_bound(call, row);
      result.worst_lse = std::isfinite(have) ? error / result.lse_limit : std::numeric_limits<double>::infinity();
      if (std::isfinite(have))
        result.max_lse_error = error;
      else
        ++result.not_finite;
    }
  }
  return result;
}

}  // namespace

Verdict verify(const AttentionCase& call, const AttentionOutput& output, const VerdictOptions& options) {
  Verdict report;
  if (!call.unchecked.empty()) {
    report.unchecked = call.unchecked;
    report.text = "not checked: " + call.unchecked;
    return report;
  }
  std::vector<RowId> rows = choose_rows(call, options.budget_operations, options.seed);
  report.rows = rows.size();
  report.elements = rows.size() * static_cast<std::size_t>(call.problem.head_dim.v);
  report.sampled = rows.size() * static_cast<std::size_t>(call.problem.head_dim.v) < call.o_elems();

  std::mutex mutex;
  double squares = 0, independent = 1;
  std::string worst, worst_lse;
  const ScoreErrorModel model = score_error_model(call.problem, output.of_terms);
  compute_reference(call, std::move(rows), model, [&](const ReferenceRow& row) {
    const RowResult result = compare_row(call, output, row);
    const std::lock_guard lock(mutex);
    squares += result.squares;
    // As many independent roundings as a row has elements, or as keys that weigh in, whichever are fewer.
    independent += row.square_p > 0 ? std::min<double>(call.problem.head_dim.v, 1 / row.square_p) : 0;
    report.not_finite += result.not_finite;
    report.max_error = std::max(report.max_error, result.max_error);
    report.max_lse_error = std::max(report.max_lse_error, result.max_lse_error);
    if (result.worst > report.worst_ratio) {
      report.worst_ratio = result.worst;
      const double want = row.o[static_cast<std::size_t>(result.element)];
      worst = fmt::format("o[sequence {}, query {}, head {}, element {}]: {:.6g} where {:.6g} +- {:.3g} is right",
                          row.id.sequence, row.id.query, row.id.head, result.element, result.got, want, result.limit);
    }
    if (result.worst_lse > report.worst_lse_ratio) {
      report.worst_lse_ratio = result.worst_lse;
      worst_lse =
          fmt::format("lse[sequence {}, query {}, head {}]: {:.8g} where {:.8g} +- {:.3g} is right", row.id.sequence,
                      row.id.query, row.id.head, output.lse[call.lse_index(row.id.sequence, row.id.query, row.id.head)],
                      row.lse, result.lse_limit);
    }
  });
  if (call.random_values && report.rows) report.rms_limit = std::sqrt(1.5 + 7 / std::sqrt(independent));
  if (report.elements) report.rms_ratio = std::sqrt(squares / static_cast<double>(report.elements));

  if (report.worst_ratio > 1)
    report.text = worst;
  else if (report.worst_lse_ratio > 1)
    report.text = worst_lse;
  else if (report.rms_limit > 0 && report.rms_ratio > report.rms_limit)
    report.text = fmt::format(
        "the root mean square of all errors is {:.2f} times what rounding explains; {:.2f} would do: each element is "
        "within its worst case, but an error is spread over many of them",
        report.rms_ratio, report.rms_limit);
  report.passed = report.text.empty();
  return report;
}

}  // namespace kernelwright
