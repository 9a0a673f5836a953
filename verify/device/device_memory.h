/// Device memory and a stream for one call, and outputs that lie between guards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

/// Owns what it allocates, and a stream. One thread at a time may use it. `device` must outlive it.
class DeviceMemory {
 public:
  static constexpr std::uint8_t kNanByte = 0xff;  // NaN in every dtype

  explicit DeviceMemory(Device& device) : device_(device), own_stream_(device.create_stream()), stream_(own_stream_) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  Device& device() { return device_; }
  Stream stream() const { return stream_; }
  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { stream_ = stream; }
  void wait() { device_.synchronize(stream_); }

  DevicePtr allocate(std::size_t bytes);
  /// A copy of `data`; null if there is none.
  DevicePtr upload(const void* data, std::size_t bytes);
  template <class T>
  DevicePtr upload(const std::vector<T>& values) {
    return upload(values.data(), values.size() * sizeof(T));
  }
  /// At least 256 bytes, which a call without keys, without k or without rows needs too: a null pointer means an
  /// operand that was not given.
  DevicePtr allocate_some(std::size_t bytes = 0);

  /// An output, with a guard in front of it and one behind it.
  struct Guarded {
    DevicePtr base = 0;     // of the guard in front; 0: there is no such output
    std::size_t bytes = 0;  // without the guards
    DevicePtr data() const;
  };
  Guarded allocate_guarded(std::size_t bytes);
  /// Queues the pattern that both guards hold.
  void renew_guards(const Guarded& output);
  /// Returns false if something was written in front of or behind the output.
  bool guards_are_intact(const Guarded& output);

  /// The pattern of the guards, for gaps inside of an output.
  static constexpr std::byte kGuardByte{0xa5};

 private:
  static constexpr std::size_t kGuardBytes = 1024;  // keeps the output's alignment

  Device& device_;
  Stream own_stream_, stream_;
  std::vector<DevicePtr> owned_;
};

}  // namespace kernelwright
