/// Two launches of one call on a device, each into poisoned outputs: the result, whether it repeats, and how long the
/// second launch took.
#pragma once

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/device/owned_event.h"

namespace kernelwright {

template <class Output>
struct LaunchedTwice {
  Output output;
  bool repeats = false;  // the second result equals the first to the bit
  bool guards_intact = false;
  double milliseconds = 0;  // of the second launch, by events; for orientation
};

/// `on_device` is a DeviceCase or a GemmDeviceCase.
template <class OnDevice>
auto launch_twice(Device& device, OnDevice&& on_device) {
  LaunchedTwice<decltype(on_device.download())> result;
  on_device.poison();
  on_device.launch();
  result.output = on_device.download();
  result.guards_intact = on_device.guards_are_intact();
  on_device.poison();
  OwnedEvent start(device), stop(device);
  device.record(start.event, on_device.stream());
  on_device.launch();
  device.record(stop.event, on_device.stream());
  result.repeats = on_device.download() == result.output;
  result.milliseconds = device.elapsed_ms(start.event, stop.event);
  result.guards_intact = result.guards_intact && on_device.guards_are_intact();
  return result;
}

}  // namespace kernelwright
