/// What lies where in the memory of a GEMM kernel, and what its warps do.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// By offset, but regions that overlap others come last.
std::vector<SharedRegion> shared_map(const GemmSpec& spec);
TensorMemoryMap tensor_memory_map(const GemmSpec& spec);

/// Its warps' roles, in the order of warps.
std::vector<KernelRole> roles(const GemmSpec& spec);
/// The warps or CTAs that work on a tile, in a few words: "2 cooperative".
std::string workers_text(const GemmSpec& spec);

}  // namespace kernelwright
