/// Checks the arguments of a launch that adds up rows of experts, and queues it.
#pragma once

#include <vector>

#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/runtime/moe_combine/kernel.h"
#include "kernelwright/runtime/slot/one_kernel.h"

namespace kernelwright::detail {

struct LoadedMoeCombine : OneKernel<MoeCombineSpec> {};

/// As in runtime/gemm/launch.h.
LoadedMoeCombine describe(const MoeCombineProblem& problem, const MoeCombinePlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const MoeCombinePlan& plan);

void launch_moe_combine(const LoadedMoeCombine& kernel, const MoeCombineTensors& tensors, Stream stream);

/// Every rule that `tensors`, whose strides are not 0, break.
std::vector<Violation> broken_rules(const LoadedMoeCombine& kernel, const MoeCombineTensors& tensors);

}  // namespace kernelwright::detail
