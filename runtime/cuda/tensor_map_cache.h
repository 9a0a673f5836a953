/// Tensor maps by request: to encode one takes 157 ns, and a launch may need four. The table is bounded, because
/// addresses vary.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

struct Driver;

/// Throws DeviceError that describes the request; MissingError if the driver is older than 12.0.
TensorMap encode_tensor_map(const Driver& driver, const TensorMapRequest& request);

/// A direct-mapped table: a request with the slot of another one replaces it. Safe from any number of threads.
class TensorMapCache {
 public:
  static constexpr std::size_t kSlots = 512;

  TensorMapCache() : slots_(std::make_unique<Slot[]>(kSlots)) {}
  bool find(const TensorMapRequest& request, TensorMap& map) const;
  void insert(const TensorMapRequest& request, const TensorMap& map);

 private:
  struct Slot {
    bool used = false;
    TensorMapRequest request;
    TensorMap map;
  };
  static constexpr std::size_t kLocks = 16;  // slot s is guarded by lock s % kLocks

  std::unique_ptr<Slot[]> slots_;
  mutable std::array<std::mutex, kLocks> locks_;
};

}  // namespace kernelwright
