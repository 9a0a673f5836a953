/// Attention in fp64 from operands that are already rounded: the exact results to which kernels are compared, with the
/// sums that the error bound needs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernelwright/verify/attention/case.h"

namespace kernelwright {

struct RowId {
  int sequence, query, head;
  bool operator==(const RowId&) const = default;
};

/// One row of the output and the sums of bound.h. p_j: the probability of key j; top: the largest score.
struct ReferenceRow {
  RowId id{};
  int visible = 0;                  // keys
  std::vector<double> o;            // [head_dim.v]
  std::vector<double> abs_pv;       // sum of p_j |v_j|
  std::vector<double> score_shift;  // sum of c_j |v_j|: how much errors of the scores may move o
  std::vector<double> square_pv;    // sum of p_j^2 v_j^2
  double lse = 0;                   // natural log; -inf for a row that sees no key
  double shift = 0;                 // sum of c_j
  double kept = 1;                  // lower bound of the perturbed sum of probabilities
  double lse_shift = 0;             // the most by which errors of the scores change the LSE
  double square_p = 0;              // sum of p_j^2
  double sum_above_top = 1;         // sum of exp(s_j - top), the denominator that a kernel computes
  double score_noise = 0;           // root-mean-square error of a score, over the same keys
  double max_abs_v = 0;             // over visible keys and all elements
  double max_abs_score = 0;         // over the sink and the visible keys that are not negligible in f32
};

/// How much a kernel's scores may differ from exact ones; bound.h derives the numbers.
struct ScoreErrorModel {
  double relative = 0;       // relative to the sum of |scale q_i k_i|
  double tanh_error = 0;     // absolute, for tanh
  double exp_error = 0;      // relative, for a probability
  double bias_relative = 0;  // relative, for a bias
  double bias_step = 0;      // absolute, for a bias with a slope of 1
  double p_floor = 0;        // absolute rounding error of a probability relative to the largest one
  double q_floor = 0;        // absolute rounding error of an element of q relative to the row's largest one
};

/// Chooses the rows to compute: all of them if they cost at most `budget_operations`. Otherwise the first, the last and
/// seeded random rows of every head of every sequence. Half of the random ones are the first or last row of a block of
/// 16, 64 or 128.
std::vector<RowId> choose_rows(const AttentionCase& call, double budget_operations = 10e9, std::uint64_t seed = 0);

/// Computes `rows` on all cores and passes each to `visit`, from any thread and in no order. Reads visible keys only.
void compute_reference(const AttentionCase& call, std::vector<RowId> rows, const ScoreErrorModel& model,
                       const std::function<void(const ReferenceRow&)>& visit);

}  // namespace kernelwright
