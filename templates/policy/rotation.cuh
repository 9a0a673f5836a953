/// RoPE of the two vectors of a head that a lane has: the cosines and sines of its elements, from a table in f32, and
/// the rotation. They are read once for a token, and serve all of its heads.
#pragma once

#include "policy/cache_place.cuh"
#include "policy/head_vector.cuh"

namespace kernelwright::policy {

/// Which elements turn, and by which stream of positions. Vectors (policy/lane_vectors.cuh) has an element and its
/// partner in one lane. kLanes: those that share a head.
template <RopeStyle kStyle, int kWidth, int kBegin, int kFirst, int kSecond, int kThird, bool kInterleaved,
          class Vectors, int kLanes>
class Rotation {
  enum : int {
    kPairs = kWidth / 2,
    kAngles = kLaneElements,  // pairs of a lane
    kStreams = kFirst + kSecond + kThird > 0 ? 3 : 1
  };
  static constexpr bool kNeox = kStyle == RopeStyle::kNeox;
  static constexpr bool kAllTurn = kBegin == 0 && kWidth == 2 * kLanes * kLaneElements;
  // neox: the pairs of both vectors are neighbours in the table. gptj: those of each vector are.
  static constexpr int kRuns = kNeox ? 1 : 2, kOfRun = kAngles / kRuns;

 public:
  /// Comes before load_angles(), which waits for it.
  __device__ __forceinline__ void load_positions(const contract::KvWriteParams& params, int64_t token) {
#pragma unroll
    for (int i = 0; i < kStreams; ++i) positions_[i] = load_position(params, i * int64_t{params.tokens} + token);
  }

  /// `lane`: among those that share a head.
  __device__ __forceinline__ void load_angles(const contract::KvWriteParams& params, int lane) {
    const float* rows[kStreams];
#pragma unroll
    for (int i = 0; i < kStreams; ++i) rows[i] = row_of(params, value_of(params, positions_[i]));
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      // Counted from the first lane, or the first vector, whose elements turn.
      const int turning = kNeox ? lane : Vectors::at(lane, run) - kBegin / kLaneElements;
      turns_[run] = kAllTurn || (turning >= 0 && turning < kPairs / kOfRun);
      if (turns_[run]) load_run(rows, turning * kOfRun, cos_ + run * kOfRun, sin_ + run * kOfRun);
    }
  }

  __device__ __forceinline__ void apply(HeadVector (&x)[2]) const {
    if constexpr (kNeox) {
      if (!turns_[0]) return;
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) turn(x[0][i], x[1][i], i);
    } else {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        if (!turns_[v]) continue;
#pragma unroll
        for (int i = 0; i < kOfRun; ++i) turn(x[v][2 * i], x[v][2 * i + 1], v * kOfRun + i);
      }
    }
  }

 private:
  __device__ __forceinline__ void turn(float& first, float& second, int pair) const {
    const float a = first, b = second;
    first = fmaf(a, cos_[pair], -b * sin_[pair]);
    second = fmaf(b, cos_[pair], a * sin_[pair]);
  }
  /// The cosines and sines of kOfRun pairs from `first` on.
  __device__ __forceinline__ static void load_run(const float* const (&rows)[kStreams], int first, float* cosines,
                                                  float* sines) {
    if constexpr (kStreams > 1) {
#pragma unroll
      for (int i = 0; i < kOfRun; ++i) {
        const int stream = stream_of(first + i);
        const float* const row = stream == 0 ? rows[0] : stream == 1 ? rows[1] : rows[2];
        cosines[i] = ptx::ld_global_f32(row + first + i);
        sines[i] = ptx::ld_global_f32(row + kPairs + first + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOfRun; i += 4) {
        load_four(cosines + i, rows[0] + first + i);
        load_four(sines + i, rows[0] + kPairs + first + i);
      }
    }
  }
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
  float cos_[kAngles] = {}, sin_[kAngles] = {};
  bool turns_[kRuns] = {};
};

}  // namespace kernelwright::policy
