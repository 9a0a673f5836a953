/// Binaries loaded onto devices. Each is loaded once per device, and kept until the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/process/latency.h"

namespace kernelwright {

/// Safe from any number of threads. Loads onto one device take turns, because a driver would make them wait anyway.
class KernelLoader {
 public:
  /// What a device that takes PTX gets with it.
  struct Explained {
    KernelNotes notes;
    std::function<std::string()> lined_ptx;  // as KernelImage::lined_ptx
  };
  using Explain = std::function<Explained()>;

  /// `binary` on `device`, loaded if it is not yet, in the form that the device takes. The entry's name has the Spec's
  /// digest, so it tells binaries apart. `explain` is called if PTX is loaded. Throws DeviceError, also for a binary
  /// that lacks that form; a later call tries again.
  const LoadedKernel* load(Device& device, const Binary& binary, std::uint32_t max_shared_bytes,
                           const Explain& explain = {});

  /// The same if it is loaded already, else null. Never calls the driver.
  const LoadedKernel* find(const Device& device, const std::string& entry) const;

  LatencySnapshot latency() const { return latency_.snapshot(); }  // of the load itself, not of the wait for a turn
  std::uint64_t loads() const { return loads_.load(std::memory_order_relaxed); }
  std::uint64_t loaded_bytes() const { return loaded_bytes_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;  // guards the two maps; never held over a driver call
  std::map<int, std::mutex> loading_;
  std::map<std::pair<int, std::string>, std::unique_ptr<LoadedKernel>> kernels_;
  LatencyHistogram latency_{kFirstStepNs};
  std::atomic<std::uint64_t> loads_{0}, loaded_bytes_{0};
};

}  // namespace kernelwright
