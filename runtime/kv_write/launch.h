/// Checks the arguments of a launch that writes a cache, and queues it.
#pragma once

#include <memory>
#include <vector>

#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/kv_write/kernel.h"

namespace kernelwright::detail {

struct LoadedKvWrite {
  KvWriteSpec spec;
  float eps = 0, least = 0;
  const LoadedKernel* kernel = nullptr;
  std::shared_ptr<const Binary> binary;
  bool has_pdl = false;
  bool fallback = false;  // never: one kernel serves every architecture
  bool watched = false;   // a launch needs more: KernelSlot::watched_launch()
  Device* device = nullptr;
};

/// As in runtime/gemm/launch.h.
LoadedKvWrite describe(const KvWriteProblem& problem, const KvWritePlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const KvWritePlan& plan);
void attach(LoadedKvWrite& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries);
void attach(LoadedKvWrite& loaded, const LoadedKvWrite& twin);

/// `tensors` with the strides that a launch uses: those that are not given are the shape's.
KvWriteTensors resolved(const KvWriteSpec& spec, KvWriteTensors tensors);

void launch_kv_write(const LoadedKvWrite& kernel, const KvWriteTensors& tensors, Stream stream);

/// Every rule that `tensors`, which are resolved(), break.
std::vector<Violation> broken_rules(const LoadedKvWrite& kernel, const KvWriteTensors& tensors);

}  // namespace kernelwright::detail
