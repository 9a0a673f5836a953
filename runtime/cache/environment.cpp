// secure_getenv everywhere: a set-user-id program must not write to a place, or take kernels from one, that its caller
// names.
#include "kernelwright/runtime/cache/environment.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace kernelwright {

std::string directory_of_environment(std::string& reason) {
  if (const char* named = secure_getenv("KERNELWRIGHT_CACHE_DIR"); named && *named) return named;
  if (const char* xdg = secure_getenv("XDG_CACHE_HOME"); xdg && *xdg == '/') return std::string(xdg) + "/kernelwright";
  if (const char* home = secure_getenv("HOME"); home && *home == '/') return std::string(home) + "/.cache/kernelwright";
  reason = "none of KERNELWRIGHT_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory";
  return {};
}

std::vector<std::string> paths_or_environment(const std::vector<std::string>& given, const char* variable) {
  if (!given.empty()) return given;
  std::vector<std::string> paths;
  const char* text = secure_getenv(variable);
  for (std::string_view rest = text ? text : ""; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) paths.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return paths;
}

std::string text_or_environment(const std::string& given, const char* variable) {
  if (!given.empty()) return given;
  const char* text = secure_getenv(variable);
  return text ? text : "";
}

}  // namespace kernelwright
