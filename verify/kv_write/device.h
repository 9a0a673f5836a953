/// A call that writes a cache, on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include <vector>

#include "kernelwright/runtime/kv_write/kernel.h"
#include "kernelwright/verify/device/device_call.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/kv_write/case.h"

namespace kernelwright {

class KvWriteDeviceCase {
 public:
  /// Uploads everything. Outputs lie between guards.
  KvWriteDeviceCase(Device& device, const KvWriteCase& call, KvWriteKernel kernel);
  KvWriteDeviceCase(const KvWriteDeviceCase&) = delete;

  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { memory_.use(stream); }
  /// From now on q_out is q itself: poison() puts the queries there. Throws Error if their dtypes or strides differ.
  void rotate_in_place();

  /// Queues one launch on stream(). Throws as the kernel's launch().
  void launch() { kernel_.launch(tensors_, stream()); }
  void wait() { memory_.wait(); }
  Stream stream() const { return memory_.stream(); }
  KvWriteTensors& tensors() { return tensors_; }

  /// Fills outputs with DeviceMemory::kGuardByte, and renews the guards. Waits for queued work.
  void poison();
  /// Waits, then reads the outputs.
  KvWriteOutput download();
  /// Waits. Returns false if a launch has written in front of or behind an output.
  bool guards_are_intact();

 private:
  struct Result {
    DeviceMemory::Guarded memory;
    std::vector<std::byte> KvWriteOutput::*bytes;
  };
  DevicePtr output(std::size_t bytes, std::vector<std::byte> KvWriteOutput::*to);
  void upload_places();
  void allocate_scales();
  Device& device() { return memory_.device(); }

  const KvWriteCase& call_;
  KvWriteKernel kernel_;
  DeviceMemory memory_;
  KvWriteTensors tensors_;
  std::vector<Result> results_;
  bool in_place_ = false;
};

inline LaunchedTwice<KvWriteOutput> launch_twice(Device& device, const KvWriteCase& call, const KvWriteKernel& kernel) {
  return launch_twice(device, KvWriteDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
