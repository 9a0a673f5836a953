/// The online softmax of two warpgroups that have the same rows and take turns at their key tiles. Each of them sums
/// the exponentials of its own tiles. Both follow one maximum of each row: a warpgroup adopts the other's maximum
/// before it goes on, and so sums and outputs of both stay relative to the same number.
#pragma once

#include "policy/row_softmax.cuh"

namespace kernelwright::policy {

template <Rescale kRescale>
class SharedSoftmax : public RowSoftmax<kRescale, 0> {
  float later_[2];    // factor for O between the products of two tiles, if `moves_later_`
  bool moves_later_;  // the same in all lanes of a warp

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
      this->factor[r] = grown(r) ? between(this->maximum[r], maximum[r], scale, r) : 1;
      if (grown(r)) this->maximum[r] = maximum[r];
      this->sum[r] *= this->factor[r];
    }
  }

  /// The same where this warpgroup has already turned its own tile, which comes behind the other's, into exponentials.
  /// `before`: the maxima ahead of that, which the output is relative to. They are at most `maximum`. Afterwards
  /// rescale() readies the output for the other's product, and rescale_later() for that of the own tile.
  template <int kCount, class Scale>
  __device__ __forceinline__ void join(const float (&before)[2], const float (&maximum)[2],
                                       float (&exponentials)[kCount], Scale scale) {
    const bool first = maximum[0] > before[0] || maximum[1] > before[1];
    const bool second = maximum[0] != this->maximum[0] || maximum[1] != this->maximum[1];
    this->moved = __any_sync(0xffffffff, first);
    moves_later_ = __any_sync(0xffffffff, second);
    if (!this->moved && !moves_later_) return;
    float own[2];  // factor for the own tile's exponentials
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      this->factor[r] = maximum[r] > before[r] ? between(before[r], maximum[r], scale, r) : 1;
      own[r] = maximum[r] > this->maximum[r] ? between(this->maximum[r], maximum[r], scale, r) : 1;
      later_[r] = this->maximum[r] > maximum[r] ? between(maximum[r], this->maximum[r], scale, r) : 1;
      this->maximum[r] = fmaxf(this->maximum[r], maximum[r]);
      this->sum[r] *= own[r];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) exponentials[i] *= own[i / 2 % 2];
  }
  template <int kCount>
  __device__ __forceinline__ void rescale_later(float (&output)[kCount]) const {
    if (!moves_later_) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) output[i] *= later_[i / 2 % 2];
  }

 private:
  /// 2^(from - to), in units of score; 0 if `from` is -inf. `to` is larger.
  template <class Scale>
  __device__ __forceinline__ static float between(float from, float to, Scale scale, int r) {
    return ptx::ex2_approx_ftz((from - to) * scale_of(scale, r));
  }
};

}  // namespace kernelwright::policy
