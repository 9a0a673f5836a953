/// Steps over rows from folders of .npy files, with a user's own tensors, and results back into such folders.
///
/// Values are float32 and are rounded to dtype.in when they are read.
///   x              [rows, width], with input "gate_up" [rows, 2 width]
///   residual       [rows, width], with input "add" or "merge"
///   lse            [rows, heads], with input "merge", of x; residual_lse likewise
///   weight         [width], with a norm that has weights
///   scale          [1], per_tensor
///   tensor_scale   [1], mxfp8, mxfp4 and nvfp4; 1 if it is left out
///
/// Out come out, residual_out, lse_out and scale. Of mxfp8, mxfp4 and nvfp4, out has the elements without their scales.
///   scale          [rows] per_token; [width / 128, rows] or [rows, width / 128] per_block; of mxfp8, mxfp4 and nvfp4
///                  [rows, blocks], the values of the scale bytes
#pragma once

#include <string>

#include "kernelwright/verify/row_op/case.h"

namespace kernelwright {

/// Throws ConfigError with every violation that can be found at once. Each violation names the file, what the file has
/// and what would fit. Also refuses arrays that the problem does not read.
RowOpCase read_case(const RowOpProblem& problem, const std::string& folder);

/// Creates `folder` if it does not exist. Throws ConfigError.
void write_output(const RowOpCase& call, const RowOpOutput& output, const std::string& folder);

}  // namespace kernelwright
