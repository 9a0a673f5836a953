/// A token's experts by a bound: the lanes' largest values give a bound that at least kCount experts reach, and few
/// more. Those experts are candidates, one of a lane. Each counts the candidates ahead of it, which is its place.
///
/// So a token takes kCount short steps and one exchange, where policy/expert_choice.cuh takes kCount long steps. The
/// order is the same: the larger value, and of equal ones the lower expert. Tokens with NaN, or with more candidates
/// than lanes, are left to that file.
#pragma once

#include "policy/expert_choice.cuh"
#include "ptx/barrier.cuh"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// The value that has the rank of a number; +0 for both zeros.
__device__ __forceinline__ float value_of_rank(uint32_t rank) {
  return __uint_as_float(static_cast<int32_t>(rank) < 0 ? rank ^ 0x80000000u : ~rank);
}

/// The largest of all lanes; NaN only if all are NaN. Of both zeros +0.
__device__ __forceinline__ float largest_of_warp(float value) {
  return value_of_rank(__reduce_max_sync(kAllLanes, rank_of(value)));
}

/// Of kExperts experts in kGroups groups, of which kPicked are picked first.
template <int kExperts, int kGroups, int kPicked, bool kSumsTwo, int kCount>
class BoundedChoice {
  using Deal = ExpertChoice<kExperts, kGroups>;
  enum : int { kOwn = Deal::kOwn, kLanes = Deal::kLanes };

 public:
  /// A warp's candidates, in shared memory: keys of 64 bits, then the chosen experts.
  struct alignas(16) Shared {
    uint64_t keys[32];
    int32_t experts[32];
  };

  /// Lanes get the experts that ExpertChoice::largest() gives them. Returns false for all lanes if the token is left to
  /// ExpertChoice. `shared`: the address of the warp's Shared.
  static __device__ __forceinline__ bool choose(const float (&values)[kOwn], uint32_t shared, int& expert) {
    const int lane = threadIdx.x % 32;
    const Largest largest = largest_two(values, lane);
    bool ordinary = largest.first == largest.first, picked = Deal::has(lane, 0);
    if constexpr (kGroups > 1) picked &= is_picked(largest, lane, ordinary);
    const uint32_t bound = bound_of(picked ? rank_of_number(largest.first) : kNoRank);
    // Below the bound may be experts of groups that are not picked, whose values are no smaller than minus infinity.
    if (!__all_sync(kAllLanes, ordinary) || bound <= kRankOfMinusInfinity) return false;

    const float least = picked ? value_of_rank(bound) : __uint_as_float(0x7fffffffu);  // NaN: no value reaches it
    int before = candidates_of_lane(values, least, lane);
    const int found = sum_over_lanes(before, lane);
    if (found > 32) return false;
    scatter(values, least, shared + before * kKeyBytes, lane);
    const uint64_t key = exchange(shared + lane * kKeyBytes, lane < found);
    const int place = candidates_ahead(shared, key, found);
    if (lane < found && place < kCount)
      ptx::st_shared_u32(shared + kExpertsAt + place * 4, static_cast<uint32_t>(key & kExpertOfKey) ^ kExpertOfKey);
    __syncwarp();
    const int slot = lane % contract::lanes_of_slots(kCount);
    expert = slot < kCount ? static_cast<int>(ptx::ld_shared_u32(shared + kExpertsAt + slot * 4)) : -1;
    return true;
  }

 private:
  enum : uint32_t {
    kRankOfMinusInfinity = 0x007fffffu,
    kExpertOfKey = 0x7fffffffu,
    kKeyBytes = 8,
    kExpertsAt = 32 * kKeyBytes
  };
  /// The lane's two largest values. `first` is NaN if a value is, and `second` is used only if none is.
  struct Largest {
    float first, second;
  };

  static __device__ __forceinline__ Largest largest_two(const float (&values)[kOwn], int lane) {
    Largest largest{ptx::minus_infinity(), ptx::minus_infinity()};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float value = Deal::has(lane, i) ? values[i] : ptx::minus_infinity();
      largest.second = fmaxf(largest.second, fminf(largest.first, value));
      largest.first = ptx::max_nan_f32(largest.first, value);
    }
    return largest;
  }

  /// Whether the lane's group is picked: fewer than kPicked groups are ahead of it. A lane compares a share of the
  /// groups with its own. Two groups are in order unless a score is NaN, which clears `ordinary`.
  static __device__ __forceinline__ bool is_picked(Largest largest, int lane, bool& ordinary) {
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const float first = __shfl_xor_sync(kAllLanes, largest.first, distance);
      const float second = __shfl_xor_sync(kAllLanes, largest.second, distance);
      largest.second = fmaxf(fminf(largest.first, first), fmaxf(largest.second, second));
      largest.first = fmaxf(largest.first, first);
    }
    const float score = kSumsTwo && Deal::kOfGroup > 1 ? largest.first + largest.second : largest.first;
    ordinary &= score == score;
    const int group = lane / kLanes;
    const uint32_t of_group = (kLanes == 32 ? kAllLanes : (1u << kLanes % 32) - 1u) << group * kLanes % 32;
    int ahead = 0;
#pragma unroll
    for (int i = 0; i < kGroups; i += kLanes) {
      const int other = i + lane % kLanes;
      const float score_of_other = __shfl_sync(kAllLanes, score, other * kLanes % 32);
      const bool is_equal_and_lower = (score_of_other == score) & (other < group);
      const bool is_ahead = (other < kGroups) & ((score_of_other > score) | is_equal_and_lower);
      ahead += __popc(__ballot_sync(kAllLanes, is_ahead) & of_group);
    }
    return ahead < kPicked;
  }

  /// A rank that kCount lanes reach at least, with their largest experts; kNoRank if there are not so many.
  static __device__ __forceinline__ uint32_t bound_of(uint32_t rank) {
    uint32_t bound = kNoRank;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      bound = __reduce_max_sync(kAllLanes, rank);
      if (rank == bound) rank = kNoRank;
    }
    return bound;
  }

  static __device__ __forceinline__ bool is_candidate(const float (&values)[kOwn], float least, int lane, int i) {
    return Deal::has(lane, i) && values[i] >= least;
  }
  static __device__ __forceinline__ int candidates_of_lane(const float (&values)[kOwn], float least, int lane) {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) count += is_candidate(values, least, lane, i);
    return count;
  }
  /// Returns the sum of all lanes' counts. `count` becomes the sum over the lanes below.
  static __device__ __forceinline__ int sum_over_lanes(int& count, int lane) {
    int sum = count;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      uint32_t other;
      if (ptx::shfl_up(other, static_cast<uint32_t>(sum), distance)) sum += static_cast<int>(other);
    }
    count = sum - count;
    return __shfl_sync(kAllLanes, sum, 31);
  }

  /// The lane's candidates, each with its expert and its value, go to `address` and on.
  static __device__ __forceinline__ void scatter(const float (&values)[kOwn], float least, uint32_t address, int lane) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool is = is_candidate(values, least, lane, i);
      ptx::st_shared_v2_u32_if(address, static_cast<uint32_t>(Deal::expert_of(lane, i)), __float_as_uint(values[i]),
                               is);
      if (is) address += kKeyBytes;
    }
    __syncwarp();
  }

  /// Keys take the place of values: larger for the larger rank, then for the lower expert. Returns the lane's one.
  /// Without a candidate it is below all others.
  static __device__ __forceinline__ uint64_t exchange(uint32_t address, bool has) {
    const uint64_t candidate = ptx::ld_shared_u64_if(address, has);
    const float value = has ? __uint_as_float(static_cast<uint32_t>(candidate >> 32)) : ptx::minus_infinity();
    const uint64_t key = uint64_t{rank_of_number(value)} << 31 | (static_cast<uint32_t>(candidate) ^ kExpertOfKey);
    ptx::st_shared_u64(address, key);
    __syncwarp();
    return key;
  }

  /// 1 or 0, without a predicate. Keys have 63 bits.
  static __device__ __forceinline__ int is_less(uint64_t key, uint64_t other) {
    return static_cast<int>((key - other) >> 63);
  }
  static __device__ __forceinline__ int candidates_ahead(uint32_t shared, uint64_t key, int found) {
    enum : int { kAtOnce = 4 };
    int ahead = 0;
#pragma unroll 1
    for (int first = 0; first < found; first += kAtOnce) {
#pragma unroll
      for (int i = 0; i < kAtOnce; i += 2) {
        const ptx::Vector16 two = ptx::ld_shared_v4(shared + (first + i) * kKeyBytes);
        ahead += is_less(key, uint64_t{two.word[1]} << 32 | two.word[0]);
        ahead += is_less(key, uint64_t{two.word[3]} << 32 | two.word[2]);
      }
    }
    return ahead;
  }
};

}  // namespace kernelwright::policy
