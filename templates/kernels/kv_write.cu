/// Writes new keys and values to a cache, and rotates the queries on the way: norm, RoPE, Hadamard transform,
/// quantisation and scatter in one pass. A few lanes share a head, 8 elements each. A warp has the heads of one token:
/// it reads the token's place and its angles once, and issues all of its loads before it computes. Warps need no shared
/// memory, unless the norm is over all heads of a token. A CTA then has one token.
#include "spec.h"

#include "contract/kv_write.h"
#include "policy/cache_place.cuh"
#include "policy/head_store.cuh"
#include "policy/head_vector.cuh"
#include "policy/rotation.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"
#include "tile/element_run.cuh"

namespace kernelwright {

using Params = contract::KvWriteParams;
using policy::CachePlace;
using policy::HeadVector;
using policy::kLaneElements;
using Turn = policy::Rotation<spec::kRope, spec::kRopeWidth, spec::kRopeBegin, spec::kSectionFirst,
                              spec::kSectionSecond, spec::kSectionThird, spec::kInterleaved>;

constexpr int kWidest = spec::kHeadDimQk > spec::kHeadDimV ? spec::kHeadDimQk : spec::kHeadDimV;
constexpr int kLanes = contract::lanes_of_head(kWidest);
constexpr int kHeadsAtOnce = 32 / kLanes;  // of a warp
constexpr int kHeads = spec::kQHeads + (spec::kVOut ? 2 : 1) * spec::kKvHeads;
constexpr int kWarps = contract::warps_of_token(kHeads, kLanes, spec::kHeadsPerLane);
constexpr bool kNormOfAll = spec::kNorm == NormKind::kRmsAllHeads;
static_assert(!kNormOfAll || kWarps == spec::kNumWarps, "a norm over all heads needs them in one CTA");

/// The heads of a token, in this order.
enum class Operand { kQ, kK, kV, kNone };

/// A head of a token, and the part of it that this lane has.
struct Head {
  Operand operand;
  int index;      // among the heads of the operand
  bool has_part;  // the head has elements for this lane
};

__device__ __forceinline__ Head head_of(int number, int chunk) {
  Head head{Operand::kNone, 0, false};
  if (number < spec::kQHeads)
    head = {Operand::kQ, number, chunk * kLaneElements < spec::kHeadDimQk};
  else if (number < spec::kQHeads + spec::kKvHeads)
    head = {Operand::kK, number - spec::kQHeads, chunk * kLaneElements < spec::kHeadDimQk};
  else if (number < kHeads)
    head = {Operand::kV, number - spec::kQHeads - spec::kKvHeads, chunk * kLaneElements < spec::kHeadDimV};
  return head;
}

__device__ __forceinline__ ptx::Vector16 load_part(const Params& params, int64_t token, const Head& head, int chunk) {
  const bool is_q = head.operand == Operand::kQ, is_k = head.operand == Operand::kK;
  const void* const base = is_q ? params.q : is_k ? params.k : params.v;
  const contract::Strides& strides = is_q ? params.q_strides : is_k ? params.k_strides : params.v_strides;
  const auto* const elements = static_cast<const tile::Storage<spec::kInDType>*>(base);
  return ptx::ld_global_once_v4_if(elements + token * strides.token + head.index * strides.head + chunk * kLaneElements,
                                   head.has_part);
}

__device__ __forceinline__ void unpack(const ptx::Vector16& words, HeadVector& x) {
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] = tile::element_of<spec::kInDType>(words.word[i / 2], i % 2);
}

__device__ __forceinline__ CachePlace place_of(const Params& params, int64_t token) {
  if constexpr (spec::kIndex == CacheIndex::kSlots)
    return policy::place_of_slot<spec::kKvLayout, spec::kPageSize>(params,
                                                                   ptx::ld_global_s64(params.slot_mapping + token));
  else
    return policy::place_of_position<spec::kKvLayout, spec::kPageSize>(
        params, ptx::ld_global_s32(params.batch_indices + token), policy::position_at(params, token));
}

/// Multiplies a query or key head by `inverse` and its weights, and a value head, if those are normalised, by
/// `inverse`.
__device__ __forceinline__ void scale_by_norm(const Params& params, const Head& head, int chunk, float inverse,
                                              HeadVector& x) {
  const bool is_v = head.operand == Operand::kV;
  if (is_v && !spec::kNormV) return;
  HeadVector factor;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) factor[i] = 1;
  if constexpr (spec::kNormWeight) {
    const auto* const weights = static_cast<const tile::Storage<spec::kInDType>*>(
        head.operand == Operand::kQ ? params.q_weight : params.k_weight);
    const int row = kNormOfAll ? head.index * spec::kHeadDimQk : 0;
    const ptx::Vector16 words = ptx::ld_global_v4_if(weights + row + chunk * kLaneElements, head.has_part && !is_v);
    if (!is_v) {
      unpack(words, factor);
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) factor[i] += spec::kWeightOffset;
    }
  }
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] = x[i] * inverse * factor[i];
}

/// What the norm of a head by itself multiplies by.
__device__ __forceinline__ float inverse_of_head(const Params& params, const Head& head, const HeadVector& x) {
  const float sum = policy::sum_over_head<kLanes>(policy::sum_of_squares(x));
  const bool is_v = head.operand == Operand::kV;
  const float mean = is_v                           ? sum * (1.f / spec::kHeadDimV)
                     : spec::kNorm == NormKind::kL2 ? sum
                                                    : sum * (1.f / spec::kHeadDimQk);
  return ptx::rsqrt_approx(mean + params.eps);
}

/// What a norm over all heads divides by: of the queries, and of the keys.
struct Inverses {
  float q = 1, k = 1;
};

/// The CTA has all heads of the token. Sums go through shared memory, and every warp adds them in one order.
__device__ __forceinline__ Inverses norm_of_token(const Params& params,
                                                  const ptx::Vector16 (&parts)[spec::kHeadsPerLane],
                                                  const Head (&heads)[spec::kHeadsPerLane], int warp, int lane) {
  __shared__ float sums[2][spec::kNumWarps];
  float of_q = 0, of_k = 0;
#pragma unroll
  for (int i = 0; i < spec::kHeadsPerLane; ++i) {
    HeadVector x;
    unpack(parts[i], x);
    const float sum = policy::sum_of_squares(x);
    of_q += heads[i].operand == Operand::kQ ? sum : 0.f;
    of_k += heads[i].operand == Operand::kK ? sum : 0.f;
  }
  of_q = policy::sum_over_head<32>(of_q);
  of_k = policy::sum_over_head<32>(of_k);
  if (lane == 0) sums[0][warp] = of_q, sums[1][warp] = of_k;
  __syncthreads();
  float all_q = 0, all_k = 0;
#pragma unroll
  for (int i = 0; i < spec::kNumWarps; ++i) all_q += sums[0][i], all_k += sums[1][i];
  constexpr int kQElements = spec::kQHeads > 0 ? spec::kQHeads * spec::kHeadDimQk : 1;
  return {ptx::rsqrt_approx(all_q * (1.f / kQElements) + params.eps),
          ptx::rsqrt_approx(all_k * (1.f / (spec::kKvHeads * spec::kHeadDimQk)) + params.eps)};
}

/// The factor that brings elements to the scale of a format. A scale per token is computed here, and written to
/// `scales` at `at`; the others are read.
template <DType kTo, ScaleKind kScales>
__device__ __forceinline__ float factor_of(float* scales, int64_t at, int head, uint32_t largest, bool writes) {
  if constexpr (kScales == ScaleKind::kNone) {
    return 1;
  } else if constexpr (kScales == ScaleKind::kPerToken) {
    const float scale = policy::scale_of_head<kTo, spec::kPowerOfTwo>(largest);
    if constexpr (spec::kUe8m0) {
      if (writes) ptx::st_global_u8(reinterpret_cast<uint8_t*>(scales) + at, __float_as_uint(scale) >> 23);
    } else {
      if (writes) ptx::st_global_u32(scales + at, __float_as_uint(scale));
    }
    return __fdiv_rn(1.f, scale);
  } else {
    return __fdiv_rn(1.f, ptx::ld_global_f32(scales + (kScales == ScaleKind::kPerHead ? head : 0)));
  }
}

/// Whether heads of the operand only change their place.
constexpr bool kKeysStay = spec::kNorm == NormKind::kNone && spec::kRope == RopeStyle::kNone && !spec::kHadamard;
constexpr bool kValuesStay = !spec::kNormV;

template <DType kTo, ScaleKind kScales, bool kStays>
__device__ __forceinline__ void store_part(void* base, int64_t element, float* scales, int64_t scale_at,
                                           const Head& head, int chunk, uint32_t largest, const HeadVector& x,
                                           const ptx::Vector16& read) {
  auto* const to = static_cast<tile::Storage<kTo>*>(base) + element + chunk * kLaneElements;
  if constexpr (kStays && kTo == spec::kInDType)
    ptx::st_global_v4(to, read);  // NaNs keep their bits
  else
    policy::store_head_part<kTo, spec::kArch>(
        to, x, factor_of<kTo, kScales>(scales, scale_at, head.index, largest, chunk == 0));
}

/// Stores a value head's part to a page of columns, in which its elements are a page's keys apart.
__device__ __forceinline__ void store_column(const Params& params, const CachePlace& place, const Head& head, int chunk,
                                             uint32_t largest, const HeadVector& x) {
  if constexpr (spec::kVColumns) {
    auto* const page = static_cast<uint8_t*>(params.v_cache) + place.page * params.v_cache_strides.batch +
                       head.index * params.v_cache_strides.head;
    const int column = contract::column_of_key(static_cast<int>(place.offset));
    policy::store_head_column<spec::kKvDType, spec::kArch>(
        page + chunk * kLaneElements * spec::kPageSize + column, spec::kPageSize, x,
        factor_of<spec::kKvDType, spec::kVScales>(params.v_scale,
                                                  policy::cache_element(place, params.v_scale_strides, head.index),
                                                  head.index, largest, chunk == 0));
  }
}

__device__ __forceinline__ void write_head(const Params& params, int64_t token, const CachePlace& place,
                                           const Head& head, const ptx::Vector16& read, const Turn& turn,
                                           const Inverses& inverses, int lane) {
  const int chunk = lane % kLanes;
  const bool is_v = head.operand == Operand::kV;
  HeadVector x;
  unpack(read, x);
  const auto norm = [&] {
    if constexpr (spec::kNorm != NormKind::kNone) {
      float inverse = head.operand == Operand::kQ ? inverses.q : inverses.k;
      if constexpr (!kNormOfAll || spec::kNormV) {
        const float own = inverse_of_head(params, head, x);
        if (!kNormOfAll || is_v) inverse = own;
      }
      scale_by_norm(params, head, chunk, inverse, x);
    }
  };
  if constexpr (spec::kNormBeforeRope) norm();
  if constexpr (Turn::exists) turn.apply(x, !is_v, lane);
  if constexpr (!spec::kNormBeforeRope) norm();
  if constexpr (spec::kHadamard) {
    HeadVector changed;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) changed[i] = x[i];
    policy::hadamard<spec::kHeadDimQk, spec::kHadamardSigns>(changed, chunk);
    if (!is_v) {
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) x[i] = changed[i];
    }
  }
  uint32_t largest = 0;
  if constexpr (spec::kQScales == ScaleKind::kPerToken || spec::kKScales == ScaleKind::kPerToken ||
                spec::kVScales == ScaleKind::kPerToken)
    largest = policy::largest_of_head<kLanes>(x);
  if constexpr (spec::kHasLeast) {
    const uint32_t least = __float_as_uint(params.least);
    largest = largest < least ? least : largest;
  }
  if (!head.has_part) return;
  if (head.operand == Operand::kQ) {
    store_part<spec::kQDType, spec::kQScales, kKeysStay>(
        params.q_out, token * params.q_out_strides.token + head.index * params.q_out_strides.head, params.q_scale,
        token * spec::kQHeads + head.index, head, chunk, largest, x, read);
  } else if (place.exists) {
    if (is_v && spec::kVColumns)
      store_column(params, place, head, chunk, largest, x);
    else if (is_v)
      store_part<spec::kKvDType, spec::kVScales, kValuesStay>(
          params.v_cache, policy::cache_element(place, params.v_cache_strides, head.index), params.v_scale,
          policy::cache_element(place, params.v_scale_strides, head.index), head, chunk, largest, x, read);
    else
      store_part<spec::kKvDType, spec::kKScales, kKeysStay>(
          params.k_cache, policy::cache_element(place, params.k_cache_strides, head.index), params.k_scale,
          policy::cache_element(place, params.k_scale_strides, head.index), head, chunk, largest, x, read);
  }
}

}  // namespace kernelwright

// One CTA an SM is the least: without that number ptxas spills for sm_80, to make room for one CTA more.
extern "C" __global__ void __launch_bounds__(32 * kernelwright::spec::kNumWarps, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::KvWriteParams params) {
  using namespace kernelwright;
  if constexpr (spec::kArch >= 90) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();  // the whole kernel is short
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int unit = static_cast<int>(blockIdx.x) * spec::kNumWarps + warp;  // a part of the heads of a token
  const int token = unit / kWarps;
  if (token >= params.tokens) return;
  const int first = (unit - token * kWarps) * spec::kHeadsPerLane * kHeadsAtOnce + lane / kLanes;
  Head heads[spec::kHeadsPerLane];
  ptx::Vector16 parts[spec::kHeadsPerLane];
  const CachePlace place = place_of(params, token);
#pragma unroll
  for (int i = 0; i < spec::kHeadsPerLane; ++i) {
    heads[i] = head_of(first + i * kHeadsAtOnce, lane % kLanes);
    parts[i] = load_part(params, token, heads[i], lane % kLanes);
  }
  Turn turn;
  if constexpr (Turn::exists) turn.load(params, token, lane % kLanes);
  Inverses inverses;
  if constexpr (kNormOfAll) inverses = norm_of_token(params, parts, heads, warp, lane);
#pragma unroll
  for (int i = 0; i < spec::kHeadsPerLane; ++i)
    write_head(params, token, place, heads[i], parts[i], turn, inverses, lane);
}
