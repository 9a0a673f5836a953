/// Makes the cuda backend from a chosen driver library. make_cuda_backend() of backend.h is what programs call.
#pragma once

#include <memory>
#include <string>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

struct Driver;  // driver.h

/// Opens the driver library at `path` and finds its entry points; it stays open for the life of the process.
/// `path` "": $KERNELWRIGHT_LIBCUDA, else libcuda.so.1. Throws MissingError with one sentence if there is none or it is
/// too old.
std::shared_ptr<const Driver> open_driver(const std::string& path);

/// The driver of open_driver(""), opened on first use. A failure is not remembered: the next call tries again.
std::shared_ptr<const Driver> shared_driver();

/// CUDA version of shared_driver(): "12.8". Throws MissingError if there is no driver.
std::string driver_version();

/// Throws MissingError if the driver sees no GPU.
std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<const Driver> driver);

}  // namespace kernelwright
