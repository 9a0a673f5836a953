/// The source that a compiler turns into a Binary, and the key of that Binary. It is made once for a Spec and passed
/// on.
#pragma once

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/binary/cache_key.h"

namespace kernelwright {

struct KernelSource {
  SourceUnit unit;
  CacheKey key;  // of `unit` with the compiler of this machine
};

}  // namespace kernelwright
