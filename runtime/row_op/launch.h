/// Checks the arguments of a launch that takes steps over rows, and queues it.
#pragma once

#include <memory>
#include <vector>

#include "kernelwright/generator/row_op/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/row_op/kernel.h"

namespace kernelwright::detail {

struct LoadedRowOp {
  RowOpSpec spec;
  float eps = 0, least = 0, alpha = 0, limit = 0;
  const LoadedKernel* kernel = nullptr;
  std::shared_ptr<const Binary> binary;
  bool has_pdl = false;
  bool fallback = false;  // never: one kernel serves every architecture
  bool watched = false;   // a launch needs more: KernelSlot::watched_launch()
  Device* device = nullptr;
};

/// As in runtime/gemm/launch.h.
LoadedRowOp describe(const RowOpProblem& problem, const RowOpPlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const RowOpPlan& plan);
void attach(LoadedRowOp& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries);
void attach(LoadedRowOp& loaded, const LoadedRowOp& twin);

/// `tensors` with the strides that a launch uses: those that are not given are the shape's.
RowOpTensors resolved(const RowOpSpec& spec, RowOpTensors tensors);

void launch_row_op(const LoadedRowOp& kernel, const RowOpTensors& tensors, Stream stream);

/// Every rule that `tensors`, which are resolved(), break.
std::vector<Violation> broken_rules(const LoadedRowOp& kernel, const RowOpTensors& tensors);

}  // namespace kernelwright::detail
