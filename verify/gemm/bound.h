/// How far a correct GEMM may be from the exact result, derived from dtypes and k, and the verdict by it.
///
/// The kernel, whatever its tiles: products exact, sums in fp32 in any order, scales and epilogue in fp32, one rounding
/// to d's dtype. u = 2^-24; tensor cores truncate, so their sums count with 2u an addition. s: a sum with its scales;
/// |s|: of magnitudes; gamma(n, u) as error_bound.h has it.
///
/// 1. Sums. |ds| <= gamma(k + 16, 2u) |s|. The 16 stands for the scales and for the parts of a split k. Block-scaled
///    operands have no other term: a product of two elements and two scales has at most 12 bits, and is exact.
/// 2. Of e4m3 and e5m2 operands the tensor core cuts every addend, the running sum too, at 2^-13 of the largest of an
///    instruction, 32 of k. Sums leave it every 128 of k, or with fast_accumulation at the end: each of the addends
///    errs by at most 2^-13 of the |s| of its stretch, so that |ds| <= 2^-13 (L + L / 32) |s| with L = 128, or k.
/// 3. Epilogue. activation(alpha s + bias): the activations' slopes are at most 1.13, they are computed to 2^-18 of
///    their argument, and each operation rounds. + beta c likewise.
/// 4. Output: u_out (|d| + what came before) + half_smallest. 8-bit results saturate.
///
/// Worst cases grow with k where actual errors grow with its root, so data that is random is held to more: errors of
/// sums are at most 8 standard deviations, of which there are
///    u (k / 8 + 8) (|s| + S)              fp32 sums; S^2 the sum of squares of the products. Truncation has a sign
///    2^-13 (sqrt(k / 3) + L / 128) M      operands of term 2, M = (|s| + S) sqrt(L / k): sums of one stretch
/// and the root mean square of error / sigma over all checked elements and over each 64 x 64 tile of d is at most
/// sqrt(1.5 + 7 / sqrt(n)) for n elements. That is about the metric 1 - 2 sum(xy) / (sum(x^2) + sum(y^2)), which equals
/// sum((x - y)^2) / (sum(x^2) + sum(y^2)), with a limit that follows from the data instead of a habit. A missing k
/// among 4096, one tile computed from its neighbour's operands or a scale off by 1 % exceed it.
///
/// Exact inputs (GemmInputOptions::exact) leave one right value for each element, and nothing else passes, unless an
/// activation other than relu follows.
#pragma once

#include <string>

#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/gemm/reference.h"

namespace kernelwright {

/// Of the element of `reference` at `index`, which is d[row, column].
ErrorBound output_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                        const EpilogueValue& value);

struct GemmVerdictOptions {
  double budget_operations = 8e9;
  std::uint64_t seed = 0;
};

/// What a comparison found. `text` has the worst place where it failed: "d[37, 100]: -0.5 where 0.25 +- 0.004 is
/// right".
struct GemmVerdict {
  bool passed = false;
  bool sampled = false;  // some rows or columns were left out
  bool exact = false;    // every element had to be one value
  std::size_t rows = 0, columns = 0, elements = 0;
  double worst_ratio = 0;  // error / limit
  double max_error = 0;
  double rms_ratio = 0, rms_limit = 0;  // see above; the limit is 0 where data is not random
  double tile_ratio = 0;                // of the worst 64 x 64 tile: root mean square / its limit
  double diff = 0, tile_diff = 0;       // sum((x - y)^2) / (sum(x^2) + sum(y^2)), of all and of the worst tile
  std::size_t not_finite = 0;           // elements that are NaN or infinite and should not be, or the other way round
  std::string text;                     // "" if passed
};
GemmVerdict verify(const GemmCase& call, const GemmOutput& output, const GemmVerdictOptions& options = {});

}  // namespace kernelwright
