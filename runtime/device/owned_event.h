/// An event that is destroyed with its scope.
#pragma once

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

struct OwnedEvent {
  Device& device;
  DeviceEvent* event;
  explicit OwnedEvent(Device& on) : device(on), event(on.create_event()) {}
  ~OwnedEvent() { device.destroy_event(event); }
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
};

}  // namespace kernelwright
