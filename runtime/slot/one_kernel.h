/// What is loaded for a kind that one kernel serves, on every architecture and for any size.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::detail {

template <class SpecOfKind>
struct OneKernel {
  SpecOfKind spec;
  const LoadedKernel* kernel = nullptr;
  std::shared_ptr<const Binary> binary;
  bool has_pdl = false;
  bool fallback = false;  // never: one kernel serves every architecture
  bool watched = false;   // a launch needs more: KernelSlot::watched_launch()
  Device* device = nullptr;
};

/// As in runtime/gemm/launch.h.
template <class SpecOfKind>
void attach(OneKernel<SpecOfKind>& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries) {
  loaded.kernel = kernels[0];
  loaded.binary = std::move(binaries[0]);
}
template <class SpecOfKind>
void attach(OneKernel<SpecOfKind>& loaded, const OneKernel<SpecOfKind>& twin) {
  loaded.kernel = twin.kernel;
  loaded.binary = twin.binary;
}

}  // namespace kernelwright::detail
