/// Choices of experts from folders of .npy files, with a user's own tensors, and results back into such folders.
///
///   logits      float32 [tokens, experts]; rounded to dtype
///   bias        float32 [experts], with bias
///   local_ids   int32 [experts], with local_experts
///   ids         int32 [tokens, top_k], and weights, float32, where experts are given, instead of logits
///
/// Out come ids and weights [tokens, top_k], unless they are given. With sort also starts [local experts + 1],
/// positions [tokens, top_k], and source_rows and sorted_weights of as many rows as the last start says. Numbers of
/// rows are int32.
#pragma once

#include <string>

#include "kernelwright/verify/route/case.h"

namespace kernelwright {

/// Throws ConfigError with every violation that can be found at once. Each violation names the file, what the file has
/// and what would fit. Also refuses arrays that the problem does not read.
RouteCase read_case(const RouteProblem& problem, const std::string& folder);

/// Creates `folder` if it does not exist. Throws ConfigError.
void write_output(const RouteCase& call, const RouteOutput& output, const std::string& folder);

}  // namespace kernelwright
