/// Checks a quantise kernel's arguments, and queues its launch.
#pragma once

#include <vector>

#include "kernelwright/generator/quantize/plan.h"
#include "kernelwright/runtime/quantize/kernel.h"
#include "kernelwright/runtime/slot/one_kernel.h"

namespace kernelwright::detail {

struct LoadedQuantize : OneKernel<QuantizeSpec> {};

/// As in runtime/gemm/launch.h.
LoadedQuantize describe(const QuantizeProblem& problem, const QuantizePlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const QuantizePlan& plan);

void launch_quantize(const LoadedQuantize& kernel, const QuantizeTensors& tensors, Stream stream);

}  // namespace kernelwright::detail
