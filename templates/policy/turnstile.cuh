/// Parts of k that take turns at a tile. Each part is an item: the first part leaves its sums in the workspace, each
/// further part adds its sums, and the last part has the total. So the sums are added in the order of k, whichever part
/// is ready first, and results repeat to the bit.
///
/// A CTA (or cluster) takes its item when it begins. A part waits only for lower parts, and these have begun, in
/// whatever order the hardware launches CTAs. A turn is passed warp by warp: a thread's sums meet those of the same
/// thread of the other parts.
#pragma once

#include "contract/turnstile.h"
#include "ptx/atomic.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// The item of a CTA, or of a cluster; one thread asks for it.
__device__ __forceinline__ uint32_t take_item(const contract::TurnstileParams& params) {
  ptx::griddepcontrol_wait();  // a launch ahead may use the workspace
  return ptx::atom_add_relaxed_gpu_u32(params.begun, 1);
}

/// A warp's view of one of kParts parts.
template <int kParts>
class Turnstile {
 public:
  /// `turn`: this warp's word of the tile.
  __device__ __forceinline__ Turnstile(uint32_t* turn, int part) : turn_(turn), part_(part) {}

  __device__ __forceinline__ bool is_last() const { return part_ == kParts - 1; }

  /// Waits for the part before.
  __device__ __forceinline__ void wait() const {
    if (part_ == 0) return;
    if (threadIdx.x % 32 == 0)
      while (ptx::ld_acquire_gpu_u32(turn_) != static_cast<uint32_t>(part_)) {
      }
    __syncwarp();
  }
  /// Passes the turn to the next part.
  __device__ __forceinline__ void pass() const {
    if (is_last()) return;
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::st_release_gpu_u32(turn_, static_cast<uint32_t>(part_) + 1);
  }
  /// Adds the sums of the parts before to the thread's sums, and leaves the result for the next part. It works in
  /// fours, from `at` on and `step` elements apart.
  template <int kCount>
  __device__ __forceinline__ void exchange(float (&own)[kCount], float* at, int step) const {
    static_assert(kCount % 4 == 0);
    if (part_ > 0) {
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        float before[4];
        ptx::ld_global_cg(before, at + i / 4 * step);
#pragma unroll
        for (int j = 0; j < 4; ++j) own[i + j] = before[j] + own[i + j];
      }
    }
    if (is_last()) return;
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      ptx::st_global_v4(at + i / 4 * step, {__float_as_uint(own[i]), __float_as_uint(own[i + 1]),
                                            __float_as_uint(own[i + 2]), __float_as_uint(own[i + 3])});
  }

 private:
  uint32_t* const turn_;
  const int part_;
};

}  // namespace kernelwright::policy
