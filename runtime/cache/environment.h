/// What the environment tells a cache whose options say nothing.
#pragma once

#include <string>
#include <vector>

namespace kernelwright {

/// The cache directory that $KERNELWRIGHT_CACHE_DIR, $XDG_CACHE_HOME or $HOME names. If none does, "" and `reason`.
std::string directory_of_environment(std::string& reason);

/// The paths of `given`; if there are none, those that the environment's variable separates by colons.
std::vector<std::string> paths_or_environment(const std::vector<std::string>& given, const char* variable);

/// `given`; if it is "", the value of the environment's variable, or "".
std::string text_or_environment(const std::string& given, const char* variable);

}  // namespace kernelwright
