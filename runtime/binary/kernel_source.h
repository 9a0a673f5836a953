/// What a compiler makes a Binary of, and the key under which that is kept. Made once for a Spec and handed on.
#pragma once

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/binary/cache_key.h"

namespace kernelwright {

struct KernelSource {
  SourceUnit unit;
  CacheKey key;  // of `unit` with the compiler of this machine
};

}  // namespace kernelwright
