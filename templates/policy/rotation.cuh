/// RoPE of a lane's part of a head: the cosines and sines of its elements, from a table in f32, and the rotation. They
/// are read once for a token, and serve all of its heads.
#pragma once

#include "policy/cache_place.cuh"
#include "policy/head_vector.cuh"

namespace kernelwright::policy {

/// Which elements turn, and by which stream of positions. kHeadElements: of all lanes that share a head.
template <RopeStyle kStyle, int kWidth, int kBegin, int kFirst, int kSecond, int kThird, bool kInterleaved,
          int kHeadElements>
class Rotation {
  static constexpr bool kNeox = kStyle == RopeStyle::kNeox;
  static constexpr bool kSections = kFirst + kSecond + kThird > 0;
  static constexpr bool kAllTurn = kBegin == 0 && kWidth == kHeadElements;
  static constexpr int kPairs = kWidth / 2;
  static constexpr int kAngles = kNeox ? kLaneElements : kLaneElements / 2;  // pairs of which a lane has an element
  static constexpr int kStreams = kSections ? 3 : 1;
  static constexpr int kHalfChunks = kPairs / kLaneElements;  // neox: lanes from an element to its partner

 public:
  /// Comes before load_angles(), which waits for it.
  __device__ __forceinline__ void load_positions(const contract::KvWriteParams& params, int64_t token) {
#pragma unroll
    for (int i = 0; i < kStreams; ++i) positions_[i] = load_position(params, i * int64_t{params.tokens} + token);
  }

  /// `chunk`: which part of a head this lane has.
  __device__ __forceinline__ void load_angles(const contract::KvWriteParams& params, int chunk) {
    const int turning = chunk - kBegin / kLaneElements;  // counted from the first lane whose elements turn
    turns_ = kAllTurn || (turning >= 0 && turning < kWidth / kLaneElements);
    low_ = turning < kHalfChunks;
    if (!turns_) return;
    const int first = kNeox ? (low_ ? turning : turning - kHalfChunks) * kLaneElements : turning * kAngles;
    const float* rows[kStreams];
#pragma unroll
    for (int i = 0; i < kStreams; ++i) rows[i] = row_of(params, value_of(params, positions_[i]));
    if constexpr (kSections) {
#pragma unroll
      for (int i = 0; i < kAngles; ++i) {
        const int stream = stream_of(first + i);
        const float* const row = stream == 0 ? rows[0] : stream == 1 ? rows[1] : rows[2];
        cos_[i] = ptx::ld_global_f32(row + first + i);
        sin_[i] = ptx::ld_global_f32(row + kPairs + first + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kAngles; i += 4) {
        load_four(cos_ + i, rows[0] + first + i);
        load_four(sin_ + i, rows[0] + kPairs + first + i);
      }
    }
    if constexpr (kNeox) {
#pragma unroll
      for (float& sine : sin_) sine = low_ ? -sine : sine;
    }
  }

  /// Every lane of the warp calls it.
  __device__ __forceinline__ void apply(HeadVector& x, int lane) const {
    if constexpr (kNeox) {
      const int partner = turns_ ? (low_ ? lane + kHalfChunks : lane - kHalfChunks) : lane;
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) {
        const float across = __shfl_sync(kAllLanes, x[i], partner) * sin_[i];
        if (turns_) x[i] = fmaf(x[i], cos_[i], across);
      }
    } else {
      if (!turns_) return;
#pragma unroll
      for (int i = 0; i < kAngles; ++i) {
        const float even = x[2 * i], odd = x[2 * i + 1];
        x[2 * i] = fmaf(even, cos_[i], -odd * sin_[i]);
        x[2 * i + 1] = fmaf(odd, cos_[i], even * sin_[i]);
      }
    }
  }

 private:
  __device__ static int stream_of(int pair) {
    if constexpr (kInterleaved) {
      const int turn = pair % 3;
      return turn == 1 && pair < 3 * kSecond ? 1 : turn == 2 && pair < 3 * kThird ? 2 : 0;
    }
    return pair < kFirst ? 0 : pair < kFirst + kSecond ? 1 : 2;
  }
  __device__ static const float* row_of(const contract::KvWriteParams& params, int64_t position) {
    const int64_t last = params.cos_sin_rows - 1;
    const int64_t row = position < 0 ? 0 : position > last ? last : position;
    return params.cos_sin + row * kWidth;
  }
  __device__ static void load_four(float* to, const float* from) {
    const ptx::Vector16 four = ptx::ld_global_v4(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(four.word[i]);
  }

  Position positions_[kStreams];
  float cos_[kAngles] = {}, sin_[kAngles] = {};  // neox: with the sign of the partner's share
  bool turns_ = false, low_ = false;
};

}  // namespace kernelwright::policy
