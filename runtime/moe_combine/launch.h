/// Checks the arguments of a launch that adds up rows of experts, and queues it.
#pragma once

#include <memory>
#include <vector>

#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/moe_combine/kernel.h"

namespace kernelwright::detail {

struct LoadedMoeCombine {
  MoeCombineSpec spec;
  const LoadedKernel* kernel = nullptr;
  std::shared_ptr<const Binary> binary;
  bool has_pdl = false;
  bool fallback = false;  // never: one kernel serves every architecture
  bool watched = false;   // a launch needs more: KernelSlot::watched_launch()
  Device* device = nullptr;
};

/// As in runtime/gemm/launch.h.
LoadedMoeCombine describe(const MoeCombineProblem& problem, const MoeCombinePlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const MoeCombinePlan& plan);
void attach(LoadedMoeCombine& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries);
void attach(LoadedMoeCombine& loaded, const LoadedMoeCombine& twin);

void launch_moe_combine(const LoadedMoeCombine& kernel, const MoeCombineTensors& tensors, Stream stream);

/// Every rule that `tensors`, whose strides are not 0, break.
std::vector<Violation> broken_rules(const LoadedMoeCombine& kernel, const MoeCombineTensors& tensors);

}  // namespace kernelwright::detail
