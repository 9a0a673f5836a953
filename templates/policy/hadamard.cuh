/// The Hadamard transform of a head, in blocks of the largest power of two that divides its size. A head of 128 is one
/// block, and one of 192 has three of 64.
#pragma once

#include "policy/lane_vectors.cuh"

namespace kernelwright::policy {

/// As LaneVectors, for heads of several blocks. The lanes of a block lie side by side. A lane has a vector of the
/// block's first half, and the one that lies half a block behind.
template <int kHeadDim>
struct BlockVectors {
  enum : int {
    kDistance = contract::hadamard_block(kHeadDim) / (2 * kLaneElements),  // lanes of a block
    kCount = kHeadDim / kLaneElements
  };
  static __device__ __forceinline__ int at(int lane, int i) {
    return (lane / kDistance * 2 + i) * kDistance + lane % kDistance;
  }
  template <int kLanes>
  static __device__ __forceinline__ bool has(int lane, int) {
    return lane < kCount / 2;
  }
};

/// Which vectors of a head its lanes have in a Hadamard transform.
template <int kHeadDim>
using HadamardVectors =
    typename Either<contract::hadamard_block(kHeadDim) == kHeadDim,
                    LaneVectors<kHeadDim, 0, kHeadDim / (2 * kLaneElements)>, BlockVectors<kHeadDim>>::type;

/// Multiplies each block of a head (contract::hadamard_block()) by the Hadamard matrix of Sylvester's order, over the
/// root of its size; with kSigns, first by fixed signs. `x`: the lane's vectors, as HadamardVectors<kHeadDim> deals
/// them. Lanes count among those of the head.
template <int kHeadDim, bool kSigns>
__device__ __forceinline__ void hadamard(HeadVector (&x)[2], int lane) {
  using Vectors = HadamardVectors<kHeadDim>;
  enum : int { kBlock = contract::hadamard_block(kHeadDim), kLanes = Vectors::kDistance };
  const auto butterfly = [](float& first, float& second) {
    const float low = first, high = second;
    first = low + high;
    second = low - high;
  };
  if constexpr (kSigns) {
#pragma unroll
    for (int v = 0; v < 2; ++v)
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i)
        if (contract::is_negated(static_cast<uint32_t>(Vectors::at(lane, v) * kLaneElements + i))) x[v][i] = -x[v][i];
  }
#pragma unroll
  for (int distance = 1; distance < kLaneElements; distance *= 2)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      if ((i & distance) == 0) {
        butterfly(x[0][i], x[0][i + distance]);
        butterfly(x[1][i], x[1][i + distance]);
      }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const float other = __shfl_xor_sync(kAllLanes, x[v][i], distance);
        x[v][i] = (lane & distance) != 0 ? other - x[v][i] : x[v][i] + other;
      }
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) butterfly(x[0][i], x[1][i]);
  constexpr float kFactor = kBlock == 16    ? 0.25f
                            : kBlock == 32  ? 0.17677669529663689f
                            : kBlock == 64  ? 0.125f
                            : kBlock == 128 ? 0.08838834764831845f
                                            : 0.0625f;
#pragma unroll
  for (int v = 0; v < 2; ++v)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[v][i] *= kFactor;
}

}  // namespace kernelwright::policy
