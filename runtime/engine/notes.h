/// What devices that explain themselves learn about our kernels.
#pragma once

#include "kernelwright/generator/source/spec.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

/// The roles of a kernel's warps, and its map of shared memory.
KernelNotes notes_of(const Spec& spec);

}  // namespace kernelwright
