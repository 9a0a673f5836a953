/// A GEMM call on a device: its operands uploaded, its output poisoned, launched and read back.
#pragma once

#include <vector>

#include "kernelwright/runtime/gemm/kernel.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// Owns the device memory and a stream of one call. One thread at a time may use it. `device` and the kernel's Engine
/// must outlive it.
class GemmDeviceCase {
 public:
  /// Uploads everything. d lies between guards, which hold a pattern; the gap after each row of d holds it too.
  GemmDeviceCase(Device& device, const GemmCase& call, GemmKernel kernel);
  ~GemmDeviceCase();
  GemmDeviceCase(const GemmDeviceCase&) = delete;
  GemmDeviceCase& operator=(const GemmDeviceCase&) = delete;

  /// From now on, launches use `kernel`, which must be of the same problem and device.
  void use(GemmKernel kernel);
  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { stream_ = stream; }
  /// From now on d and c are the same buffer: poison() puts c's values there. Throws Error if they differ in dtype or
  /// stride.
  void accumulate_in_place();

  /// Fills d with NaN (or with c), fills the kernel's part of the workspace with NaN, and renews the guards. Waits for
  /// queued work.
  void poison();
  /// Queues one launch on stream(). Throws as GemmKernel::launch().
  void launch();
  void wait();
  /// Waits, then reads d.
  GemmOutput download();
  /// Waits. Returns false if a launch has written in front of, behind or beside d's rows.
  bool guards_are_intact();

  Stream stream() const { return stream_; }
  GemmTensors& tensors() { return tensors_; }

 private:
  DevicePtr upload(const void* data, std::size_t bytes);
  std::vector<std::byte> read_all();
  void make_workspace();

  Device& device_;
  const GemmCase& call_;
  GemmKernel kernel_;
  Stream own_stream_ = nullptr, stream_ = nullptr;
  std::vector<DevicePtr> owned_;
  std::size_t row_bytes_ = 0, stride_bytes_ = 0;  // of d
  DevicePtr d_base_ = 0;                          // the guard in front
  std::vector<std::byte> poison_;                 // everything, guards and rows
  GemmTensors tensors_;
};

inline LaunchedTwice<GemmOutput> launch_twice(Device& device, const GemmCase& call, const GemmKernel& kernel) {
  return launch_twice(device, GemmDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
