/// An attention call on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernelwright/runtime/attention/kernel.h"
#include "kernelwright/verify/attention/case.h"
#include "kernelwright/verify/device/twice_device.h"

namespace kernelwright {

/// Owns the device memory and a stream of one call. One thread at a time may use it. `device` and the kernel's Engine
/// must outlive it.
class DeviceCase {
 public:
  /// Uploads everything. The outputs lie between guards, which hold a pattern.
  DeviceCase(Device& device, const AttentionCase& call, AttentionKernel kernel);
  ~DeviceCase();
  DeviceCase(const DeviceCase&) = delete;
  DeviceCase& operator=(const DeviceCase&) = delete;

  /// From now on, launches use `kernel`, which must be of the same problem and device. Its workspace may be larger. The
  /// old workspace stays valid for graphs that were captured with it.
  void use(AttentionKernel kernel);
  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { stream_ = stream; }

  /// Fills outputs and workspace with NaN and renews the guards.
  void poison();
  /// Queues one launch on stream(). Throws as AttentionKernel::launch().
  void launch();
  void wait();
  /// Waits, then reads the outputs.
  AttentionOutput download();
  /// Waits. Returns false if a launch has written in front of or behind an output.
  bool guards_are_intact();

  Stream stream() const { return stream_; }
  AttentionTensors& tensors() { return tensors_; }
  AttentionExtent extent() const { return kernel_.extent(tensors_); }

 private:
  struct Guarded {
    DevicePtr base = 0;
    std::size_t bytes = 0;  // without the guards
    DevicePtr data() const;
  };
  DevicePtr upload(const void* data, std::size_t bytes);
  DevicePtr upload(const HostTensor& tensor);
  template <class T>
  DevicePtr upload(const std::vector<T>& values) {
    return upload(values.data(), values.size() * sizeof(T));
  }
  Guarded guarded(std::size_t bytes);
  void make_workspace();

  Device& device_;
  const AttentionCase& call_;
  AttentionKernel kernel_;
  Stream own_stream_ = nullptr, stream_ = nullptr;
  std::vector<DevicePtr> owned_;
  std::map<const void*, DevicePtr> uploaded_;  // tensors that share a buffer share its copy
  Guarded o_, lse_;
  AttentionTensors tensors_;
};

inline LaunchedTwice<AttentionOutput> launch_twice(Device& device, const AttentionCase& call,
                                                   const AttentionKernel& kernel) {
  return launch_twice(device, DeviceCase(device, call, kernel));
}

}  // namespace kernelwright
