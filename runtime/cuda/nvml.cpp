#include "kernelwright/runtime/cuda/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <map>
#include <memory>
#include <mutex>

namespace kernelwright {
namespace {

// The names that we use of NVML's C interface (NVML API reference, "Device Queries"). They are declared here,
// because not every toolkit has its header.
using NvmlDevice = struct NvmlDeviceOpaque*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlClockSm = 1;

/// NVML's reasons for a clock below the highest, "NvmlClocksEventReasons".
struct Limit {
  unsigned long long bit;
  const char* words;
  bool is_fault;  // the GPU cannot keep a clock that its power allows
};
constexpr Limit kLimits[] = {
    {0x2, "clock setting", false}, {0x4, "power cap", false},        {0x8, "hardware slowdown", true},
    {0x10, "sync boost", false},   {0x20, "thermal slowdown", true}, {0x40, "hardware thermal slowdown", true},
    {0x80, "power brake", true},   {0x100, "display clock", false},
};

struct Nvml {
  int (*init)() = nullptr;
  int (*device_by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;        // may be missing
  int (*limits)(NvmlDevice, unsigned long long*) = nullptr;  // may be missing
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
    find(uuid, "nvmlDeviceGetUUID");
    // Drivers before 535 have the older name alone.
    if (!find(limits, "nvmlDeviceGetCurrentClocksEventReasons"))
      find(limits, "nvmlDeviceGetCurrentClocksThrottleReasons");
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

std::optional<GpuReading> nvml_reading(const std::string& pci_bus_id, const std::string& path) {
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
  GpuReading reading{.sm_clock_mhz = static_cast<int>(mhz), .uuid = {}, .limits = {}, .slowdowns = {}};
  char uuid[96] = {};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
  if (nvml.uuid && nvml.uuid(device, uuid, sizeof uuid - 1) == kNvmlSuccess) reading.uuid = uuid;
  unsigned long long bits = 0;
  if (nvml.limits && nvml.limits(device, &bits) == kNvmlSuccess)
    for (const Limit& limit : kLimits) {
      if (!(bits & limit.bit)) continue;
      reading.limits.push_back(limit.words);
      if (limit.is_fault) reading.slowdowns.push_back(limit.words);
    }
  return reading;
}

}  // namespace kernelwright
