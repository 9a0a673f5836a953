/// A choice of experts, on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include <vector>

#include "kernelwright/runtime/route/kernel.h"
#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/route/case.h"

namespace kernelwright {

class RouteDeviceCase {
 public:
  /// Uploads everything. Outputs lie between guards.
  RouteDeviceCase(Device& device, const RouteCase& call, RouteKernel kernel);
  RouteDeviceCase(const RouteDeviceCase&) = delete;

  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { memory_.use(stream); }
  /// Copies the logits of another case of the same shape.
  void take_logits(const RouteCase& other);

  /// Queues one launch on stream(). Throws as the kernel's launch().
  void launch() { kernel_.launch(tensors_, stream()); }
  void wait() { memory_.wait(); }
  Stream stream() const { return memory_.stream(); }
  RouteTensors& tensors() { return tensors_; }

  /// Fills outputs with DeviceMemory::kGuardByte, and renews the guards. Waits for queued work.
  void poison();
  /// Waits, then reads the outputs.
  RouteOutput download();
  /// Waits. Returns false if a launch has written in front of or behind an output.
  bool guards_are_intact();

 private:
  struct Result {
    DeviceMemory::Guarded memory;
    std::vector<std::int32_t> RouteOutput::*words;  // null: the workspace
  };
  DevicePtr output(std::size_t words, std::vector<std::int32_t> RouteOutput::*to);
  Device& device() { return memory_.device(); }

  RouteKernel kernel_;
  DeviceMemory memory_;
  RouteTensors tensors_;
  std::vector<Result> results_;
};

inline LaunchedTwice<RouteOutput> launch_twice(Device& device, const RouteCase& call, const RouteKernel& kernel) {
  return launch_twice(device, RouteDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
