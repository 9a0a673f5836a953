/// Which work items a persistent CTA takes, and in what order. Every role of the CTA walks the same list by itself.
#pragma once

#include "contract/spec_words.h"

namespace kernelwright::policy {

/// Items in laps of one per CTA. `kLongestFirst` reverses every other lap: items come longest first (TileCoord), so a
/// CTA that had the longest of one lap has the shortest of the next, and all end together without a counter in memory.
template <Scheduler kScheduler>
class ItemWalk {
  unsigned first_ = blockIdx.x;  // of the lap
  bool back_ = false;

 public:
  __device__ unsigned item() const { return first_; }
  __device__ void advance() {
    if constexpr (kScheduler == Scheduler::kGrid) {
      first_ = 0xffffffff;
    } else if constexpr (kScheduler == Scheduler::kLongestFirst) {
      // Place b of one lap is place grid - 1 - b of the next.
      first_ += back_ ? 1 + 2 * blockIdx.x : 2 * (gridDim.x - blockIdx.x) - 1;
      back_ = !back_;
    } else {
      first_ += gridDim.x;
    }
  }
};

}  // namespace kernelwright::policy
