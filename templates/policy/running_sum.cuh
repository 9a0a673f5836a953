/// Sums along the lanes of a warp.
#pragma once

namespace kernelwright::policy {

/// The sum of `own` over the lanes up to this one, which is `lane`. All lanes take part.
__device__ __forceinline__ int running_sum(int own, int lane) {
  int sum = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = __shfl_up_sync(0xffffffff, sum, distance);
    if (lane >= distance) sum += below;
  }
  return sum;
}

}  // namespace kernelwright::policy
