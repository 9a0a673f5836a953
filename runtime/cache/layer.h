/// A place that may have binaries: what CubinCache asks between its memory and the compiler. Directories are layers;
/// packs and remote caches can be.
#pragma once

#include <optional>
#include <string>

#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/binary/cache_key.h"

namespace kernelwright {

/// Any number of threads may call a layer at once. Calls throw nothing and return in bounded time: a layer that cannot
/// answer has nothing.
class CacheLayer {
 public:
  virtual ~CacheLayer() = default;
  /// One line for people: which it is, and its state.
  virtual std::string status() const = 0;
  /// The binary of `key`, proven whole and of that key. A key without a compiler asks for the newest of any compiler.
  virtual std::optional<Binary> find(const CacheKey& key) = 0;
};

}  // namespace kernelwright
