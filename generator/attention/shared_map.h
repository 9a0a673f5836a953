/// What lies where in the memory of an attention kernel, and what its warps do.
#pragma once

#include <vector>

#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// By offset, but regions that overlap others come last.
std::vector<SharedRegion> shared_map(const AttentionSpec& spec);
TensorMemoryMap tensor_memory_map(const AttentionSpec& spec);

/// Its warps' roles, in the order of warps.
std::vector<KernelRole> roles(const AttentionSpec& spec);

}  // namespace kernelwright
