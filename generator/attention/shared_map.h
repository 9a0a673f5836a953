/// The regions of an attention kernel's memory, and the roles of its warps.
#pragma once

#include <vector>

#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// Regions by offset; regions that overlap others come last.
std::vector<SharedRegion> shared_map(const AttentionSpec& spec);
TensorMemoryMap tensor_memory_map(const AttentionSpec& spec);

/// The roles of the kernel's warps, in the order of warps.
std::vector<KernelRole> roles(const AttentionSpec& spec);

}  // namespace kernelwright
