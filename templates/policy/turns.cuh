/// Warpgroups that take turns to issue their products (ping-pong): while the products of one warpgroup run, the others
/// compute exponentials.
#pragma once

#include "ptx/barrier.cuh"

namespace kernelwright::policy {

/// Named barrier kFirstBarrier + i is the turn of warpgroup i. Each wait meets one pass by the warpgroup before it. The
/// last warpgroup opens the first turn of the first warpgroup. The first warpgroup consumes the pass that is left over
/// at the end.
template <bool kOn, int kWarpgroups>
class Turns {
  static constexpr uint32_t kFirstBarrier = 1, kThreads = 256;  // the waiting and the passing threads
  static constexpr bool kActive = kOn && kWarpgroups > 1;
  uint32_t mine_;

 public:
  __device__ explicit Turns(uint32_t warpgroup) : mine_(warpgroup) {
    if (kActive && mine_ == kWarpgroups - 1) pass();
  }
  __device__ void wait() const {
    if constexpr (kActive) ptx::bar_sync(kFirstBarrier + mine_, kThreads);
  }
  __device__ void pass() const {
    if constexpr (kActive) ptx::bar_arrive(kFirstBarrier + (mine_ + 1 == kWarpgroups ? 0 : mine_ + 1), kThreads);
  }
  __device__ void finish() const {
    if (mine_ == 0) wait();
  }
};

}  // namespace kernelwright::policy
