/// Launches timed on a cold L2. One CUDA graph holds several (flush, launch) pairs, another graph the flushes alone.
/// Both are replayed in turn, and the difference of their times is the kernel's time.
#pragma once

#include <functional>
#include <memory>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::cli {

/// A buffer that fills the whole L2 when it is written.
class Flusher {
 public:
  explicit Flusher(Device& device);
  ~Flusher();
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;
  void flush(Stream stream) { device_.fill(buffer_, 0, bytes_, stream); }

 private:
  Device& device_;
  std::size_t bytes_;
  DevicePtr buffer_;
};

/// The two graphs of one launch. The buffers that `launch` uses must stay in place, because the launch is captured
/// once.
class ColdLaunches {
 public:
  ColdLaunches(Device& device, Stream stream, Flusher& flusher, const std::function<void()>& launch, int per_graph);
  ~ColdLaunches();
  /// Microseconds of one launch. Replays each graph once and waits.
  double sample();

 private:
  double time(Device::Graph& graph);
  Device& device_;
  Stream stream_;
  int per_graph_;
  std::unique_ptr<Device::Graph> kernel_, flushes_;
  DeviceEvent *start_, *stop_;
};

}  // namespace kernelwright::cli
