/// Problems in the dtypes of the attention cases.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "end_to_end/attention/cases/attention_problems.h"

namespace kernelwright {

inline constexpr DType kBoth[] = {DType::kBf16, DType::kF16};

/// A problem in one of them; cases are named after it.
struct Variant {
  std::string name;
  AttentionProblem problem;
};
/// bf16, f16 and keys in e4m3 with scales
inline std::vector<Variant> three_dtypes(const std::function<AttentionProblem(AttentionProblem)>& make) {
  return {{"bf16", make(default_problem(DType::kBf16))},
          {"f16", make(default_problem(DType::kF16))},
          {"fp8", make(fp8(default_problem(DType::kBf16)))}};
}
inline AttentionProblem same(AttentionProblem problem) { return problem; }

}  // namespace kernelwright
