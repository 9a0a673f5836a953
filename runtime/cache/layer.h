/// A place that may have binaries. CubinCache asks it between its memory and the compiler. Directories and bundles are
/// layers, and so is a server that hosts share.
#pragma once

#include <optional>
#include <string>

#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/binary/cache_key.h"

namespace kernelwright {

/// Any number of threads may call a layer at once. Calls throw nothing and return in bounded time. A layer that cannot
/// answer reports that it has nothing.
class CacheLayer {
 public:
  virtual ~CacheLayer() = default;
  /// One line for people: the layer's name and state.
  virtual std::string status() const = 0;
  /// The binary of `key`, checked to be whole and of that key. A key without a compiler asks for a build of any
  /// compiler: among those that the layer has, the same one on every machine.
  virtual std::optional<Binary> find(const CacheKey& key) = 0;
};

}  // namespace kernelwright
