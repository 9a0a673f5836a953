/// What NVML, the driver's monitoring library, reports about a GPU. It is opened at the first call and never linked. On
/// a machine without it, the answer is "unknown".
#pragma once

#include <optional>
#include <string>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

/// The state, now, of the GPU with that PCI bus id ("0000:3b:00.0"). nullopt if there is no NVML, or if it knows no
/// such GPU or no clock. A library that does not tell the UUID or the limits leaves them empty. `path` "":
/// $KERNELWRIGHT_NVML, else libnvidia-ml.so.1. Safe from any number of threads; the first call opens the library.
std::optional<GpuReading> nvml_reading(const std::string& pci_bus_id, const std::string& path = {});

}  // namespace kernelwright
