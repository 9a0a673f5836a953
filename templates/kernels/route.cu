/// The experts of each token, and their weights. A warp has a token at a time, and loads the logits of its next one.
/// The logits lie in the lanes' registers. Experts are chosen one after another (policy/expert_choice.cuh) or all at
/// once (policy/bounded_choice.cuh). Lane i then has the i-th expert and its weight.
///
/// Where experts are given, nothing is chosen. With sort, a CTA also counts the pairs of its tokens for each expert. A
/// launch of one CTA sorts them at once. Else route_sort follows (policy/expert_sort.cuh).
#include "spec.h"

#include "policy/bounded_choice.cuh"
#include "policy/cta_counts.cuh"
#include "policy/epilogue.cuh"
#include "policy/expert_choice.cuh"
#include "policy/expert_sort.cuh"
#include "policy/load_words.cuh"
#include "policy/of_warps.cuh"
#include "ptx/launch.cuh"
#include "tile/element.cuh"

namespace kernelwright {

using Params = contract::RouteParams;
using Element = tile::Storage<spec::kLogitsDType>;
using Choice = policy::ExpertChoice<spec::kExperts, spec::kGroups>;
using BoundedChoice =
    policy::BoundedChoice<spec::kExperts, spec::kGroups, spec::kPickedGroups, spec::kSumsTwo, spec::kTopK>;
template <int kWarps>
using SortOf = policy::ExpertSort<spec::kExperts, spec::kBuckets, spec::kTopK, kWarps, spec::kAlignment, spec::kMapped,
                                  spec::kGiven>;
using Sort = SortOf<spec::kWarps>;
using Counts = policy::CtaCounts<spec::kShortCounts, spec::kBuckets, spec::kWarps>;

enum : bool {
  kScores = spec::kSoftmax || spec::kSigmoid,
  // Scores keep the order of logits. They are computed for all experts only where something else is added to them.
  kChoosesScores = kScores && !spec::kTopKFirst && (spec::kBiased || spec::kSumsTwo),
  kSoftmaxOfAll = spec::kSoftmax && !spec::kTopKFirst
};
enum : int {
  kOwn = Choice::kOwn,
  kSlots = contract::lanes_of_slots(spec::kTopK),
  kTokensOfRun = 32 / kSlots,  // whose slots the lanes have at once
  kLoad = contract::logits_of_load(spec::kExperts, spec::kGroups, static_cast<int>(sizeof(Element)))
};

/// The logits of one load.
__device__ __forceinline__ void load_logits(const Element* from, bool exists, float* to) {
  constexpr int kBytes = kLoad * static_cast<int>(sizeof(Element)), kWords = kBytes < 4 ? 1 : kBytes / 4;
  uint32_t words[kWords];
  if constexpr (kBytes >= 4)
    policy::load_words<kWords>(from, exists, words);
  else
    words[0] = ptx::ld_global_u16_if(from, exists);
#pragma unroll
  for (int i = 0; i < kLoad; ++i) {
    if constexpr (spec::kLogitsDType == DType::kF32)
      to[i] = __uint_as_float(words[i]);
    else
      to[i] = tile::element_of<spec::kLogitsDType>(words[i / 2], i % 2);
  }
}
__device__ __forceinline__ float logit_of(const Element* row, int expert) {
  if constexpr (spec::kLogitsDType == DType::kF32)
    return __uint_as_float(ptx::ld_global_u32_if(row + expert, true));
  else
    return tile::element_of<spec::kLogitsDType>(ptx::ld_global_u16_if(row + expert, true), 0);
}

/// What softmax subtracts and divides by. NaN takes no part.
struct Softmax {
  float largest = ptx::minus_infinity(), sum = 0;

  __device__ __forceinline__ float exponential(float logit) const {
    // The largest one may be infinite: its distance to itself is 0.
    const float value = logit == largest ? 1.f : ptx::ex2_approx_ftz((logit - largest) * policy::kLog2E);
    return logit == logit ? value : 0.f;
  }
  __device__ __forceinline__ float of(float logit) const { return __fdiv_rn(exponential(logit), sum); }
};

__device__ __forceinline__ float score_of(const Softmax& softmax, float logit) {
  if constexpr (spec::kSoftmax) return softmax.of(logit);
  if constexpr (spec::kSigmoid) return ptx::rcp_approx_ftz(1.f + ptx::ex2_approx_ftz(logit * -policy::kLog2E));
  return logit;
}

/// The weight of the lane's slot, whose expert has `logit`. Lanes without a slot have NaN, which weighs 0.
__device__ __forceinline__ float weight_of(const Params& params, Softmax softmax, float logit) {
  if constexpr (spec::kSoftmax && spec::kTopKFirst) {
    softmax.largest = policy::largest_of_lanes<kSlots>(logit);
    softmax.sum = policy::sum_over_head<kSlots>(softmax.exponential(logit));
  }
  float weight = logit == logit ? score_of(softmax, logit) : 0.f;
  if constexpr (spec::kRenormalized) {
    const float sum = policy::sum_over_head<kSlots>(weight);
    weight = sum > 0 ? __fdiv_rn(weight, sum) : 0.f;
  }
  return weight * params.factor;
}

__device__ __forceinline__ const Element* row_of(const Params& params, int token) {
  return static_cast<const Element*>(params.logits) + token * params.logits_stride;
}

/// A token, and the logits of the lane's experts.
struct Token {
  const Element* row;
  float logits[kOwn];

  /// Where there is no token, nothing is read.
  __device__ __forceinline__ Token(const Element* from, bool exists, int lane) : row(from) {
#pragma unroll
    for (int i = 0; i < kOwn; i += kLoad)
      load_logits(row + Choice::expert_of(lane, i), exists && Choice::has(lane, i), logits + i);
  }
};

/// The bias of the lane's experts.
struct Bias {
  float own[kOwn];
  __device__ __forceinline__ Bias(const Params& params, int lane) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      own[i] = spec::kBiased && Choice::has(lane, i) ? ptx::ld_global_f32(params.bias + Choice::expert_of(lane, i)) : 0;
  }
};

__device__ __forceinline__ Softmax softmax_of(const float (&logits)[kOwn], int lane) {
  Softmax softmax;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (Choice::has(lane, i)) softmax.largest = fmaxf(softmax.largest, logits[i]);
  softmax.largest = policy::largest_of_warp(softmax.largest);
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (Choice::has(lane, i)) softmax.sum += softmax.exponential(logits[i]);
  softmax.sum = policy::sum_over_head<32>(softmax.sum);
  return softmax;
}

/// The expert of the lane's slot, in each run of kSlots lanes; -1 for lanes without one.
__device__ __forceinline__ int choose(const float (&values)[kOwn], uint32_t shared) {
  int expert;
  if constexpr (spec::kBounded)
    if (BoundedChoice::choose(values, shared, expert)) return expert;
  Choice choice(values);
  if constexpr (spec::kGroups > 1) choice.pick_groups<spec::kPickedGroups, spec::kSumsTwo>(values);
  return choice.largest<spec::kTopK>();
}

/// A lane's slot of one of kTokensOfRun tokens.
struct Slot {
  int expert;  // -1: none
  Softmax softmax;

  __device__ __forceinline__ Slot() : expert(-1) {}
  __device__ __forceinline__ Slot(const Token& token, const Bias& bias, uint32_t shared) {
    const int lane = threadIdx.x % 32;
    if constexpr (kSoftmaxOfAll) softmax = softmax_of(token.logits, lane);
    float values[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      values[i] = token.logits[i];
      // A sigmoid of NaN is NaN.
      if (kChoosesScores && (spec::kSigmoid || values[i] == values[i])) values[i] = score_of(softmax, values[i]);
      if (spec::kBiased && Choice::has(lane, i)) values[i] += bias.own[i];
    }
    expert = choose(values, shared);
  }

  /// `first`: the first token of the run.
  __device__ __forceinline__ void write(const Params& params, int first) const {
    const int lane = threadIdx.x % 32, token = first + lane / kSlots;
    const float logit = expert >= 0 ? logit_of(row_of(params, token), expert) : __uint_as_float(0x7fffffffu);
    const float weight = weight_of(params, softmax, logit);
    const int64_t pair = int64_t{token} * spec::kTopK + lane % kSlots;
    if (expert < 0) return;
    ptx::st_global_u32(params.ids + pair, static_cast<uint32_t>(expert));
    ptx::st_global_u32(params.weights + pair, __float_as_uint(weight));
  }
};

/// Calls take(expert of the lane's slot) for each run of the warp's tokens.
template <class Take>
__device__ __forceinline__ void route_tokens(const Params& params, const policy::TokensOfWarp& tokens,
                                             const Take& take) {
  __shared__ BoundedChoice::Shared candidates[spec::kBounded ? spec::kWarps : 1];
  const uint32_t shared = ptx::opaque(ptx::shared_address(&candidates[spec::kBounded ? threadIdx.x / 32 : 0]));
  const int lane = threadIdx.x % 32;
  if (tokens.first >= tokens.last) return;
  Token next(row_of(params, tokens.first), true, lane);
  const Bias bias(params, lane);
  for (int first = tokens.first; first < tokens.last; first += kTokensOfRun) {
    const int last = first + kTokensOfRun < tokens.last ? first + kTokensOfRun : tokens.last;
    Slot own;
    for (int token = first; token < last; ++token) {
      const Token now = next;
      next = Token(now.row + params.logits_stride, token + 1 < tokens.last, lane);
      const Slot slot(now, bias, shared);
      if (lane / kSlots == token - first) own = slot;
    }
    own.write(params, first);
    take(own.expert);
  }
}

}  // namespace kernelwright

// Registers of two CTAs, so that one leaves room for one of route_sort. Lanes with many logits take more.
extern "C" __global__ void __launch_bounds__(32 * kernelwright::spec::kWarps, kernelwright::kOwn <= 8 ? 2 : 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::RouteParams params) {
  using namespace kernelwright;
  const policy::TokensOfWarp tokens(params);
  if constexpr (spec::kSorts) {
    __shared__ policy::OfWarps<SortOf, spec::kWarps, spec::kFewWarps> sort;
    const bool has_all = gridDim.x == 1;
    int32_t* counters;
    sort.visit([&](auto& of_warps) {
      of_warps.clear(has_all);
      counters = of_warps.counters(has_all);
    });
    __syncthreads();
    if constexpr (spec::kArch >= 90) {
      ptx::griddepcontrol_wait();
      ptx::griddepcontrol_launch_dependents();
    }
    if constexpr (spec::kGiven)
      Sort::count_tokens(params, counters, tokens.first, tokens.last);
    else
      route_tokens(params, tokens, [&](int expert) { Sort::count(params, counters, expert); });
    __syncthreads();
    sort.visit([&](auto& of_warps) {
      if (!has_all) return of_warps.template write_counts<Counts>(params);
      of_warps.take_counts();
      of_warps.place(params, tokens.first, tokens.last);
    });
  } else {
    if constexpr (spec::kArch >= 90) {
      ptx::griddepcontrol_wait();
      ptx::griddepcontrol_launch_dependents();
    }
    route_tokens(params, tokens, [](int) {});
  }
}
