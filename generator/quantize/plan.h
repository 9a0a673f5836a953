/// Quantising rows of floats to a block-scaled format: the problem, and the kernel that a machine runs for it.
#pragma once

#include <cstdint>

#include "kernelwright/generator/plan/launch.h"
#include "kernelwright/generator/problem/schedule.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// Turns rows of f16, bf16 or f32 into elements and scales of mxfp8, mxfp4 or nvfp4, in the form of a GEMM's operand.
/// The number of rows, and their length, are run-time parameters.
struct QuantizeProblem {
  DType from = DType::kBf16, to = DType::kMxfp8;
  bool operator==(const QuantizeProblem&) const = default;
};
template <class Visitor>
void visit_fields(QuantizeProblem& problem, Visitor&& field) {
  field("from", problem.from, any{}, "elements of the rows: f16, bf16 or f32");
  field("to", problem.to, any{}, "the block-scaled format: mxfp8, mxfp4 or nvfp4");
}

struct QuantizeSchedule {
  Auto<Arch> arch;
  bool operator==(const QuantizeSchedule&) const = default;
};

struct QuantizePlan {
  QuantizeSpec spec;
};

/// Throws ConfigError, every violation at once.
QuantizePlan plan_quantize(const QuantizeProblem& problem, Arch arch);

/// Plans a launch for `rows` rows of `k` elements, both > 0.
LaunchPlan plan_launch(const QuantizeSpec& spec, std::int64_t rows, int k) noexcept;

}  // namespace kernelwright
