/// The steps of a head of queries, keys or values on its way to a cache: norm, rotation, Hadamard transform and scale
/// (docs/kv-write.md). A few lanes share the head, and each has two vectors of 8 elements, in f32 registers.
#pragma once

#include "spec.h"

#include "kernels/kv_write_operands.cuh"
#include "policy/cache_place.cuh"
#include "policy/hadamard.cuh"
#include "policy/head_store.cuh"
#include "policy/head_vector.cuh"
#include "policy/lane_vectors.cuh"
#include "policy/rotation.cuh"
#include "ptx/math.cuh"
#include "tile/element_run.cuh"

namespace kernelwright {

using contract::kHeadElements;
using policy::CachePlace;
using policy::HeadVector;
using policy::kLaneElements;

constexpr int kWidest = spec::kHeadDimQk > spec::kHeadDimV ? spec::kHeadDimQk : spec::kHeadDimV;
constexpr int kLanes = contract::lanes_of_head(kWidest);

__device__ __forceinline__ void unpack(const ptx::Vector16 (&words)[2], HeadVector (&x)[2]) {
#pragma unroll
  for (int v = 0; v < 2; ++v)
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[v][i] = tile::element_of<spec::kInDType>(words[v].word[i / 2], i % 2);
}
__device__ __forceinline__ void multiply(HeadVector (&x)[2], float factor) {
#pragma unroll
  for (int v = 0; v < 2; ++v)
#pragma unroll
    for (int e = 0; e < kLaneElements; ++e) x[v][e] *= factor;
}

/// What an operand's heads go through, and which vectors of a head a lane has.
template <Operand kOperand>
struct HeadSteps {
  using T = Traits<kOperand>;
  enum : bool {
    kIsQ = kOperand == Operand::kQ,
    kIsV = kOperand == Operand::kV,
    kNorm = kIsV ? spec::kNormV : spec::kNorm != NormKind::kNone,
    kWeights = kNorm && !kIsV && spec::kNormWeight,
    kTurns = !kIsV && spec::kRope != RopeStyle::kNone,
    kTransforms = !kIsV && spec::kHadamard,
    kColumns = kIsV && spec::kVColumns,
    // Heads only change their place, and NaNs keep their bits.
    kStays = !kNorm && !kTurns && !kTransforms && !kColumns && T::kTo == spec::kInDType,
    kGivenScales = T::kScales == ScaleKind::kPerTensor || T::kScales == ScaleKind::kPerHead
  };
  enum : int {
    kVectors = T::kHeadDim / kLaneElements,  // of a head
    kWordsOfVector = is_fp8(T::kTo) ? 2 : 4  // as it is written
  };
  using Halves = policy::LaneVectors<T::kHeadDim, 0, (kVectors + 1) / 2>;
  using Turning = policy::LaneVectors<T::kHeadDim, spec::kRopeBegin / kLaneElements, spec::kRopeWidth / kHeadElements>;
  using Read = typename policy::Either<kTurns && spec::kRope == RopeStyle::kNeox, Turning, Halves>::type;
  using Written = typename policy::Either<kTransforms, policy::HadamardVectors<T::kHeadDim>, Read>::type;
  using Turn =
      policy::Rotation<kTurns ? spec::kRope : RopeStyle::kNone, spec::kRopeWidth, spec::kRopeBegin, spec::kSectionFirst,
                       spec::kSectionSecond, spec::kSectionThird, spec::kInterleaved, Read, kLanes>;

  /// What the norm of a head by itself multiplies by.
  __device__ __forceinline__ static float inverse_of_head(const Params& params, const HeadVector (&x)[2]) {
    const float sum = policy::sum_over_head<kLanes>(policy::sum_of_squares(x[0]) + policy::sum_of_squares(x[1]));
    const float mean = !kIsV && spec::kNorm == NormKind::kL2 ? sum : sum * (1.f / T::kHeadDim);
    return ptx::rsqrt_approx(mean + params.eps);
  }
  /// The norm but for its factor, which comes last: what lies between is linear. `inverse`: of all heads, if the norm
  /// is over them. `weights`: the lane's, if there are any.
  __device__ __forceinline__ static float weigh(const Params& params, const ptx::Vector16 (&weight_words)[2],
                                                float inverse, HeadVector (&x)[2]) {
    if constexpr (spec::kNorm != NormKind::kRmsAllHeads || kIsV) inverse = inverse_of_head(params, x);
    if constexpr (kWeights) {
      HeadVector weights[2];
      unpack(weight_words, weights);
#pragma unroll
      for (int v = 0; v < 2; ++v)
#pragma unroll
        for (int e = 0; e < kLaneElements; ++e)
          x[v][e] *= spec::kWeightOffset != 0 ? weights[v][e] + spec::kWeightOffset : weights[v][e];
    }
    return inverse;
  }

  /// The scale per token of a head whose largest magnitude has these bits.
  __device__ __forceinline__ static float scale_per_token(const Params& params, uint32_t largest) {
    if constexpr (spec::kHasLeast) {
      const uint32_t least = __float_as_uint(params.least);
      largest = largest < least ? least : largest;
    }
    return policy::scale_of_head<T::kTo, spec::kPowerOfTwo>(largest);
  }
  /// Writes a scale per token as element `at` of them.
  __device__ __forceinline__ static void store_scale(const Params& params, int64_t at, float scale) {
    if constexpr (spec::kUe8m0)
      ptx::st_global_u8(reinterpret_cast<uint8_t*>(T::scales(params)) + at, __float_as_uint(scale) >> 23);
    else
      ptx::st_global_u32(T::scales(params) + at, __float_as_uint(scale));
  }

  /// Takes `x` through the steps ahead of its rounding. The result is what elements are multiplied by as they are
  /// rounded. factor_of(largest) is that of a head whose largest magnitude has these bits, without the norm's part.
  /// Lanes that share the head call it together. `leader`: the first of them; `part`: which of them the lane is.
  template <class Factor>
  __device__ __forceinline__ static float take(const Params& params, const Turn& turn,
                                               const ptx::Vector16 (&weights)[2], float inverse, HeadVector (&x)[2],
                                               int leader, int part, const Factor& factor_of) {
    if constexpr (kNorm && (kIsV || spec::kNormBeforeRope)) inverse = weigh(params, weights, inverse, x);
    if constexpr (kTurns) turn.apply(x);
    if constexpr (kNorm && !kIsV && !spec::kNormBeforeRope) inverse = weigh(params, weights, inverse, x);
    if constexpr (kTransforms) {
      if constexpr (!policy::Same<Read, Written>::value) policy::deal_again<kLanes, Read, Written>(x, leader, part);
      policy::hadamard<spec::kHeadDimQk, spec::kHadamardSigns>(x, part);
    }
    uint32_t largest = 0;
    if constexpr (T::kScales == ScaleKind::kPerToken) {
      largest = policy::largest_of_head<kLanes>(x);
      if constexpr (kNorm) largest = __float_as_uint(__uint_as_float(largest) * inverse);
    }
    float by = factor_of(largest);
    if constexpr (kNorm && is_fp8(T::kTo)) {
      const float both = inverse * by;
      // A head of zeros: the product of its factors may be infinite.
      if (fabsf(both) < __uint_as_float(0x7f800000u))
        by = both;
      else
        multiply(x, inverse);
    } else if constexpr (kNorm) {
      multiply(x, inverse);
    }
    return by;
  }
};

}  // namespace kernelwright
