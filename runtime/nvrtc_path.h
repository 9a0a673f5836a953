/// Where NVRTC is on this machine, without loading it.
#pragma once

#include <optional>
#include <string>

namespace kernelwright {

/// The path of libnvrtc, or nothing: $KERNELWRIGHT_NVRTC, $CUDA_HOME, the usual places.
std::optional<std::string> find_nvrtc();

}  // namespace kernelwright
