/// Writes new keys and values to a cache, and rotates the queries on the way: norm, RoPE, Hadamard transform,
/// quantisation and scatter in one pass. A few lanes share a head, 8 elements each. A warp has some heads of one token
/// and of one operand: queries, keys or values. It reads the token's place and its angles once, and issues all of its
/// loads before it computes. Warps need no shared memory, unless the norm is over all heads of a token. A CTA then has
/// one token.
///
/// Loads of heads come first. A warp issues in order, so an address that waits for a load would hold up the loads
/// behind it.
///
/// Few tokens do not fill a GPU. A lane then has one head, so that more warps share the work.
#include "spec.h"

#include "contract/kv_write.h"
#include "policy/cache_place.cuh"
#include "policy/head_store.cuh"
#include "policy/head_vector.cuh"
#include "policy/rotation.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"
#include "tile/element_run.cuh"

namespace kernelwright {

using Params = contract::KvWriteParams;
using policy::CachePlace;
using policy::HeadVector;
using policy::kLaneElements;

constexpr int kWidest = spec::kHeadDimQk > spec::kHeadDimV ? spec::kHeadDimQk : spec::kHeadDimV;
constexpr int kLanes = contract::lanes_of_head(kWidest);
constexpr int kHeadsAtOnce = 32 / kLanes;  // of a warp
constexpr bool kNormOfAll = spec::kNorm == NormKind::kRmsAllHeads;

enum class Operand { kQ, kK, kV };

/// The warps of a token, where a lane has kHeadsPerLane heads: those of queries come first, and those of values last.
template <int kHeadsPerLane>
struct Dealing {
  static constexpr int warps_of(int heads) { return contract::warps_of_heads(heads, kLanes, kHeadsPerLane); }
  enum : int {
    kFirstOfK = warps_of(spec::kQHeads),
    kFirstOfV = kFirstOfK + warps_of(spec::kKvHeads),
    kWarps = kFirstOfV + (spec::kVOut ? warps_of(spec::kKvHeads) : 0)
  };
};
using Many = Dealing<spec::kHeadsPerLane>;
using Few = Dealing<1>;
constexpr int kLeastCtas = spec::kHeadsPerLane <= 4 ? 32 / spec::kNumWarps : 1;  // of an SM
static_assert(!kNormOfAll || (Many::kWarps == spec::kNumWarps && !spec::kSplitsFew),
              "a norm over all heads needs them in one CTA");

__device__ __forceinline__ void unpack(const ptx::Vector16& words, HeadVector& x) {
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] = tile::element_of<spec::kInDType>(words.word[i / 2], i % 2);
}

/// What a norm over all heads multiplies this warp's operand by. The CTA has all heads of the token, and `sum` is of
/// the squares of this lane's elements. Sums go through shared memory, and every warp adds them in one order.
template <Operand kOperand>
__device__ __forceinline__ float inverse_of_token(const Params& params, float sum, int warp, int lane) {
  __shared__ float sums[spec::kNumWarps];
  sum = policy::sum_over_head<32>(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  constexpr int kFirst = kOperand == Operand::kQ ? 0 : Many::kFirstOfK;
  constexpr int kEnd = kOperand == Operand::kQ ? Many::kFirstOfK : Many::kFirstOfV;
  constexpr int kHeads = kOperand == Operand::kQ ? spec::kQHeads : spec::kKvHeads;
  float all = 0;
#pragma unroll
  for (int i = kFirst; i < kEnd; ++i) all += sums[i];
  return ptx::rsqrt_approx(all * (1.f / (kHeads * spec::kHeadDimQk)) + params.eps);
}

/// What differs between operands. The tensors are functions, so that none but its own is read.
template <Operand kOperand>
struct Traits;
template <>
struct Traits<Operand::kQ> {
  enum : int { kHeads = spec::kQHeads, kHeadDim = spec::kHeadDimQk };
  static constexpr DType kTo = spec::kQDType;
  static constexpr ScaleKind kScales = spec::kQScales;
  __device__ static const void* from(const Params& params) { return params.q; }
  __device__ static const contract::Strides& strides(const Params& params) { return params.q_strides; }
  __device__ static const void* weights(const Params& params) { return params.q_weight; }
  __device__ static float* scales(const Params& params) { return params.q_scale; }
};
template <>
struct Traits<Operand::kK> {
  enum : int { kHeads = spec::kKvHeads, kHeadDim = spec::kHeadDimQk };
  static constexpr DType kTo = spec::kKvDType;
  static constexpr ScaleKind kScales = spec::kKScales;
  __device__ static const void* from(const Params& params) { return params.k; }
  __device__ static const contract::Strides& strides(const Params& params) { return params.k_strides; }
  __device__ static const void* weights(const Params& params) { return params.k_weight; }
  __device__ static float* scales(const Params& params) { return params.k_scale; }
  __device__ static void* cache(const Params& params) { return params.k_cache; }
  __device__ static const contract::Strides& cache_strides(const Params& params) { return params.k_cache_strides; }
  __device__ static const contract::Strides& scale_strides(const Params& params) { return params.k_scale_strides; }
};
template <>
struct Traits<Operand::kV> {
  enum : int { kHeads = spec::kKvHeads, kHeadDim = spec::kHeadDimV };
  static constexpr DType kTo = spec::kKvDType;
  static constexpr ScaleKind kScales = spec::kVScales;
  __device__ static const void* from(const Params& params) { return params.v; }
  __device__ static const contract::Strides& strides(const Params& params) { return params.v_strides; }
  __device__ static float* scales(const Params& params) { return params.v_scale; }
  __device__ static void* cache(const Params& params) { return params.v_cache; }
  __device__ static const contract::Strides& cache_strides(const Params& params) { return params.v_cache_strides; }
  __device__ static const contract::Strides& scale_strides(const Params& params) { return params.v_scale_strides; }
};

/// The heads of one operand of a token that a warp writes; a lane's part of them.
template <Operand kOperand>
class Heads {
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
    kRounds = spec::kHeadsPerLane,
    kWeightParts = !kWeights    ? 1
                   : kNormOfAll ? kRounds
                                : 1,
    kScaleParts = T::kScales == ScaleKind::kPerHead ? kRounds : 1
  };
  using Turn =
      policy::Rotation<kTurns ? spec::kRope : RopeStyle::kNone, spec::kRopeWidth, spec::kRopeBegin, spec::kSectionFirst,
                       spec::kSectionSecond, spec::kSectionThird, spec::kInterleaved, kLanes * kLaneElements>;

 public:
  /// `first`: the first head of this lane; the others are kHeadsAtOnce apart, and rounds() of them are the warp's.
  __device__ __forceinline__ Heads(const Params& params, int token, int warp_of_operand, bool few, int lane)
      : params_(params), token_(token), few_(few), lane_(lane), chunk_(lane % kLanes) {
    const int first_of_warp = warp_of_operand * (few ? 1 : kRounds) * kHeadsAtOnce;
    first_ = first_of_warp + lane / kLanes;
    left_ = T::kHeads - first_of_warp;
    load();
  }

  __device__ __forceinline__ void write(int warp) {
    float inverse = 1;
    if constexpr (kNormOfAll && !kIsV) inverse = inverse_of_token<kOperand>(params_, sum_of_squares(), warp, lane_);
    if constexpr (kNormOfAll && kIsV) __syncthreads();  // with the warps that have queries and keys
    const int64_t scale_at = scale_place();
    void* const to = place_of_output();
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
      if (is_round(i)) write_head(i, inverse, to, scale_at);
  }

 private:
  /// Whether the warp has heads in round i; the same in all lanes.
  __device__ __forceinline__ bool is_round(int i) const {
    if (i == 0) return true;
    constexpr bool kWhole = T::kHeads % (kRounds * kHeadsAtOnce) == 0;
    return !(spec::kSplitsFew && few_) && (kWhole || i * kHeadsAtOnce < left_);
  }
  __device__ __forceinline__ int head(int i) const { return first_ + i * kHeadsAtOnce; }
  /// Whether the lane has a part of its head of round i.
  __device__ __forceinline__ bool has_part(int i) const {
    const bool head_exists = T::kHeads % kHeadsAtOnce == 0 || head(i) < T::kHeads;
    return head_exists && (T::kHeadDim == kLanes * kLaneElements || chunk_ * kLaneElements < T::kHeadDim);
  }

  __device__ __forceinline__ void load() {
    const auto* const from = static_cast<const tile::Storage<spec::kInDType>*>(T::from(params_)) +
                             token_ * T::strides(params_).token + first_ * T::strides(params_).head +
                             chunk_ * kLaneElements;
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
      parts_[i] =
          ptx::ld_global_once_v4_if(from + i * (kHeadsAtOnce * T::strides(params_).head), is_round(i) && has_part(i));
    if constexpr (kWeights) load_weights();
    if constexpr (kGivenScales) {
#pragma unroll
      for (int i = 0; i < kScaleParts; ++i) {
        const bool exists = T::kScales == ScaleKind::kPerTensor || (is_round(i) && has_part(i));
        scales_[i] = __uint_as_float(
            ptx::ld_global_u32_if(T::scales(params_) + (T::kScales == ScaleKind::kPerHead ? head(i) : 0), exists));
      }
    }
    // ptxas moves no load across. Without it, the addresses that wait for a position come before the loads above.
    __syncwarp();
    if constexpr (kTurns) turn_.load_positions(params_, token_);
    policy::TokenIndex index;
    if constexpr (!kIsQ) index = policy::load_index<spec::kIndex>(params_, token_);
    if constexpr (kTurns) turn_.load_angles(params_, chunk_);
    if constexpr (!kIsQ) place_ = policy::place_of<spec::kIndex, spec::kKvLayout, spec::kPageSize>(params_, index);
  }
  __device__ __forceinline__ void load_weights() {
    const auto* const weights =
        static_cast<const tile::Storage<spec::kInDType>*>(T::weights(params_)) + chunk_ * kLaneElements;
#pragma unroll
    for (int i = 0; i < kWeightParts; ++i)
      weights_[i] =
          ptx::ld_global_v4_if(weights + (kNormOfAll ? head(i) * spec::kHeadDimQk : 0),
                               kNormOfAll ? is_round(i) && has_part(i) : chunk_ * kLaneElements < T::kHeadDim);
  }

  /// Of all parts of this lane; those that do not exist are zeros.
  __device__ __forceinline__ float sum_of_squares() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      HeadVector x;
      unpack(parts_[i], x);
      sum += policy::sum_of_squares(x);
    }
    return sum;
  }
  /// What the norm of a head by itself multiplies by.
  __device__ __forceinline__ float inverse_of_head(const HeadVector& x) const {
    const float sum = policy::sum_over_head<kLanes>(policy::sum_of_squares(x));
    const float mean = !kIsV && spec::kNorm == NormKind::kL2 ? sum : sum * (1.f / T::kHeadDim);
    return ptx::rsqrt_approx(mean + params_.eps);
  }
  __device__ __forceinline__ void normalise(int i, float inverse, HeadVector& x) const {
    if constexpr (!kNormOfAll || kIsV) inverse = inverse_of_head(x);
    if constexpr (kWeights) {
      HeadVector factor;
      unpack(weights_[kNormOfAll ? i : 0], factor);
#pragma unroll
      for (int e = 0; e < kLaneElements; ++e) x[e] = x[e] * inverse * (factor[e] + spec::kWeightOffset);
    } else {
#pragma unroll
      for (int e = 0; e < kLaneElements; ++e) x[e] *= inverse;
    }
  }

  /// The lane's part of its first head where it goes; of a page of columns, the element of that head.
  __device__ __forceinline__ void* place_of_output() const {
    if constexpr (kIsQ) {
      return static_cast<tile::Storage<T::kTo>*>(params_.q_out) + token_ * params_.q_out_strides.token +
             first_ * params_.q_out_strides.head + chunk_ * kLaneElements;
    } else if constexpr (kColumns) {
      const int column = contract::column_of_key(static_cast<int>(place_.offset));
      return static_cast<uint8_t*>(params_.v_cache) + place_.page * params_.v_cache_strides.batch +
             first_ * params_.v_cache_strides.head + chunk_ * kLaneElements * spec::kPageSize + column;
    } else {
      return static_cast<tile::Storage<T::kTo>*>(T::cache(params_)) +
             policy::cache_element(place_, T::cache_strides(params_), first_) + chunk_ * kLaneElements;
    }
  }
  /// The index of the scale per token of the lane's first head.
  __device__ __forceinline__ int64_t scale_place() const {
    if constexpr (T::kScales != ScaleKind::kPerToken)
      return 0;
    else if constexpr (kIsQ)
      return int64_t{token_} * spec::kQHeads + first_;
    else
      return policy::cache_element(place_, T::scale_strides(params_), first_);
  }

  /// The factor that brings elements to the scale of a format. A scale per token is computed here, and written.
  __device__ __forceinline__ float factor(int i, int64_t scale_at, uint32_t largest) const {
    if constexpr (T::kScales == ScaleKind::kNone) {
      return 1;
    } else if constexpr (kGivenScales) {
      return __frcp_rn(scales_[kScaleParts > 1 ? i : 0]);
    } else {
      if constexpr (spec::kHasLeast) {
        const uint32_t least = __float_as_uint(params_.least);
        largest = largest < least ? least : largest;
      }
      const float scale = policy::scale_of_head<T::kTo, spec::kPowerOfTwo>(largest);
      if (chunk_ == 0) {
        int64_t at = scale_at;
        if constexpr (kIsQ)
          at += i * kHeadsAtOnce;
        else
          at += i * (kHeadsAtOnce * T::scale_strides(params_).head);
        if constexpr (spec::kUe8m0)
          ptx::st_global_u8(reinterpret_cast<uint8_t*>(T::scales(params_)) + at, __float_as_uint(scale) >> 23);
        else
          ptx::st_global_u32(T::scales(params_) + at, __float_as_uint(scale));
      }
      return __frcp_rn(scale);
    }
  }

  __device__ __forceinline__ void write_head(int i, float inverse, void* to, int64_t scale_at) {
    HeadVector x;
    unpack(parts_[i], x);
    if constexpr (kNorm && (kIsV || spec::kNormBeforeRope)) normalise(i, inverse, x);
    if constexpr (kTurns) turn_.apply(x, lane_);
    if constexpr (kNorm && !kIsV && !spec::kNormBeforeRope) normalise(i, inverse, x);
    if constexpr (kTransforms) policy::hadamard<spec::kHeadDimQk, spec::kHadamardSigns>(x, chunk_);
    uint32_t largest = 0;
    if constexpr (T::kScales == ScaleKind::kPerToken) largest = policy::largest_of_head<kLanes>(x);
    if (!has_part(i)) return;
    if constexpr (!kIsQ)
      if (!place_.exists) return;
    if constexpr (kColumns) {
      policy::store_head_column<T::kTo, spec::kArch>(
          static_cast<uint8_t*>(to) + i * (kHeadsAtOnce * params_.v_cache_strides.head), spec::kPageSize, x,
          factor(i, scale_at, largest));
    } else {
      auto* const element = static_cast<tile::Storage<T::kTo>*>(to) + i * (kHeadsAtOnce * head_stride());
      if constexpr (kStays)
        ptx::st_global_v4(element, parts_[i]);
      else
        policy::store_head_part<T::kTo, spec::kArch>(element, x, factor(i, scale_at, largest));
    }
  }
  /// Elements from a head to the next one, where heads go.
  __device__ __forceinline__ int64_t head_stride() const {
    if constexpr (kIsQ)
      return params_.q_out_strides.head;
    else
      return T::cache_strides(params_).head;
  }

  const Params& params_;
  const int token_;
  const bool few_;
  const int lane_, chunk_;
  int first_, left_;  // heads from the warp's first one on
  ptx::Vector16 parts_[kRounds], weights_[kWeightParts];
  float scales_[kScaleParts];
  CachePlace place_;
  Turn turn_;
};

template <Operand kOperand>
__device__ __forceinline__ void write(const Params& params, int token, int warp_of_operand, bool few, int warp,
                                      int lane) {
  Heads<kOperand>(params, token, warp_of_operand, few, lane).write(warp);
}

}  // namespace kernelwright

// 32 warps of an SM leave a thread 64 registers, which four heads fit in. Kernels with more heads take what they need.
extern "C" __global__ void __launch_bounds__(32 * kernelwright::spec::kNumWarps, kernelwright::kLeastCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::KvWriteParams params) {
  using namespace kernelwright;
  if constexpr (spec::kArch >= 90) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();  // the whole kernel is short
  }
  const int lane = threadIdx.x % 32, warp = ptx::uniform(threadIdx.x / 32);
  const int unit = static_cast<int>(blockIdx.x) * spec::kNumWarps + warp;  // a part of the heads of a token
  const bool few = spec::kSplitsFew && params.few_tokens != 0;
  const int token = few ? unit / Few::kWarps : unit / Many::kWarps;
  if (token >= params.tokens) return;
  const int part = unit - token * (few ? Few::kWarps : Many::kWarps);
  const int first_of_k = few ? Few::kFirstOfK : Many::kFirstOfK, first_of_v = few ? Few::kFirstOfV : Many::kFirstOfV;
  if (part < first_of_k)
    write<Operand::kQ>(params, token, part, few, warp, lane);
  else if (part < first_of_v)
    write<Operand::kK>(params, token, part - first_of_k, few, warp, lane);
  else if constexpr (spec::kVOut)
    write<Operand::kV>(params, token, part - first_of_v, few, warp, lane);
}
