/// What calls of kinds beside attention and GEMM share on a device: outputs between guards, poisoned, launched and read
/// back.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernelwright/verify/device/device_memory.h"

namespace kernelwright {

/// `Output` has a std::vector<Element> for each output. A kind derives from this class, and its constructor uploads
/// operands and allocates outputs.
template <class Kernel, class Tensors, class Output, class Element = std::byte>
class OutputsCall {
 public:
  OutputsCall(Device& device, Kernel kernel) : kernel_(std::move(kernel)), memory_(device) {}
  OutputsCall(const OutputsCall&) = delete;
  virtual ~OutputsCall() = default;

  /// From now on, everything is queued on `stream`, which the caller owns, instead of on this object's own stream.
  void use(Stream stream) { memory_.use(stream); }
  /// Queues one launch on stream(). Throws as the kernel's launch().
  void launch() { kernel_.launch(tensors_, stream()); }
  void wait() { memory_.wait(); }
  Stream stream() const { return memory_.stream(); }
  Tensors& tensors() { return tensors_; }

  /// Fills outputs with DeviceMemory::kGuardByte, and renews the guards. Waits for queued work.
  void poison() {
    wait();
    for (const Result& result : results_) {
      memory_.renew_guards(result.memory);
      device().fill(result.memory.data(), static_cast<std::uint8_t>(DeviceMemory::kGuardByte), result.memory.bytes,
                    stream());
    }
    wait();
    put_inputs_back();
  }
  /// Waits, then reads the outputs.
  Output download() {
    wait();
    Output output;
    for (const Result& result : results_) {
      if (!result.to) continue;
      std::vector<Element>& elements = output.*result.to;
      elements.resize(result.memory.bytes / sizeof(Element));
      if (!elements.empty()) device().copy_to_host(elements.data(), result.memory.data(), result.memory.bytes);
    }
    return output;
  }
  /// Waits. Returns false if a launch has written in front of or behind an output.
  bool guards_are_intact() {
    wait();
    for (const Result& result : results_)
      if (!memory_.guards_are_intact(result.memory)) return false;
    return true;
  }

 protected:
  /// Allocates an output of `count` elements. Without `to`, nothing reads it back: a workspace.
  DevicePtr output(std::size_t count, std::vector<Element> Output::*to) {
    results_.push_back({memory_.allocate_guarded(count * sizeof(Element)), to});
    return results_.back().memory.data();
  }
  Device& device() { return memory_.device(); }
  template <class T>
  void copy(DevicePtr to, const std::vector<T>& values) {
    if (!values.empty()) device().copy_to_device(to, values.data(), values.size() * sizeof(T));
  }
  /// A copy of `values` in at least 256 bytes: a null pointer means an operand that was not given.
  template <class T>
  DevicePtr upload_some(const std::vector<T>& values) {
    const DevicePtr address = memory_.allocate_some(values.size() * sizeof(T));
    copy(address, values);
    return address;
  }
  /// Outputs that are inputs too get their values.
  virtual void put_inputs_back() {}

  Kernel kernel_;
  DeviceMemory memory_;
  Tensors tensors_;

 private:
  struct Result {
    DeviceMemory::Guarded memory;
    std::vector<Element> Output::*to;
  };
  std::vector<Result> results_;
};

}  // namespace kernelwright
