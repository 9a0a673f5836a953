/// How far a correct kernel may be from the exact result, derived from dtypes and lengths, and the verdict that
/// follows.
///
/// The model of a kernel, whatever its tiles: S = scale * k_scale * Q K^T, with exact products and sums in fp32. P =
/// exp2(S - m) in fp32, rounded to the dtype of Q for the second product. O = P V summed in fp32, divided by the fp32
/// sum of P, multiplied by v_scale, rounded to the output's dtype. u = 2^-24; tensor cores truncate, so an addition in
/// their sums counts 2u. gamma(n, u) = n u / (1 - n u) bounds a sum of n terms in any order (Higham, Accuracy and
/// Stability, 3.1).
///
/// 1. Scores. |ds_j| <= delta_j = gamma(head_dim + 8, 2u) * sum_i |scale q_i k_ij|. The 8 stands for the scalings, the
///    base change and the rounding of s - m. A softcap is 1-Lipschitz: it reduces the error by its slope, and
///    adds cap times the error of tanh. ALiBi adds the error of its bias, which grows with the distance. exp2 adds a
///    relative 2^-22 to each p_j (PTX ISA, ex2.approx).
/// 2. From scores to output. Let p be exact, and w_j the factor by which p_j is off, |ln w_j| <= e_j. Then exactly
///      O' - O = sum_j p_j (w_j - 1)(v_j - O) / sum_j p_j w_j
///    so |O' - O| <= (sum c_j |v_j| + |O| sum c_j) / sum p_j exp(-e_j) with c_j = p_j (exp(e_j) - 1). A factor common
///    to all keys cancels. So where delta of the top key is large, errors are counted relative to it: e_top = 0, e_j =
///    delta_j + delta_top. This keeps one-hot rows tight. No bound exceeds max |v| + |O|: outputs are convex
///    combinations.
/// 3. Rounding P: u_p sum p_j |v_j|. Below the normal range of f16 also half_smallest * |v_j| for each key, relative to
///    the largest probability. For e4m3 this is 2^-6 half_smallest, since a kernel multiplies P by 2^6 before rounding.
///    It may divide by the sum of rounded P: u_p |O| more. Under bf16 queries over keys of 8 bits P may be f16, and
///    this is 2^-7 half_smallest of f16.
/// 4. Summing P V: gamma(1.125 n + 16, 2u) sum p_j |v_j|; summing P: gamma(1.125 n + 16, u) |O|. One rescale in at
///    least 16 keys adds two roundings: the eighth. Merging split keys: weights exact to 2^-20 (1 + |lse|), a term of
///    both. Tensor cores truncate sums of e4m3 at 2^-13 of the largest addend (verify/gemm/bound.h, term 2). Those of Q
///    K^T have L = head_dim, and those of P V the keys of the widest tile, 192. A kernel may multiply fp8 keys by two
///    terms of e4m3 of each bf16 query (AttentionOutput::of_terms). Q K^T has such sums then. The magnitudes of both
///    terms are 1.125 times the query's at most. An element below 2^-9 of the row's largest one is off by 2^-17 of the
///    largest one.
/// 5. Output: u_out (|O| + what came before) + half_smallest.
///
/// The bound is a worst case and cannot see an error that is spread thin. For random data roundings are independent, so
/// the same terms also give a variance: u^2/3 for a rounding to 16 bits. The root mean square of error / sigma over all
/// checked elements is about 0.7 for a correct kernel. The limit is sqrt(1.5 + 7 / sqrt(n)), to leave room for chance
/// where few roundings are independent of each other. A row adds to n its elements or, if they are fewer, the keys that
/// weigh in, 1 / sum p_j^2. A missing key among 4096, a scale off by 1 % or 16-bit sums exceed the limit many times
/// over.
#pragma once

#include <string>

#include "kernelwright/verify/attention/reference.h"
#include "kernelwright/verify/error_bound.h"

namespace kernelwright {

/// `of_terms`: as in AttentionOutput.
ScoreErrorModel score_error_model(const AttentionProblem& problem, bool of_terms = false);

/// The bound of o[element].
ErrorBound output_bound(const AttentionCase& call, const ReferenceRow& row, int element);
double lse_bound(const AttentionCase& call, const ReferenceRow& row);

struct VerdictOptions {
  double budget_operations = 10e9;
  std::uint64_t seed = 0;
};

/// The result of a comparison. `text` has the worst place if it failed: "o[1, 37, 2, 100]: -0.5 is 3.1e-2 from -0.47, 8
/// times what rounding explains".
struct Verdict {
  bool passed = false;
  bool sampled = false;  // some rows were not compared
  std::size_t rows = 0, elements = 0;
  double worst_ratio = 0;  // error / limit for o
  double worst_lse_ratio = 0;
  double max_error = 0, max_lse_error = 0;
  double rms_ratio = 0, rms_limit = 0;  // see above; the limit is 0 if data is not random
  std::size_t not_finite = 0;           // elements that are NaN or infinite and should not be, or the other way round
  /// Names sources of the problem that have no reference. Then nothing was compared, and the call has not passed.
  std::string unchecked;
  std::string text;  // "" if passed
};
Verdict verify(const AttentionCase& call, const AttentionOutput& output, const VerdictOptions& options = {});

}  // namespace kernelwright
