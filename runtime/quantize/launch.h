/// Checks a quantise kernel's arguments, and queues its launch.
#pragma once

#include <memory>
#include <vector>

#include "kernelwright/generator/quantize/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/quantize/kernel.h"

namespace kernelwright::detail {

struct LoadedQuantize {
  QuantizeSpec spec;
  const LoadedKernel* kernel = nullptr;
  std::shared_ptr<const Binary> binary;
  bool has_pdl = false;
  bool fallback = false;  // never: one kernel serves every architecture
  bool watched = false;   // a launch needs more: KernelSlot::watched_launch()
  Device* device = nullptr;
};

/// As in runtime/gemm/launch.h.
LoadedQuantize describe(const QuantizeProblem& problem, const QuantizePlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const QuantizePlan& plan);
void attach(LoadedQuantize& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries);
void attach(LoadedQuantize& loaded, const LoadedQuantize& twin);

void launch_quantize(const LoadedQuantize& kernel, const QuantizeTensors& tensors, Stream stream);

}  // namespace kernelwright::detail
