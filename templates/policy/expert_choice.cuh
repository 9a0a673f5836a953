/// A token's experts: a warp has the logits of all of them, and chooses the largest one after another.
///
/// Values are compared as integers of the same order. NaN is below all numbers, and 0 stands for an expert that cannot
/// be chosen. Lanes are in the order of their experts. So the lowest lane that has the largest value, and in it the
/// first expert, is the lowest expert.
#pragma once

#include "contract/route.h"
#include "policy/head_vector.cuh"
#include "tile/element_run.cuh"

namespace kernelwright::policy {

enum : uint32_t { kNoRank = 0, kRankOfNan = 1 };

/// An integer above 1 in the order of the values, which are no NaN. Both zeros have one.
__device__ __forceinline__ uint32_t rank_of_number(float value) {
  const int32_t bits = __float_as_int(value + 0.f);
  return static_cast<uint32_t>(bits) ^ (static_cast<uint32_t>(bits >> 31) | 0x80000000u);
}
/// The same for any value.
__device__ __forceinline__ uint32_t rank_of(float value) { return value != value ? kRankOfNan : rank_of_number(value); }

/// Fewer lanes than 32: each of these neighbouring lanes gets the largest value of all of them.
template <int kLanes>
__device__ __forceinline__ float largest_of_lanes(float value) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// The lane with the largest rank; among equal ones the lowest.
__device__ __forceinline__ int lane_of_largest(uint32_t rank) {
  return __ffs(static_cast<int>(__ballot_sync(kAllLanes, rank == __reduce_max_sync(kAllLanes, rank)))) - 1;
}

/// kExperts experts in kGroups groups of neighbours; each group has whole lanes.
template <int kExperts, int kGroups>
class ExpertChoice {
 public:
  enum : int {
    kOfGroup = kExperts / kGroups,
    kLanes = contract::lanes_of_group(kGroups),  // that share a group
    kOwn = contract::experts_of_lane(kExperts, kGroups)
  };

  /// The expert of a lane's i-th value.
  static __device__ __forceinline__ int expert_of(int lane, int i) {
    return lane / kLanes * kOfGroup + lane % kLanes * kOwn + i;
  }
  static __device__ __forceinline__ bool has(int lane, int i) {
    return lane / kLanes < kGroups && lane % kLanes * kOwn + i < kOfGroup;
  }

  __device__ __forceinline__ explicit ExpertChoice(const float (&values)[kOwn]) : lane_(threadIdx.x % 32) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) rank_[i] = has(lane_, i) ? rank_of(values[i]) : kNoRank;
  }

  /// Leaves only experts of the kPicked groups with the largest scores: of two groups alike, the lower one.
  template <int kPicked, bool kSumsTwo>
  __device__ __forceinline__ void pick_groups(const float (&values)[kOwn]) {
    uint32_t rank = rank_of(score_of_group<kSumsTwo>(values));
    if (lane_ % kLanes != 0 || lane_ / kLanes >= kGroups) rank = kNoRank;
    const int leader = lane_ / kLanes * kLanes;
    bool picked = false;
#pragma unroll
    for (int i = 0; i < kPicked; ++i) {
      const int winner = lane_of_largest(rank);
      if (lane_ == winner) rank = kNoRank;
      picked |= leader == winner;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) rank_[i] = picked ? rank_[i] : kNoRank;
  }

  /// Lane i gets the i-th of the kCount largest experts, and so does each lane that lanes_of_slots() or a multiple of
  /// it is away; the other lanes -1.
  template <int kCount>
  __device__ __forceinline__ int largest() {
    int chosen = -1, at = 0;
    uint32_t best = best_of_lane(at);
#pragma unroll 1
    for (int slot = 0; slot < kCount; ++slot) {
      const int winner = lane_of_largest(best);
      const int expert = expert_of(winner, __shfl_sync(kAllLanes, at, winner));
      if (lane_ % contract::lanes_of_slots(kCount) == slot) chosen = expert;
      if (lane_ == winner) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) rank_[i] = i == at ? kNoRank : rank_[i];
        best = best_of_lane(at);
      }
    }
    return chosen;
  }

 private:
  __device__ __forceinline__ uint32_t best_of_lane(int& at) const {
    uint32_t best = rank_[0];
    at = 0;
#pragma unroll
    for (int i = 1; i < kOwn; ++i) {
      if (rank_[i] > best) best = rank_[i], at = i;
    }
    return best;
  }

  /// The sum of the two largest values of the lane's group, or the largest. NaN counts as minus infinity.
  template <bool kSumsTwo>
  __device__ __forceinline__ float score_of_group(const float (&values)[kOwn]) const {
    float first = ptx::minus_infinity(), second = first;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float value = has(lane_, i) && values[i] == values[i] ? values[i] : ptx::minus_infinity();
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, first, distance);
      const float other_second = __shfl_xor_sync(kAllLanes, second, distance);
      second = fmaxf(fminf(first, other), fmaxf(second, other_second));
      first = fmaxf(first, other);
    }
    return kSumsTwo && kOfGroup > 1 ? first + second : first;
  }

  const int lane_;
  uint32_t rank_[kOwn];
};

}  // namespace kernelwright::policy
