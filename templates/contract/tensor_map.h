/// A TMA tensor map: the device's backend encodes it, a kernel only hands its address to the copy unit.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// 128 opaque bytes, the layout of the driver's CUtensorMap. As a kernel parameter it is __grid_constant__; in global
/// memory it is written by the host before the launch.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace kernelwright::contract
