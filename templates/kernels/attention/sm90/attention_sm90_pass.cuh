/// What a math warpgroup of attention_sm90 does for an item that has none of its rows: it keeps step with the others.
#pragma once

#include "kernels/attention/sm90/attention_sm90_math.cuh"

namespace kernelwright {
namespace {

// These follow the order of a step: a warpgroup that waits to clean values together with the others must not hold a
// turn meanwhile.
__device__ __forceinline__ void MathWarpgroup::pass_keys() {
  tiles_.wait_whole_k();
  tiles_.release_whole_k();
}
__device__ __forceinline__ void MathWarpgroup::pass_values() {
  take_values<true>();
  tiles_.template wait_more_v<1>();
  tiles_.release_whole_v();
}
__device__ __forceinline__ void MathWarpgroup::pass_turn() {
  turns_.wait();
  turns_.pass();
}
__device__ __forceinline__ void MathWarpgroup::pass_tiles() {
#pragma unroll 1
  for (int tile = walk_.end - 2; tile >= walk_.begin; --tile) {
    pass_keys();
    pass_values();
    pass_turn();
  }
}

}  // namespace
}  // namespace kernelwright
