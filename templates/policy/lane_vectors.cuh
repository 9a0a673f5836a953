/// Which vectors of a head a lane has: up to two, of 8 elements each.
#pragma once

#include "policy/either.cuh"
#include "policy/head_vector.cuh"

namespace kernelwright::policy {

/// Vector kBegin + i and vector kBegin + kApart + i, for i below kApart, lie in lane i: a rotation needs no other
/// lane. Vectors that are left over go to the lanes behind, in their order: first the first vectors of all lanes, and
/// then the second ones. `lane` counts among the lanes that share the head.
template <int kHeadDim, int kBegin, int kApart>
struct LaneVectors {
  enum : int {
    kDistance = kApart,
    kCount = kHeadDim / kLaneElements,
    kLeft = kCount - 2 * kDistance,  // -1 where the last lane has one vector
    kHalfOfLeft = kLeft > 0 ? (kLeft + 1) / 2 : 0
  };

  /// Which vector of the head is the lane's i-th. It exists if has() says so.
  static __device__ __forceinline__ int at(int lane, int i) {
    if (kLeft <= 0 || lane < kDistance) return kBegin + i * kDistance + lane;
    const int left = lane - kDistance + i * kHalfOfLeft;
    return left < kBegin ? left : left + 2 * kDistance;
  }
  template <int kLanes>
  static __device__ __forceinline__ bool has(int lane, int i) {
    if constexpr (kCount == 2 * kLanes) return true;
    if constexpr (kLeft <= 0) return lane < kDistance && lane + i * kDistance < kCount;
    const int behind = lane - kDistance;
    return behind < kHalfOfLeft && (behind < 0 || behind + i * kHalfOfLeft < kLeft);
  }
  /// The lane that has a vector of the head, and which of its two it is.
  static __device__ __forceinline__ int lane_of(int vector) {
    const int turning = vector - kBegin;
    if (kLeft <= 0 || (turning >= 0 && turning < 2 * kDistance)) return turning % kDistance;
    return kDistance + place_behind(vector) % kHalfOfLeft;
  }
  static __device__ __forceinline__ int index_of(int vector) {
    const int turning = vector - kBegin;
    if (kLeft <= 0 || (turning >= 0 && turning < 2 * kDistance)) return turning / kDistance;
    return place_behind(vector) / kHalfOfLeft;
  }

 private:
  static __device__ __forceinline__ int place_behind(int vector) {
    return vector < kBegin ? vector : vector - 2 * kDistance;
  }
};

/// From the vectors that a lane reads to those that it computes, and back. Reading, 2 kLanes lanes side by side have a
/// head, so that whole heads are moved at once: a lane has a vector of one head and one of another. Computing, kLanes
/// lanes have a head: a lane has two vectors of it. `upper`: whether the lane is in the upper half of those that read a
/// head. Every lane of the warp calls it.
template <int kLanes, int kWords>
__device__ __forceinline__ void exchange(bool upper, uint32_t* first, uint32_t* second) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, upper ? first[i] : second[i], kLanes);
    first[i] = upper ? other : first[i];
    second[i] = upper ? second[i] : other;
  }
}

/// Moves the vectors of a head from the lanes where kFrom has them to those where kTo does. Every lane of the warp
/// calls it. `leader`: the first lane of the head in the warp. Vectors that a lane lacks become 0.
template <int kLanes, class From, class To>
__device__ __forceinline__ void deal_again(HeadVector (&x)[2], int leader, int lane) {
  HeadVector dealt[2];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    const bool has = To::template has<kLanes>(lane, v);
    const int vector = has ? To::at(lane, v) : 0;
    const int from = leader + From::lane_of(vector), index = From::index_of(vector);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      const float first = __shfl_sync(kAllLanes, x[0][i], from), second = __shfl_sync(kAllLanes, x[1][i], from);
      dealt[v][i] = !has ? 0.f : index == 0 ? first : second;
    }
  }
#pragma unroll
  for (int v = 0; v < 2; ++v)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[v][i] = dealt[v][i];
}

}  // namespace kernelwright::policy
