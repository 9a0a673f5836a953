/// One shape of a config on the device, for timing many kernels on the same inputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "cli/cold_launches.h"
#include "cli/kinds.h"

namespace kernelwright::cli {

/// One shape on the device: inputs uploaded once, and a graph for each kernel that is timed on it.
template <class KindOfConfig>
class TimedShape {
  using Of = Kind<KindOfConfig>;

 public:
  TimedShape(Device& device, const KindOfConfig& config, const ShapeOf<KindOfConfig>& shape, std::uint64_t seed,
             Flusher& flusher)
      : device_(device),
        flusher_(flusher),
        call_(inputs_of(config, shape, seed)),
        on_device_(device, call_, typename Of::Kernel{}) {
    forget_uploaded(call_);
  }

  double sample(std::size_t entrant, const typename Of::Kernel& kernel) {
    std::unique_ptr<ColdLaunches>& launches = launches_[entrant];
    if (!launches) {
      on_device_.use(kernel);
      on_device_.launch();  // the extra work of a first launch is not timed
      on_device_.wait();
      const auto make = [&](int per_graph) {
        on_device_.use(kernel);
        return std::make_unique<ColdLaunches>(
            device_, on_device_.stream(), flusher_, [this] { on_device_.launch(); }, per_graph);
      };
      launches = make(1);
      const double once = launches->sample();
      const int per_graph = std::clamp(static_cast<int>(kGraphMicroseconds / once), 1, kMostPerGraph);
      if (per_graph > 1) launches = make(per_graph);
      launches->sample();  // a graph's first replay uploads it
    }
    return launches->sample();
  }

 private:
  static constexpr double kGraphMicroseconds = 2000;  // the launches in a graph take about this long in total
  static constexpr int kMostPerGraph = 10;

  Device& device_;
  Flusher& flusher_;
  typename Of::Case call_;
  typename Of::OnDevice on_device_;
  std::map<std::size_t, std::unique_ptr<ColdLaunches>> launches_;  // freed before the captured memory
};

}  // namespace kernelwright::cli
