/// Checks the arguments of a launch that chooses experts, and queues it.
#pragma once

#include <memory>
#include <vector>

#include "kernelwright/generator/route/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/route/kernel.h"

namespace kernelwright::detail {

struct LoadedRoute {
  RouteSpec spec;
  float factor = 1;
  const LoadedKernel* kernel = nullptr;
  const LoadedKernel* sort = nullptr;  // null: the problem does not sort
  std::vector<std::shared_ptr<const Binary>> binaries;
  bool has_pdl = false;
  bool fallback = false;  // never: one kernel serves every architecture
  bool watched = false;   // a launch needs more: KernelSlot::watched_launch()
  Device* device = nullptr;
};

/// As in runtime/gemm/launch.h.
LoadedRoute describe(const RouteProblem& problem, const RoutePlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const RoutePlan& plan);
void attach(LoadedRoute& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries);
void attach(LoadedRoute& loaded, const LoadedRoute& twin);

/// Throws ConfigError if a launch does not take so many tokens.
void require_tokens(const RouteSpec& spec, std::int64_t tokens);

void launch_route(const LoadedRoute& kernel, const RouteTensors& tensors, Stream stream);

/// Every rule that `tensors`, whose stride is not 0, break.
std::vector<Violation> broken_rules(const LoadedRoute& kernel, const RouteTensors& tensors);

}  // namespace kernelwright::detail
