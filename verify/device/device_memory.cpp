#include "kernelwright/verify/device/device_memory.h"

#include <algorithm>

namespace kernelwright {

DeviceMemory::~DeviceMemory() {
  for (const DevicePtr address : owned_) device_.free(address);
  if (own_stream_) device_.destroy_stream(own_stream_);
}

DevicePtr DeviceMemory::allocate(std::size_t bytes) {
  owned_.reserve(owned_.size() + 1);  // so that the object owns the new memory at once
  owned_.push_back(device_.allocate(bytes));
  return owned_.back();
}

DevicePtr DeviceMemory::upload(const void* data, std::size_t bytes) {
  if (!bytes) return 0;
  const DevicePtr address = allocate(bytes);
  device_.copy_to_device(address, data, bytes);
  return address;
}

DevicePtr DeviceMemory::allocate_some(std::size_t bytes) { return allocate(std::max(bytes, std::size_t{256})); }

DevicePtr DeviceMemory::Guarded::data() const { return base + kGuardBytes; }

DeviceMemory::Guarded DeviceMemory::allocate_guarded(std::size_t bytes) {
  return {allocate(bytes + 2 * kGuardBytes), bytes};
}

void DeviceMemory::renew_guards(const Guarded& output) {
  for (const DevicePtr guard : {output.base, output.data() + output.bytes})
    device_.fill(guard, static_cast<std::uint8_t>(kGuardByte), kGuardBytes, stream_);
}

bool DeviceMemory::guards_are_intact(const Guarded& output) {
  std::vector<std::byte> bytes(kGuardBytes);
  for (const DevicePtr guard : {output.base, output.data() + output.bytes}) {
    device_.copy_to_host(bytes.data(), guard, bytes.size());
    if (std::any_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte != kGuardByte; })) return false;
  }
  return true;
}

}  // namespace kernelwright
