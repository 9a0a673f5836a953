/// Checks the arguments of a launch that takes steps over rows, and queues it.
#pragma once

#include <vector>

#include "kernelwright/generator/row_op/plan.h"
#include "kernelwright/runtime/row_op/kernel.h"
#include "kernelwright/runtime/slot/one_kernel.h"

namespace kernelwright::detail {

struct LoadedRowOp : OneKernel<RowOpSpec> {
  float eps = 0, least = 0, alpha = 0, limit = 0;
};

/// As in runtime/gemm/launch.h.
LoadedRowOp describe(const RowOpProblem& problem, const RowOpPlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const RowOpPlan& plan);

/// `tensors` with the strides that a launch uses: those that are not given are the shape's.
RowOpTensors resolved(const RowOpSpec& spec, RowOpTensors tensors);

void launch_row_op(const LoadedRowOp& kernel, const RowOpTensors& tensors, Stream stream);

/// Every rule that `tensors`, which are resolved(), break.
std::vector<Violation> broken_rules(const LoadedRowOp& kernel, const RowOpTensors& tensors);

}  // namespace kernelwright::detail
