/// Which build of NVRTC a file is, without loading it.
#pragma once

#include <optional>
#include <string>

namespace kernelwright {

/// The build ids of NVRTC at `nvrtc_path` and of its builtins; nothing if it is not there.
std::optional<std::string> compiler_identity(const std::string& nvrtc_path);

}  // namespace kernelwright
