/// What the four lanes of a quad share of the rows of a wgmma accumulator: row r of a lane has registers 4j + 2r + e.
#pragma once

namespace kernelwright::policy {

/// The largest score of each of the rows from kFirst to kEnd, the same in the four lanes of a quad, as
/// `then(row, score)` changes it.
template <int kFirst = 0, int kEnd = 2, int kCount, class Then>
__device__ __forceinline__ void largest_of_rows(const float (&scores)[kCount], float (&largest)[2], const Then& then) {
#pragma unroll
  for (int r = kFirst; r < kEnd; ++r) {
    // Two chains per row: one maximum takes as long as four independent instructions.
    float even = scores[2 * r], odd = scores[2 * r + 1];
#pragma unroll
    for (int j = 1; j < kCount / 4; ++j) {
      even = fmaxf(even, scores[4 * j + 2 * r]);
      odd = fmaxf(odd, scores[4 * j + 2 * r + 1]);
    }
    largest[r] = fmaxf(even, odd);
  }
#pragma unroll
  for (int r = kFirst; r < kEnd; ++r) largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffff, largest[r], 1));
#pragma unroll
  for (int r = kFirst; r < kEnd; ++r)
    largest[r] = then(r, fmaxf(largest[r], __shfl_xor_sync(0xffffffff, largest[r], 2)));
}

}  // namespace kernelwright::policy
