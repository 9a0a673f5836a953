/// Writes new keys and values to a cache, and rotates the queries on the way: norm, RoPE, Hadamard transform,
/// quantisation and scatter in one pass. A few lanes share a head, and each has two vectors of 8 elements. Elements
/// that turn with each other lie in one lane (policy/lane_vectors.cuh). A warp has some heads of one token and of one
/// operand: queries, keys or values. It reads the token's place and its angles once, and issues all of its loads before
/// it computes. Warps need no shared memory, unless the norm is over all heads of a token. A CTA then has one token.
///
/// Loads of heads come first. A warp issues in order, so an address that waits for a load would hold up the loads
/// behind it.
///
/// Few tokens do not fill a GPU. A lane then has one head, so that more warps share the work.
#include "spec.h"

#include "contract/kv_write.h"
#include "kernels/kv_head.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {

constexpr int kHeadsAtOnce = 32 / kLanes;       // of a warp
constexpr int kHeadsOfLoad = kHeadsAtOnce / 2;  // one vector of theirs is read or written at once
constexpr bool kNormOfAll = spec::kNorm == NormKind::kRmsAllHeads;

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
constexpr int kLeastCtas = spec::kHeadsPerLane <= 2 ? 24 / spec::kNumWarps : 1;  // of an SM
static_assert(!kNormOfAll || (Many::kWarps == spec::kNumWarps && !spec::kSplitsFew),
              "a norm over all heads needs them in one CTA");

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

/// The heads of one operand of a token that a warp writes; a lane's part of them.
template <Operand kOperand>
class Heads {
  using Steps = HeadSteps<kOperand>;
  using T = typename Steps::T;
  using Read = typename Steps::Read;
  using Written = typename Steps::Written;
  enum : bool {
    kIsQ = Steps::kIsQ,
    kIsV = Steps::kIsV,
    kNorm = Steps::kNorm,
    kWeights = Steps::kWeights,
    kTurns = Steps::kTurns,
    kColumns = Steps::kColumns,
    kStays = Steps::kStays,
    kGivenScales = Steps::kGivenScales
  };
  enum : int {
    kWordsOfVector = Steps::kWordsOfVector,
    kRounds = spec::kHeadsPerLane,
    kWeightParts = !kWeights    ? 1
                   : kNormOfAll ? kRounds
                                : 1,
    kScaleParts = T::kScales == ScaleKind::kPerHead ? kRounds : 1
  };

 public:
  __device__ __forceinline__ Heads(const Params& params, int token, int warp_of_operand, bool few, int lane)
      : params_(params), token_(token), few_(few), lane_(lane), part_(lane % kLanes), upper_(lane / kLanes % 2) {
    const int first_of_warp = warp_of_operand * (few ? 1 : kRounds) * kHeadsAtOnce;
    first_ = first_of_warp + lane / (2 * kLanes);
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
      if (is_round(i)) write_heads(i, inverse, to, scale_at);
  }

 private:
  /// Whether the warp has heads in round i; the same in all lanes.
  __device__ __forceinline__ bool is_round(int i) const {
    if (i == 0) return true;
    constexpr bool kWhole = T::kHeads % (kRounds * kHeadsAtOnce) == 0;
    return !(spec::kSplitsFew && few_) && (kWhole || i * kHeadsAtOnce < left_);
  }
  /// The head that the lane computes in round i.
  __device__ __forceinline__ int head(int i) const { return first_ + i * kHeadsAtOnce + upper_ * kHeadsOfLoad; }
  __device__ __forceinline__ bool has_head(int i) const { return T::kHeads % kHeadsAtOnce == 0 || head(i) < T::kHeads; }
  /// Of the two heads whose vectors a lane reads and writes in round i: how many heads number v lies behind first_.
  static __device__ __forceinline__ int behind(int i, int v) { return i * kHeadsAtOnce + v * kHeadsOfLoad; }
  __device__ __forceinline__ bool moves(int i, int v) const {
    return T::kHeads % kHeadsAtOnce == 0 || first_ + behind(i, v) < T::kHeads;
  }

  __device__ __forceinline__ void load() {
    load_heads();
    if constexpr (kWeights) load_weights();
    if constexpr (kGivenScales) load_scales();
    // ptxas moves no load across. Without it, the addresses that wait for a position come before the loads above.
    __syncwarp();
    policy::TokenIndex index;
    if constexpr (kTurns) turn_.load_positions(params_, token_);
    if constexpr (!kIsQ) index = policy::load_index<spec::kIndex>(params_, token_);
    if constexpr (kTurns) turn_.load_angles(params_, part_);
    if constexpr (!kIsQ) place_ = policy::place_of<spec::kIndex, spec::kKvLayout, spec::kPageSize>(params_, index);
  }
  __device__ __forceinline__ void load_heads() {
    const auto* const from = static_cast<const tile::Storage<spec::kInDType>*>(T::from(params_)) +
                             token_ * T::strides(params_).token + first_ * T::strides(params_).head +
                             Read::at(part_, upper_) * kLaneElements;
    const bool exists = Read::template has<kLanes>(part_, upper_);
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
#pragma unroll
      for (int v = 0; v < 2; ++v)
        parts_[i][v] = ptx::ld_global_once_v4_if(from + behind(i, v) * T::strides(params_).head,
                                                 is_round(i) && moves(i, v) && exists);
  }
  __device__ __forceinline__ void load_scales() {
#pragma unroll
    for (int i = 0; i < kScaleParts; ++i) {
      const bool exists = T::kScales == ScaleKind::kPerTensor || (is_round(i) && has_head(i));
      scales_[i] = __uint_as_float(
          ptx::ld_global_u32_if(T::scales(params_) + (T::kScales == ScaleKind::kPerHead ? head(i) : 0), exists));
    }
  }
  __device__ __forceinline__ void load_weights() {
    const auto* const weights = static_cast<const tile::Storage<spec::kInDType>*>(T::weights(params_));
#pragma unroll
    for (int i = 0; i < kWeightParts; ++i)
#pragma unroll
      for (int v = 0; v < 2; ++v)
        weights_[i][v] = ptx::ld_global_v4_if(
            weights + (kNormOfAll ? head(i) * spec::kHeadDimQk : 0) + Read::at(part_, v) * kLaneElements,
            (!kNormOfAll || (is_round(i) && has_head(i))) && Read::template has<kLanes>(part_, v));
  }

  /// Of all parts of this lane; those that do not exist are zeros.
  __device__ __forceinline__ float sum_of_squares() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      HeadVector x[2];
      unpack(parts_[i], x);
      sum += policy::sum_of_squares(x[0]) + policy::sum_of_squares(x[1]);
    }
    return sum;
  }
  /// Where the lane's vector of head first_ goes. Of a page of columns: where the first element of head first_ goes.
  __device__ __forceinline__ void* place_of_output() const {
    const int written = Written::at(part_, upper_) * kLaneElements;
    if constexpr (kIsQ) {
      return static_cast<tile::Storage<T::kTo>*>(params_.q_out) + token_ * params_.q_out_strides.token +
             first_ * params_.q_out_strides.head + written;
    } else if constexpr (kColumns) {
      const int column = contract::column_of_key(static_cast<int>(place_.offset));
      return static_cast<uint8_t*>(params_.v_cache) + place_.page * params_.v_cache_strides.batch +
             first_ * params_.v_cache_strides.head + column;
    } else {
      return static_cast<tile::Storage<T::kTo>*>(T::cache(params_)) +
             policy::cache_element(place_, T::cache_strides(params_), first_) + written;
    }
  }
  /// The index of the scale per token of the lane's first head.
  __device__ __forceinline__ int64_t scale_place() const {
    if constexpr (T::kScales != ScaleKind::kPerToken)
      return 0;
    else if constexpr (kIsQ)
      return int64_t{token_} * spec::kQHeads + head(0);
    else
      return policy::cache_element(place_, T::scale_strides(params_), head(0));
  }

  /// The factor that brings elements to the scale of a format. A scale per token is computed here, and written.
  __device__ __forceinline__ float factor(int i, int64_t scale_at, uint32_t largest) const {
    if constexpr (T::kScales == ScaleKind::kNone) {
      return 1;
    } else if constexpr (kGivenScales) {
      return __frcp_rn(scales_[kScaleParts > 1 ? i : 0]);
    } else {
      const float scale = Steps::scale_per_token(params_, largest);
      if (part_ == 0 && has_head(i) && (kIsQ || place_.exists)) {
        int64_t at = scale_at;
        if constexpr (kIsQ)
          at += i * kHeadsAtOnce;
        else
          at += i * (kHeadsAtOnce * T::scale_strides(params_).head);
        Steps::store_scale(params_, at, scale);
      }
      return policy::reciprocal_of_scale(scale);
    }
  }

  /// The heads of one round: two of each lane.
  __device__ __forceinline__ void write_heads(int i, float inverse, void* to, int64_t scale_at) {
    if constexpr (kStays) {
      store(i, to, parts_[i][0].word, parts_[i][1].word);
      return;
    }
    policy::exchange<kLanes, 4>(upper_ != 0, parts_[i][0].word, parts_[i][1].word);
    HeadVector x[2];
    unpack(parts_[i], x);
    const float by = Steps::take(params_, turn_, weights_[kNormOfAll ? i : 0], inverse, x, lane_ - part_, part_,
                                 [&](uint32_t largest) { return factor(i, scale_at, largest); });
    if constexpr (kColumns) {
      store_columns(i, to, x, by);
    } else {
      uint32_t words[2][kWordsOfVector];
      policy::pack_head_part<T::kTo, spec::kArch>(x[0], by, words[0]);
      policy::pack_head_part<T::kTo, spec::kArch>(x[1], by, words[1]);
      policy::exchange<kLanes, kWordsOfVector>(upper_ != 0, words[0], words[1]);
      store(i, to, words[0], words[1]);
    }
  }
  /// A vector of each of two heads.
  __device__ __forceinline__ void store(int i, void* to, const uint32_t* first, const uint32_t* second) const {
    if (!Written::template has<kLanes>(part_, upper_)) return;
    if constexpr (!kIsQ)
      if (!place_.exists) return;
#pragma unroll
    for (int v = 0; v < 2; ++v)
      if (moves(i, v))
        policy::store_words<kWordsOfVector>(static_cast<tile::Storage<T::kTo>*>(to) + behind(i, v) * head_stride(),
                                            v == 0 ? first : second);
  }
  __device__ __forceinline__ void store_columns(int i, void* to, const HeadVector (&x)[2], float factor) const {
    if (!has_head(i) || !place_.exists) return;
    auto* const head = static_cast<uint8_t*>(to) + behind(i, upper_) * params_.v_cache_strides.head;
#pragma unroll
    for (int v = 0; v < 2; ++v)
      if (Written::template has<kLanes>(part_, v))
        policy::store_head_column<T::kTo, spec::kArch>(head + Written::at(part_, v) * kLaneElements * spec::kPageSize,
                                                       spec::kPageSize, x[v], factor);
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
  const int lane_, part_;  // part_: among the lanes that compute a head
  const int upper_;        // whether the lane is in the upper half of those that read a head
  int first_, left_;       // heads from the warp's first one on
  ptx::Vector16 parts_[kRounds][2], weights_[kWeightParts][2];
  float scales_[kScaleParts];
  CachePlace place_;
  typename Steps::Turn turn_;
};

template <Operand kOperand>
__device__ __forceinline__ void write(const Params& params, int token, int warp_of_operand, bool few, int warp,
                                      int lane) {
  Heads<kOperand>(params, token, warp_of_operand, few, lane).write(warp);
}

}  // namespace kernelwright

// 24 warps of an SM leave a thread 80 registers, which two heads fit in. Kernels with more heads take what they need.
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
