/// The online softmax of two warpgroups that have the same rows and take turns at their key tiles. Each of them sums
/// the exponentials of its own tiles. Both follow one maximum of each row: a warpgroup adopts the other's maximum
/// before it goes on, and so sums and outputs of both stay relative to the same number.
#pragma once

#include "policy/row_softmax.cuh"

namespace kernelwright::policy {

template <Rescale kRescale>
class SharedSoftmax : public RowSoftmax<kRescale, 0> {
  using Own = RowSoftmax<kRescale, 0>;

 public:
  /// Goes on from the maxima that the other warpgroup has reached. They are those of this one, or larger. Afterwards
  /// rescale() brings the output along.
  template <class Scale>
  __device__ __forceinline__ void adopt(const float (&maximum)[2], Scale scale) {
    const auto grown = [&](int r) { return maximum[r] > this->maximum[r]; };
    this->moved = __any_sync(0xffffffff, grown(0) || grown(1));
    if (!this->moved) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      this->factor[r] = grown(r) ? ptx::ex2_approx_ftz((this->maximum[r] - maximum[r]) * scale_of(scale, r)) : 1;
      if (grown(r)) this->maximum[r] = maximum[r];
      this->sum[r] *= this->factor[r];
    }
  }
};

}  // namespace kernelwright::policy
