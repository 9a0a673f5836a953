/// GEMM calls from folders of .npy files, and results back into them: anyone's own tensors.
///
/// Values are float32 and are rounded to the problem's dtypes on the way in; those of block-scaled operands are
/// quantised (block_formats.h), and no scales are read for them.
///   a            [m, k], or [k, m] where the layout says so
///   b            [n, k], or [k, n]
///   c            [m, n], bias [n], where the epilogue has them; alpha and beta [1], 1 without them
///   scale_a, scale_b  [1] per_tensor; [m] and [n] per_token; [k / 128, m] and [n / 128, k / 128] per_block, rounded up
/// and out: d [m, n].
#pragma once

#include <string>

#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// Throws ConfigError with every violation that can be told at once; each names the file, what it has and what would
/// do. Also refuses arrays that the problem does not read.
GemmCase read_case(const GemmProblem& problem, const std::string& folder);

/// Writes d.npy. Makes `folder` if it is not there. Throws ConfigError.
void write_output(const GemmCase& call, const GemmOutput& output, const std::string& folder);

}  // namespace kernelwright
