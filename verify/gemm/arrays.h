/// GEMM calls from folders of .npy files, with a user's own tensors, and results back into such folders.
///
/// Values are float32 and are rounded to the problem's dtypes when they are read. Values of block-scaled operands are
/// quantised (block_formats.h), and no scales are read for them.
///   a            [m, k], or [k, m] where the layout says so
///   b            [n, k], or [k, n]
///   c            [m, n], bias [n], where the epilogue has them; alpha and beta [1], 1 without them
///   scale_a, scale_b  [1] per_tensor; [m] and [n] per_token; [k / 128, m] and [n / 128, k / 128] per_block, rounded up
/// and out: d [m, n].
/// Where the epilogue quantises, scale_d comes out too.
///   scale_d      [columns of d / 128, m], of masked groups [count, columns of d / 128, m / count]; of mxfp8, mxfp4 and
///                nvfp4 [m, columns of d / 32 or 16], as numbers
///
/// Where the epilogue has them: squares [columns of d / 128, m] and amax [1] come out. squares_a [k / 128, m] and
/// rms_eps [1] are read for rstd.
///
/// Of a problem that writes a cache, what verify/kv_write/arrays.h has beside q, k and v is read too, and what it has
/// beside q_out comes out.
///
/// With groups, b, bias, scale_b and the per_block scale_a of masked groups have the group as their first dimension.
/// scale_b per_tensor is [count]. The bounds are int32: starts [count + 1], ends [count] or counts [count]. With
/// gather, an int32 gather [m] has the row of a for each row of d. With scatter, an int32 scatter [m] has the row of d
/// that each row becomes. d and c have the rows of c.npy, or as many as the largest index says.
#pragma once

#include <string>

#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// Throws ConfigError with every violation that can be found at once. Each violation names the file, what the file has
/// and what would fit. Also refuses arrays that the problem does not read.
GemmCase read_case(const GemmProblem& problem, const std::string& folder);

/// Writes d.npy. Creates `folder` if it does not exist. Throws ConfigError.
void write_output(const GemmCase& call, const GemmOutput& output, const std::string& folder);

}  // namespace kernelwright
