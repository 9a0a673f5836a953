/// How far a correct GEMM may be from the exact result, derived from dtypes and k, and the verdict that follows.
///
/// The model of a kernel, whatever its tiles: exact products, sums in fp32 in any order, scales and epilogue in fp32,
/// one rounding to d's dtype. u = 2^-24; tensor cores truncate, so an addition in their sums counts 2u. s is a sum with
/// its scales, |s| the sum of magnitudes; error_bound.h defines gamma(n, u).
///
/// 1. Sums. |ds| <= gamma(k + 16, 2u) |s|. The 16 stands for the scales and for the parts of a split k. Block-scaled
///    operands have no other term: a product of two elements and two scales has at most 12 bits, and is exact.
/// 2. For e4m3 and e5m2 operands, the tensor core truncates every addend and the running sum at 2^-13 of the largest
///    addend of an instruction, 32 of k. Sums leave the tensor core every 128 of k, or with fast_accumulation at the
///    end. Each addend errs by at most 2^-13 of the |s| of its stretch, so |ds| <= 2^-13 (L + L / 32) |s| with
///    L = 128, or k.
/// 3. Epilogue. activation(alpha s + bias): the activations' slopes are at most 1.13, they are computed to 2^-18 of
///    their argument, and each operation rounds. + beta c likewise.
///    A gated product activation(g) * u errs by activation's error times |u|, u's error times |activation(g)|, and
///    both errors' product. Clamping moves no two numbers apart.
/// 4. Output: u_out (|d| + what came before) + half_smallest. 8-bit results saturate.
///
/// A quantised d has scales. A scale has to be what one of the largest magnitudes within the error of terms 1 to 3
/// gives. An element has to be what one of the values within that error rounds to, in units of the scale that was
/// written.
///
/// Worst cases grow with k, actual errors only with its root. So random data has a tighter limit: errors of sums are at
/// most 8 standard deviations, where one standard deviation is
///    u (k / 8 + 8) (|s| + S)              fp32 sums; S^2 the sum of squares of the products. Truncation has a sign
///    2^-13 (sqrt(k / 3) + L / 128) M      operands of term 2, M = (|s| + S) sqrt(L / k): sums of one stretch
/// The root mean square of error / sigma has a limit too, over all checked elements and over each 64 x 64 tile of d:
/// sqrt(1.5 + 7 / sqrt(n)) for n elements. This is about the metric 1 - 2 sum(xy) / (sum(x^2) + sum(y^2)), which equals
/// sum((x - y)^2) / (sum(x^2) + sum(y^2)), but its limit follows from the data. A missing k among 4096, one tile
/// computed from its neighbour's operands, or a scale off by 1 % exceed the limit.
///
/// Exact inputs (GemmInputOptions::exact) leave one right value for each element, and only this value passes, unless an
/// activation other than relu follows.
#pragma once

#include <string>

#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/gemm/reference.h"

namespace kernelwright {

/// The error of the value of the element of `reference` at `index`, in f32, and of one whose gate it is.
ErrorBound value_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                       const EpilogueValue& value);
ErrorBound value_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                       const GatedValue& value);

/// The bound of the element of `reference` at `index`, which is d[row, column].
ErrorBound output_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                        const EpilogueValue& value);

/// The same of a column of d whose gate is the element at `index`, and whose up is the next one.
ErrorBound gated_bound(const GemmCase& call, const GemmReference& reference, std::size_t index,
                       const GatedValue& value);

/// What rounding to `dtype` makes of a value that may be off by `before`.
ErrorBound rounded_bound(DType dtype, double value, const ErrorBound& before);

struct GemmVerdictOptions {
  double budget_operations = 8e9;
  std::uint64_t seed = 0;
};

/// The result of a comparison. `text` has the worst place if it failed: "d[37, 100]: -0.5 where 0.25 +- 0.004 is
/// right".
struct GemmVerdict {
  bool passed = false;
  bool sampled = false;  // some rows or columns were not compared
  bool exact = false;    // every element had exactly one right value
  std::size_t rows = 0, columns = 0, elements = 0;
  double worst_ratio = 0;  // error / limit
  double max_error = 0;
  double rms_ratio = 0, rms_limit = 0;  // see above; the limit is 0 if data is not random
  double tile_ratio = 0;                // of the worst 64 x 64 tile: root mean square / its limit
  double diff = 0, tile_diff = 0;       // sum((x - y)^2) / (sum(x^2) + sum(y^2)), of all and of the worst tile
  std::size_t not_finite = 0;           // elements that are NaN or infinite and should not be, or the other way round
  std::string text;                     // "" if passed
};
GemmVerdict verify(const GemmCase& call, const GemmOutput& output, const GemmVerdictOptions& options = {});

}  // namespace kernelwright
