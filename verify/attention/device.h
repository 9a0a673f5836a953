/// An attention call on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include <map>

#include "kernelwright/runtime/attention/kernel.h"
#include "kernelwright/verify/attention/case.h"
#include "kernelwright/verify/device/device_call.h"
#include "kernelwright/verify/device/twice_device.h"

namespace kernelwright {

class DeviceCase final : public DeviceCall<AttentionCase, AttentionKernel, AttentionTensors> {
 public:
  /// Uploads everything. The outputs lie between guards, which hold a pattern.
  DeviceCase(Device& device, const AttentionCase& call, AttentionKernel kernel);

  /// Fills outputs and workspace with NaN and renews the guards.
  void poison();
  /// Waits, then reads the outputs.
  AttentionOutput download();
  /// Waits. Returns false if a launch has written in front of or behind an output.
  bool guards_are_intact();

  AttentionExtent extent() const { return kernel_.extent(tensors_); }

 private:
  std::uint64_t needed_workspace() const override { return kernel_.workspace_bytes(extent()); }
  DevicePtr upload(const HostTensor& tensor);

  std::map<const void*, DevicePtr> uploaded_;  // tensors that share a buffer share its copy
  DeviceMemory::Guarded o_, lse_;
};

inline LaunchedTwice<AttentionOutput> launch_twice(Device& device, const AttentionCase& call,
                                                   const AttentionKernel& kernel) {
  return launch_twice(device, DeviceCase(device, call, kernel));
}

}  // namespace kernelwright
