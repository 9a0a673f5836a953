/// The regions of a GEMM kernel's memory, and the roles of its warps.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// Regions by offset; regions that overlap others come last.
std::vector<SharedRegion> shared_map(const GemmSpec& spec);
TensorMemoryMap tensor_memory_map(const GemmSpec& spec);

/// The roles of the kernel's warps, in the order of warps.
std::vector<KernelRole> roles(const GemmSpec& spec);
/// The warps or CTAs that work on a tile, in a few words: "2 cooperative".
std::string workers_text(const GemmSpec& spec);

}  // namespace kernelwright
