#include "cli/cold_launches.h"

#include <algorithm>

namespace kernelwright::cli {

Flusher::Flusher(Device& device) : device_(device), bytes_(2 * std::max<std::size_t>(device.info().l2_bytes, 1 << 20)) {
  buffer_ = device.allocate(bytes_);
}
Flusher::~Flusher() { device_.free(buffer_); }

ColdLaunches::ColdLaunches(Device& device, Stream stream, Flusher& flusher, const std::function<void()>& launch,
                           int per_graph)
    : device_(device), stream_(stream), per_graph_(per_graph) {
  const auto record = [&](bool with_kernel) {
    device.begin_capture(stream);
    for (int i = 0; i < per_graph; ++i) {
      flusher.flush(stream);
      if (with_kernel) launch();
    }
    return device.end_capture(stream);
  };
  kernel_ = record(true);
  flushes_ = record(false);
  start_ = device.create_event();
  stop_ = device.create_event();
}

ColdLaunches::~ColdLaunches() {
  device_.destroy_event(start_);
  device_.destroy_event(stop_);
}

double ColdLaunches::time(Device::Graph& graph) {
  device_.record(start_, stream_);
  graph.replay(stream_);
  device_.record(stop_, stream_);
  return device_.elapsed_ms(start_, stop_) * 1e3 / per_graph_;
}

double ColdLaunches::sample() {
  const double with = time(*kernel_), without = time(*flushes_);
  return std::max(with - without, 1e-3);
}

}  // namespace kernelwright::cli
