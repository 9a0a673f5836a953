/// What a layer of experts computes, in fp64 from the definition, and how far its kernels may be off.
///
/// Each number between two kernels has an error bound: a limit that no correct kernel passes, and a standard deviation
/// for random data. The limit is at most 8 standard deviations. u = 2^-24.
///
/// 1. Sums of k products have the bounds of verify/gemm/bound.h: of f32, and of what tensor cores truncate of 8-bit
///    operands. Errors of operands add up times the other operand, and their variances likewise.
/// 2. A gated product and a weighted sum: as in verify/gemm/bound.h and verify/moe_combine/reference.h.
/// 3. Rounding to a grid. Where both ends of the number's range land on one point, there is no error any more.
/// Otherwise
///    it lands on the next point, a step away, if its error is larger than its distance d from the middle between both.
///    Errors of long sums are normal, so the probability is at most erfc(d / (sqrt(2) sigma)), both tails.
/// 4. Quantising a block. The scale errs as the block's largest magnitude does. Elements in units of the scale are off
/// by
///    as much relative to themselves, by 4u, and by their own error. Times the scale they are off once more.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/verify/moe/case.h"
#include "kernelwright/verify/rows_verdict.h"

namespace kernelwright {

struct MoeNumber {
  double value = 0, limit = 0, sigma = 0;
};

/// The result of a token, ahead of rounding to dtype. The choice of experts is that of fp64: inputs whose experts are
/// nearly tied are for verify/route/bound.h.
std::vector<MoeNumber> reference_row(const MoeCase& call, std::int64_t token);

/// Compares each token's row: each element with its limit, and the root mean square of error / sigma, which may be
/// sqrt(1.5 + 7 / sqrt(hidden)) as in verify/gemm/bound.h. It finds a wrong expert or scale. Every byte between the
/// rows has to hold what it held before.
RowsVerdict verify(const MoeCase& call, const MoeOutput& output, const RowsVerdictOptions& options = {});

}  // namespace kernelwright
