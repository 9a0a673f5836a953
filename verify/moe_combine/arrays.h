/// Sums over the rows of tokens' experts from folders of .npy files, with a user's own tensors, and results back into
/// such folders.
///
///   rows        float32 [num_rows, width]; rounded to dtype.in
///   positions   int32 [tokens, top_k]
///   weights     float32 [tokens, top_k], with weighted
///   residual    float32 [tokens, width], with residual; rounded to dtype.in
///
/// Out comes out [tokens, width].
#pragma once

#include <string>

#include "kernelwright/verify/moe_combine/case.h"

namespace kernelwright {

/// Throws ConfigError with every violation that can be found at once. Each violation names the file, what the file has
/// and what would fit. Also refuses arrays that the problem does not read.
MoeCombineCase read_case(const MoeCombineProblem& problem, const std::string& folder);

/// Creates `folder` if it does not exist. Throws ConfigError.
void write_output(const MoeCombineCase& call, const MoeCombineOutput& output, const std::string& folder);

}  // namespace kernelwright
