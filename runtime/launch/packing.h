/// Turns a plan and its operands into what a device takes. Every launch passes here: no allocation, no text.
#pragma once

#include <cstring>

#include "kernelwright/generator/plan/launch.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::detail {

/// A device address as a kernel's parameters hold it.
template <class T>
T* pointer(DevicePtr address) {
  return reinterpret_cast<T*>(address);
}

inline LaunchConfig config_of(const LaunchPlan& plan, bool pdl) {
  LaunchConfig config;
  config.pdl = pdl;
  for (int i = 0; i < 3; ++i) config.grid[i] = plan.grid[i];
  config.block = plan.block;
  config.cluster[0] = plan.cluster;
  config.shared_bytes = plan.shared_bytes;
  return config;
}

/// The shape of one cluster of `ctas`, for Device::max_active_clusters().
inline LaunchConfig config_of_cluster(int ctas, int threads, std::uint32_t shared_bytes) {
  LaunchConfig config;
  config.grid[0] = config.cluster[0] = static_cast<std::uint32_t>(ctas);
  config.block = static_cast<std::uint32_t>(threads);
  config.shared_bytes = shared_bytes;
  return config;
}

/// `Map` is contract::TensorMap, the type that parameters of kernels have.
template <class Map>
void encode(Device& device, Map& to, const TensorMapRequest& request) {
  const TensorMap map = device.encode_tensor_map(request);
  static_assert(sizeof to == sizeof map && alignof(Map) == alignof(TensorMap));
  std::memcpy(&to, &map, sizeof map);
}

}  // namespace kernelwright::detail
