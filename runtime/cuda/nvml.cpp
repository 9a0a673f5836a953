#include "kernelwright/runtime/cuda/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <map>
#include <memory>
#include <mutex>

namespace kernelwright {
namespace {

// The four names that we use of NVML's C interface (NVML API reference, "Device Queries"). They are declared here,
// because not every toolkit has its header.
using NvmlDevice = struct NvmlDeviceOpaque*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlClockSm = 1;

struct Nvml {
  int (*init)() = nullptr;
  int (*device_by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  bool usable = false;

  explicit Nvml(const std::string& path) {
    // Never closed: other libraries of the process may share it.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const auto find = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
      return call != nullptr;
    };
    usable = find(init, "nvmlInit_v2") && find(device_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2") &&
             find(clock, "nvmlDeviceGetClockInfo") && init() == kNvmlSuccess;
  }
};

const Nvml& opened(const std::string& path) {
  static std::mutex mutex;
  static auto& libraries = *new std::map<std::string, std::unique_ptr<Nvml>>;  // never destroyed: as the libraries
  const std::lock_guard lock(mutex);
  std::unique_ptr<Nvml>& library = libraries[path];
  if (!library) library = std::make_unique<Nvml>(path);
  return *library;
}

}  // namespace

std::optional<int> nvml_sm_clock_mhz(const std::string& pci_bus_id, const std::string& path) {
  std::string name = path;
  if (name.empty())
    if (const char* chosen = secure_getenv("KERNELWRIGHT_NVML")) name = chosen;
  if (name.empty()) name = "libnvidia-ml.so.1";
  const Nvml& nvml = opened(name);
  NvmlDevice device = nullptr;
  unsigned mhz = 0;
  if (!nvml.usable || nvml.device_by_bus_id(pci_bus_id.c_str(), &device) != kNvmlSuccess ||
      nvml.clock(device, kNvmlClockSm, &mhz) != kNvmlSuccess)
    return std::nullopt;
  return static_cast<int>(mhz);
}

}  // namespace kernelwright
