/// A call of steps over rows, on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include <vector>

#include "kernelwright/runtime/row_op/kernel.h"
#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/row_op/case.h"

namespace kernelwright {

class RowOpDeviceCase {
 public:
  /// Uploads everything. Outputs lie between guards.
  RowOpDeviceCase(Device& device, const RowOpCase& call, RowOpKernel kernel);
  RowOpDeviceCase(const RowOpDeviceCase&) = delete;

  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { memory_.use(stream); }
  /// From now on residual_out is the residual itself, and out is x itself where dtypes and strides agree: poison() puts
  /// the inputs there.
  void work_in_place();

  /// Queues one launch on stream(). Throws as the kernel's launch().
  void launch() { kernel_.launch(tensors_, stream()); }
  void wait() { memory_.wait(); }
  Stream stream() const { return memory_.stream(); }
  RowOpTensors& tensors() { return tensors_; }

  /// Fills outputs with DeviceMemory::kGuardByte, and renews the guards. Waits for queued work.
  void poison();
  /// Waits, then reads the outputs.
  RowOpOutput download();
  /// Waits. Returns false if a launch has written in front of or behind an output.
  bool guards_are_intact();

 private:
  struct Result {
    DeviceMemory::Guarded memory;
    std::vector<std::byte> RowOpOutput::*bytes;
  };
  DevicePtr output(std::size_t bytes, std::vector<std::byte> RowOpOutput::*to);
  Device& device() { return memory_.device(); }

  const RowOpCase& call_;
  RowOpKernel kernel_;
  DeviceMemory memory_;
  RowOpTensors tensors_;
  std::vector<Result> results_;
  bool out_is_x_ = false, adds_in_place_ = false;
};

inline LaunchedTwice<RowOpOutput> launch_twice(Device& device, const RowOpCase& call, const RowOpKernel& kernel) {
  return launch_twice(device, RowOpDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
