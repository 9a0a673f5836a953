/// A tensor map (CUtensorMap) as kernel parameters carry it.
#pragma once

namespace kernelwright::contract {

/// What the driver encoded; only cp.async.bulk.tensor reads it. A parameter of its own or part of one, in either case
/// __grid_constant__: the instruction takes its address.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace kernelwright::contract
