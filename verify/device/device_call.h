/// The part of a call on a device that all kinds share: its kernel, its tensors, the workspace, and the memory of both.
#pragma once

#include <cstdint>

#include "kernelwright/verify/device/device_memory.h"

namespace kernelwright {

/// Case: the operands and sizes of a call, on the host. Kernel: the kind's handle. Tensors: what its launch() takes.
/// One thread at a time may use it. `device`, `call` and the kernel's Engine must outlive it. A constructor of a kind
/// may throw half-way: the memory is a member of this class and is freed.
template <class Case, class Kernel, class Tensors>
class DeviceCall {
 public:
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  /// From now on, launches use `kernel`, which must be of the same problem and device. Its workspace may be larger. The
  /// old workspace stays valid for graphs that were captured with it.
  void use(Kernel kernel) {
    kernel_ = kernel;
    grow_workspace();
  }
  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { memory_.use(stream); }

  /// Queues one launch on stream(). Throws as the kernel's launch().
  void launch() { kernel_.launch(tensors_, stream()); }
  void wait() { memory_.wait(); }

  Stream stream() const { return memory_.stream(); }
  Tensors& tensors() { return tensors_; }

 protected:
  DeviceCall(Device& device, const Case& call, Kernel kernel) : call_(call), kernel_(kernel), memory_(device) {}
  ~DeviceCall() = default;

  Device& device() { return memory_.device(); }
  /// The bytes that kernel_ needs for this call.
  virtual std::uint64_t needed_workspace() const = 0;
  void grow_workspace() {
    const std::uint64_t bytes = kernel_ ? needed_workspace() : 0;
    if (bytes <= tensors_.workspace_bytes) return;
    tensors_.workspace = memory_.allocate(bytes);
    tensors_.workspace_bytes = bytes;
  }
  /// Fills the workspace with NaN.
  void poison_workspace() {
    if (tensors_.workspace)
      device().fill(tensors_.workspace, DeviceMemory::kNanByte, tensors_.workspace_bytes, stream());
  }

  const Case& call_;
  Kernel kernel_;
  DeviceMemory memory_;
  Tensors tensors_;
};

}  // namespace kernelwright
