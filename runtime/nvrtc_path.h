/// Where NVRTC is on this machine, and which build it is, without loading it.
#pragma once

#include <string>

namespace kernelwright {

/// Path of the NVRTC to use, or "" if there is none: $KERNELWRIGHT_NVRTC, $CUDA_HOME, the usual places.
std::string find_nvrtc();

/// The build ids of NVRTC at `path` and of its builtins; "" if `path` is.
std::string compiler_identity(const std::string& path);

}  // namespace kernelwright
