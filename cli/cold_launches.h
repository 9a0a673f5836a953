/// Launches timed on a cold L2. A CUDA graph holds several (flush, launch) pairs and another the flushes alone; both
/// are replayed in turn, and their difference is the kernel.
#pragma once

#include <functional>
#include <memory>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::cli {

/// A buffer whose writing leaves nothing else in the L2.
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

/// The two graphs of one launch. What `launch` queues must stay in place: it is captured once.
class ColdLaunches {
 public:
  ColdLaunches(Device& device, Stream stream, Flusher& flusher, const std::function<void()>& launch, int per_graph);
  ~ColdLaunches();
  /// Microseconds of one launch. Replays each graph once, and waits.
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
