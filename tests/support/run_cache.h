/// The cache of a test run: scripts/test.sh makes it anew, and names it in $KERNELWRIGHT_CACHE_DIR. Half of what tests
/// of whole kernels do is to compile, and several processes want the same kernels.
#pragma once

#include <cstdlib>
#include <string>

#include "kernelwright/runtime/cache/options.h"

namespace kernelwright::test {

/// Options of a cache in the run's directory; of a cache in memory alone if the run has none. Kernels that are not made
/// as the engine makes them lie in a `folder` of their own, because keys do not tell them apart. "" is the engine's.
inline CacheOptions cache_of_run(const std::string& folder = {}) {
  CacheOptions options;
  const char* const of_run = std::getenv("KERNELWRIGHT_CACHE_DIR");
  if (of_run)
    options.directory = folder.empty() ? std::string(of_run) : std::string(of_run) + "/" + folder;
  else
    options.disk = false;
  return options;
}

}  // namespace kernelwright::test
