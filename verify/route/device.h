/// A choice of experts, on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include <cstdint>

#include "kernelwright/runtime/route/kernel.h"
#include "kernelwright/verify/device/outputs_call.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/route/case.h"

namespace kernelwright {

class RouteDeviceCase final : public OutputsCall<RouteKernel, RouteTensors, RouteOutput, std::int32_t> {
 public:
  /// Uploads everything. Outputs and the workspace lie between guards.
  RouteDeviceCase(Device& device, const RouteCase& call, RouteKernel kernel);

  /// Copies the logits of another case of the same shape.
  void take_logits(const RouteCase& other) { copy(tensors_.logits, other.logits); }
};

inline LaunchedTwice<RouteOutput> launch_twice(Device& device, const RouteCase& call, const RouteKernel& kernel) {
  return launch_twice(device, RouteDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
