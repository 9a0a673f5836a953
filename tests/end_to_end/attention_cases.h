/// The cases that every attention kernel is held to: awkward lengths, layouts, masks and values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernelwright/generator/schedule.h"
#include "kernelwright/verify/attention_case.h"

namespace kernelwright {

struct CudaCase {
  std::string name;  // letters, digits and _
  AttentionProblem problem;
  AttentionShape shape;
  AttentionSchedule schedule = {};
  InputOptions options = {};
  std::function<void(AttentionCase&)> change = {};  // values and run-time parameters, after the inputs are made
};

/// All of them, in the order of attention.md's list; names begin with its numbers.
std::vector<CudaCase> all_cuda_cases();

/// bf16, 8 query and 2 KV heads of 128, padded, no mask, with LSE.
AttentionProblem default_problem(DType dtype = DType::kBf16);
AttentionShape shape_of(int batch, int q_len, int kv_len);

}  // namespace kernelwright
