/// The tensors that a model brings: a file in the format of safetensors, copied once to each device of its instances.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernelwright/engine.h"
#include "operands.h"

namespace kernelwright::triton {

/// Device memory that grows as it is asked for, and never shrinks.
class Buffer {
 public:
  explicit Buffer(Device& device) : device_(&device) {}
  ~Buffer() { device_->free(address_); }
  Buffer(Buffer&& other) noexcept : device_(other.device_), address_(other.address_), bytes_(other.bytes_) {
    other.address_ = 0;
  }
  Buffer& operator=(Buffer&&) = delete;

  /// Memory of at least `bytes`, whose contents are lost. Throws DeviceError if the device has no more.
  DevicePtr reserve(std::uint64_t bytes);
  DevicePtr address() const { return address_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Device* device_;
  DevicePtr address_ = 0;
  std::uint64_t bytes_ = 0;
};

/// What a model's parameters say of its weights.
struct WeightsFile {
  std::string path;                          // "": there is no file
  std::map<std::string, std::string> names;  // from an operand to its name in the file, where that differs
};

class Weights {
 public:
  /// Reads the file's header, and marks the operands that it has as held. Other tensors of the file are not read.
  /// Throws ConfigError with every reason, and MissingError if there is no such file.
  Weights(const WeightsFile& file, std::vector<Operand>& operands);
  ~Weights();
  Weights(const Weights&) = delete;

  /// The addresses on `device`, as the operands; 0 for those that are not held. The first call for a device copies them
  /// there. The device must outlive this object. Throws DeviceError if it has no memory for them, and ConfigError if
  /// the file has become shorter. Safe from any number of threads.
  const std::vector<DevicePtr>& on(Device& device);
  /// Of all copies.
  std::uint64_t bytes();

 private:
  struct Tensor {
    std::size_t operand = 0;
    std::uint64_t offset = 0, bytes = 0;  // in the file
  };
  struct Copy {
    std::vector<Buffer> buffers;
    std::vector<DevicePtr> addresses;
  };
  JsonValue read_header(std::uint64_t& data, std::uint64_t& data_bytes) const;
  void read(void* to, std::uint64_t offset, std::uint64_t bytes) const;

  std::string path_;
  int file_ = -1;
  std::size_t operands_ = 0;
  std::vector<Tensor> tensors_;
  std::mutex mutex_;
  std::map<const Device*, Copy> copies_;
};

}  // namespace kernelwright::triton
