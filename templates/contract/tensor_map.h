/// A TMA tensor map. The device's backend encodes it; a kernel only passes its address to the copy unit.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// 128 opaque bytes, the layout of the driver's CUtensorMap. A kernel parameter of this type is __grid_constant__. In
/// global memory, the host writes it before the launch.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace kernelwright::contract
